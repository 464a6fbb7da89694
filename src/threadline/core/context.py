"""Context: what an agent is shown of a thread. Values in, a value out.

First what rarely changes: the snapshot a user pinned, the system prompt, a summary of earlier messages. Then a window
of the history, repaired; then the request, always, whatever its length, and never as part of its own history.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from threadline.core.checks import LARGEST_INTEGER
from threadline.core.messages import Message
from threadline.core.parts import plain_text
from threadline.core.prompts import Prompt, PromptMessage, say
from threadline.core.repair import has_distinct_calls, repair
from threadline.core.tokens import CountTokens, estimate, total_tokens
from threadline.core.turns import Summary
from threadline.core.windows import PastTurn, Window, newest_turns, past_turns, shown_message

SNAPSHOT_HEAD = "Persisted user context:\n"
SUMMARY_HEAD = "Summary of the conversation so far:\n"
EXTRACT_HEAD = "Extract of the conversation so far, which is not complete:\n"
_NEARLY_FULL = 0.8
"""The part of the window that a prompt may take before older messages are summarised."""


def assemble(
    history: Sequence[Message],
    request: Message | PromptMessage,
    *,
    window: Window,
    snapshot: str | None = None,
    system_prompt: str | None = None,
    instructions: str | None = None,
    summary: Summary | None = None,
    refused: Collection[str] = (),
    count: CountTokens = estimate,
) -> Prompt:
    """`history` is the newest messages of the thread in order: more turns than the window allows, or all of them. It
    may contain the request and later messages; of those, only replies to earlier turns are shown. `refused` names the
    turns whose request was refused: a placeholder is shown instead of it."""
    stored = request if isinstance(request, Message) else None
    asked = shown_message(request) if isinstance(request, Message) else request
    preamble = _preamble(snapshot, system_prompt, instructions, summary)
    fixed = total_tokens((*preamble, asked), count)
    turns = past_turns(history, stored, refused)
    covered = -1 if summary is None else summary.point.seq
    budget = None if window.tokens is None else window.tokens - fixed
    uncovered = [turn for turn in turns if turn.last_seq > covered]
    shown = newest_turns(uncovered, window, budget, count, first_seq=covered + 1)
    past = tuple([message for turn in shown for message in turn.shown])
    shown_tokens = sum(turn.tokens(count) for turn in shown)
    if not has_distinct_calls(past):
        past = repair(past)
        shown_tokens = total_tokens(past, count)
    return Prompt(
        messages=(*preamble, *past, asked),
        turns_shown=len(shown),
        messages_left_out=_past_messages(turns, stored) - sum(len(turn.shown) - turn.splits for turn in shown),
        tokens=fixed + shown_tokens,
        history_tokens=shown_tokens,
        first_seq=shown[0].first_seq if shown else None,
    )


def _preamble(
    snapshot: str | None, system_prompt: str | None, instructions: str | None, summary: Summary | None
) -> tuple[PromptMessage, ...]:
    texts = (
        None if snapshot is None else SNAPSHOT_HEAD + snapshot,
        system_prompt,
        instructions,
        None if summary is None else summary_text(summary),
    )
    return tuple(say("system", text) for text in texts if text is not None and text.strip())


def summary_text(summary: Summary) -> str:
    """What an agent is shown of a summary."""
    return (EXTRACT_HEAD if summary.source == "extract" else SUMMARY_HEAD) + summary.text


def _past_messages(turns: Sequence[PastTurn], request: Message | None) -> int:
    """How many messages of the thread come before the request, including those that were not read."""
    if request is None:
        return max((turn.last_seq for turn in turns), default=-1) + 1
    return request.seq + sum(message.seq > request.seq for turn in turns for message in turn.messages)


def describe_prompt(prompt: Prompt, window: Window) -> dict[str, Any]:
    """What is stored with a turn about its prompt. Together with the log, which never changes, it tells later what the
    agent was shown."""
    return {
        "system": [plain_text(message.parts) for message in prompt.messages if message.role == "system"],
        "first_seq": prompt.first_seq,
        "turns": prompt.turns_shown,
        "messages_left_out": prompt.messages_left_out,
        "tokens": prompt.tokens,
        "window_tokens": window.tokens,
    }


class Overflow(NamedTuple):
    """What compaction has to achieve: the messages without a summary exceed `budget` tokens, or a number of `turns`.
    `left_out` is the last message that the window no longer shows and no summary covers; -1 if there is none."""

    budget: int
    turns: int | None = None
    left_out: int = -1


def find_overflow(prompt: Prompt, window: Window, summary: Summary | None) -> Overflow | None:
    """Whether older messages should be summarised, after a prompt was assembled from them. A window of tokens is nearly
    full at four fifths. One of turns is always full: half as many turns again may go without a summary."""
    if prompt.first_seq is None:
        return None
    covered = -1 if summary is None else summary.point.seq
    unseen = prompt.first_seq - covered - 1
    left_out = prompt.first_seq - 1 if unseen > 0 else -1
    if window.tokens is not None:
        room = window.tokens - (prompt.tokens - prompt.history_tokens)
        budget = room * 2 // 3
        is_nearly_full = prompt.tokens > window.tokens * _NEARLY_FULL and prompt.history_tokens > budget
        if budget > 0 and (is_nearly_full or (unseen > 0 and window.turns is None)):
            return Overflow(budget, left_out=left_out)
    # A turn has two messages: its request and its reply.
    if window.turns is not None and unseen >= max(window.turns, 2):
        return Overflow(LARGEST_INTEGER, turns=window.turns + 1, left_out=left_out)
    return None


def plan_compaction(
    messages: Sequence[Message], budget: int, *, turns: int | None = None, count: CountTokens = estimate
) -> int | None:
    """The last seq that a summary should cover, if these messages exceed the budget of tokens or a number of turns;
    None if they fit, or if there is only one turn. The rest takes half the budget, so that the next compaction is far
    off, and at most so many turns."""
    found = past_turns(messages)
    costs = [total_tokens(turn.shown, count) for turn in found]
    most = len(found) if turns is None else turns
    if sum(costs) <= budget and len(found) <= most:
        return None
    cut, spent = len(found) - 1, costs[-1]
    while cut > 0 and len(found) - cut < most and spent + costs[cut - 1] <= budget // 2:
        cut, spent = cut - 1, spent + costs[cut - 1]
    # A queued message can come before the reply to the one ahead of it: such turns are covered together or not at all.
    reach = list(accumulate((turn.last_seq for turn in found), max))
    while cut > 0 and reach[cut - 1] > found[cut].first_seq:
        cut -= 1
    return reach[cut - 1] if cut > 0 else None
