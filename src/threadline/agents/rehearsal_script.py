"""The replies of the rehearsal agent: pure rules from its prompt to its answer.

A request is matched against a short list of patterns. A request that matches none is answered with a summary of the
prompt: how many turns it has, the pinned context, and the first and last thing the user said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count, islice
from typing import Any, NamedTuple

from threadline.core import jsontext
from threadline.core.approvals import NOT_ASKED
from threadline.core.errors import InvalidInput
from threadline.core.parts import ToolPart
from threadline.core.prompts import outcome_text

HELP = """\
I am the rehearsal agent. I need no key and no network, and I always answer the same thing to the same question. \
I show what I was given, so you can see what an agent here would see. Try one of these:

- calculate 2+3*4 (a tool; "calculate 1+1 and 2+2" calls it twice at once)
- count the words in to be or not to be (a tool)
- look back for Bern (a tool that searches what you said before)
- stamp hello (a tool that asks for your approval first)
- use NAME, or use NAME with {"key": "value"} (a tool of that name from the settings, or one that your client runs)
- what did I say first? or: what did I say last?
- what do you know about me? (the context you pinned)
- think about rain (an answer with reasoning)
- long, or long 2000 (a long answer of that many words)
- slow, or slow 10 (an answer that takes that many seconds; stop it, or close the window and return)
- fail, or fail at once (an answer that fails in the middle, or at the start)

For anything else I tell you what I was given."""

LONGEST_WORDS = 20_000
LONGEST_SECONDS = 300
_QUOTE = 160


class Given(NamedTuple):
    """The agent's prompt. `said` contains what the user said before the request, oldest first."""

    request: str
    said: tuple[str, ...] = ()
    snapshot: str | None = None
    left_out: int = 0
    client_tools: frozenset[str] = frozenset()
    server_tools: frozenset[str] = frozenset()


class Answer(NamedTuple):
    """The answer to a request: text, spread over `seconds`, then tool calls. With `fails`, an error at the end."""

    text: str = ""
    thought: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    seconds: float = 0.0
    fails: bool = False


def choose_answer(given: Given) -> Answer:
    request = " ".join(given.request.split())
    for pattern, rule in _RULES:
        if found := pattern.fullmatch(request):
            return rule(found, given)
    return Answer(_describe_prompt(given))


def describe_results(calls: Sequence[ToolPart]) -> str:
    """A sentence per finished tool call."""
    return " ".join(_describe_result(call) for call in calls)


def _describe_result(call: ToolPart) -> str:
    outcome = outcome_text(call)
    value = call.input_value()
    given = value if isinstance(value, dict) else {}
    if call.state == "output-denied" and call.approval is not None and call.approval.reason == NOT_ASKED:
        return f"I did not use {call.name}: {NOT_ASKED}."
    if call.state == "output-denied":
        return f"You did not allow me to use {call.name}, so I did not use it."
    if call.state != "output-available":
        return f"The tool {call.name} gave no result: {outcome}."
    match call.name:
        case "calculate":
            return f"{given.get('expression')} is {outcome}."
        case "count_words":
            return f"That is {outcome} {'word' if outcome == '1' else 'words'}."
        case "look_back":
            found = call.output_value()
            if not found:
                return f"Nothing you said before has {_quote(str(given.get('words')))} in it."
            return "You said: " + "; ".join(_quote(text) for text in found) + "."
        case "stamp":
            return f"Here it is, stamped: {outcome}."
    return f"The tool {call.name} answered: {outcome}."


def _describe_prompt(given: Given) -> str:
    sentences = [f"You said: {_quote(given.request)}."]
    match len(given.said):
        case 0:
            sentences.append("This is the first thing you say to me here.")
        case 1:
            sentences.append(f"Before this I was shown one turn: {_quote(given.said[0])}.")
        case turns:
            sentences.append(f"Before this I was shown {turns} turns.")
            sentences.append(
                f"The first thing you said was {_quote(given.said[0])}, the last {_quote(given.said[-1])}."
            )
    if given.left_out:
        sentences.append(f"{given.left_out} earlier messages are kept, but were too far back to be shown to me.")
    if given.snapshot is not None:
        sentences.append(f"You pinned this for me: {_quote(given.snapshot)}.")
    if not given.said:
        sentences.append("Say help to see what I can rehearse.")
    return " ".join(sentences)


def _help(found: re.Match[str], given: Given) -> Answer:
    return Answer(HELP)


def _calculate(found: re.Match[str], given: Given) -> Answer:
    expressions = [each.strip(" ?") for each in re.split(r"\band\b", found["what"])]
    return Answer("Let me calculate that.", calls=tuple(("calculate", {"expression": each}) for each in expressions))


def _count(found: re.Match[str], given: Given) -> Answer:
    return Answer("Let me count.", calls=(("count_words", {"text": found["what"]}),))


def _look_back(found: re.Match[str], given: Given) -> Answer:
    return Answer("Let me look back.", calls=(("look_back", {"words": found["what"].strip("\"'?")}),))


def _stamp(found: re.Match[str], given: Given) -> Answer:
    return Answer("I need your approval for this.", calls=(("stamp", {"text": found["what"]}),))


def _use(found: re.Match[str], given: Given) -> Answer:
    names = [name.strip() for name in found["names"].split(" and ")]
    value = _read_object(found["input"] or "{}")
    if value is None or not (given.client_tools | given.server_tools).issuperset(names):
        return Answer(_describe_prompt(given))
    text = "Your client can do that." if given.client_tools.issuperset(names) else "Let me use that."
    return Answer(text, calls=tuple((name, value) for name in names))


def _read_object(text: str) -> dict[str, Any] | None:
    try:
        value = jsontext.parse(text, "tool input")
    except InvalidInput:
        return None
    return value if isinstance(value, dict) else None


def _first(found: re.Match[str], given: Given) -> Answer:
    if not given.said:
        return Answer("This is the first thing you say to me here.")
    shown = " that I was shown" if given.left_out else ""
    return Answer(f"The first thing you said{shown} was {_quote(given.said[0])}.")


def _last(found: re.Match[str], given: Given) -> Answer:
    if not given.said:
        return Answer("You have said nothing before this.")
    return Answer(f"The last thing you said was {_quote(given.said[-1])}.")


def _snapshot(found: re.Match[str], given: Given) -> Answer:
    if given.snapshot is None:
        return Answer("You have pinned no context for me.")
    return Answer(f"You pinned this for me: {_quote(given.snapshot)}.")


def _think(found: re.Match[str], given: Given) -> Answer:
    what = found["what"]
    return Answer(f"I thought about {what}, and I have come to no conclusion.", thought=f"So, {what}. Let me see.")


def _long(found: re.Match[str], given: Given) -> Answer:
    words = min(int(found["number"] or 400), LONGEST_WORDS)
    sentences = (f"This is sentence {number} of a long answer, and it says nothing new." for number in count(1))
    spoken = (word for sentence in sentences for word in sentence.split())
    return Answer(" ".join(islice(spoken, words)))


def _slow(found: re.Match[str], given: Given) -> Answer:
    seconds = min(int(found["number"] or 5), LONGEST_SECONDS)
    text = "I am taking my time, word by word, so that you can leave, return, or stop me before I am done."
    return Answer(text, seconds=seconds)


def _fail(found: re.Match[str], given: Given) -> Answer:
    return Answer("" if found["at_once"] else "I begin to answer, and then", fails=True)


def _rule(pattern: str, rule: Callable[[re.Match[str], Given], Answer]) -> tuple[re.Pattern[str], Any]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL), rule


_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Given], Answer]], ...] = (
    _rule(r"/?help[?!.]?", _help),
    _rule(r"(?:please )?calculate:? (?P<what>.+)", _calculate),
    _rule(r"what is (?P<what>[-+*/%().\d\s^]+)\??", _calculate),
    _rule(r"(?:please )?count(?: the)? words(?: in| of)?:? (?P<what>.+)", _count),
    _rule(r"look (?:back|up)(?: for| at)?:? (?P<what>.+)", _look_back),
    _rule(r"stamp:? (?P<what>.+)", _stamp),
    _rule(r"use (?P<names>[\w-]+(?: and [\w-]+)*)(?: with (?P<input>\{.*\}))?[.!]?", _use),
    _rule(r"what did i say first[?.]?", _first),
    _rule(r"what did i (?:just )?say(?: last)?[?.]?", _last),
    _rule(r"what do you know(?: about me)?[?.]?", _snapshot),
    _rule(r"think(?: about)?:? (?P<what>.+)", _think),
    _rule(r"long(?: (?P<number>\d{1,6}))?[.!]?", _long),
    _rule(r"slow(?: (?P<number>\d{1,6}))?[.!]?", _slow),
    _rule(r"fail(?P<at_once> at once)?[.!]?", _fail),
)


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return f"“{line if len(line) <= _QUOTE else line[: _QUOTE - 1].rstrip() + '…'}”"
