"""The language of masking rules: the form of a secret, written once for every use.

A rule starts with an anchor, a literal that is cheap to find, followed by steps: words, and runs of characters with a
minimum and a maximum. Three patterns are built from the same steps: `head` decides, `partial` matches text at the end
of a stream that may still become a match, and `loose` is for the RE2 prefilter, which scans texts before they are
normalized. A head has a bounded length, so no input makes it slow; a `Tail` covers the rest of any length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

# RE2 rejects repetitions above 1,000, and builds its automaton faster without an upper bound.
_LOOSE_MOST = 64
WORD_RUN = 16
_WORD_CHARS = re.compile(r"[A-Za-z0-9_+/.:=-]+")


class Run(NamedTuple):
    """From `least` to `most` characters of a bracket class. `ahead` is a look-ahead over at most `reach` of them;
    `loose` replaces the run in the pattern for RE2, which has no look-ahead."""

    chars: str
    least: int
    most: int
    ahead: str = ""
    reach: int = 0
    loose: str = ""


def mixed(chars: str, count: int, reach: int) -> Run:
    """`count` characters with a digit and a letter among the first `reach`, which excludes words."""
    digit, letter = (f"(?={chars}{{0,{reach - 1}}}{one})" for one in ("[0-9]", "[A-Za-z]"))
    early = (f"{chars}{{{at}}}[0-9]{chars}{{{count - 1 - at}}}" for at in range(count))
    late = f"{chars}{{{count},{max(count, reach - 1)}}}[0-9]"
    return Run(chars, count, count, digit + letter, reach, f"(?:{'|'.join([*early, late])})")


class Word(NamedTuple):
    """One of these spellings, ignoring case."""

    spellings: tuple[str, ...]


class Several(NamedTuple):
    """The steps, repeated up to `most` times. A repetition must end in a character that the next run cannot contain."""

    steps: tuple[Run | str, ...]
    most: int


Step: TypeAlias = Run | Word | Several | str


class Tail(NamedTuple):
    """The rest of a secret after its head, of any length: all of `body`, then `closing` if it follows.

    `unfinished` matches text at the end of a stream that may become more body or the closing."""

    body: re.Pattern[bytes]
    closing: re.Pattern[bytes] | None = None
    unfinished: re.Pattern[bytes] | None = None

    def end(self, view: bytes, start: int) -> int:
        return self.closing_end(view, self.body_end(view, start))

    def body_end(self, view: bytes, start: int) -> int:
        found = self.body.match(view, start)
        return start if found is None else found.end()

    def closing_end(self, view: bytes, start: int) -> int:
        found = self.closing.match(view, start) if self.closing else None
        return start if found is None else found.end()

    def may_continue(self, view: bytes, start: int) -> bool:
        """Whether the next chunk of a stream may continue this tail, whose body ends at `start` for now."""
        return start == len(view) or (self.unfinished is not None and self.unfinished.match(view, start) is not None)


def tail(body: str, *closing: Step, unfinished: str = "") -> Tail:
    """A tail with its closing given as steps. `unfinished` is for a body with a look-ahead."""
    return Tail(
        re.compile(body.encode()),
        re.compile(_exact(closing).encode()) if closing else None,
        re.compile((unfinished or _partial(closing)).encode()) if closing or unfinished else None,
    )


class Secret(NamedTuple):
    """One form of a secret after the anchor and lead of its rule. Only `steps` and the tail are masked."""

    steps: tuple[Step, ...]
    tail: Tail
    lead: tuple[Step, ...] = ()
    trail: tuple[Step, ...] = ()

    @property
    def all_steps(self) -> tuple[Step, ...]:
        return self.lead + self.steps + self.trail


@dataclass(frozen=True, eq=False)
class Rule:
    """A kind of secret: an anchor, the `lead` between anchor and secret, and the forms of the secret, of which the
    first that matches counts. `behind` is a look-behind before the anchor."""

    kind: str
    anchors: tuple[str, ...]
    secrets: tuple[Secret, ...]
    lead: tuple[Step, ...] = ()
    behind: str = ""
    any_case: bool = False
    masks_anchor: bool = True

    @property
    def label(self) -> bytes:
        return b"[masked:%s]" % self.kind.encode()

    @cached_property
    def needles(self) -> tuple[bytes, ...]:
        return tuple(anchor.lower().encode() if self.any_case else anchor.encode() for anchor in self.anchors)

    @cached_property
    def head(self) -> re.Pattern[bytes]:
        ways = (_exact(s.lead) + f"({_exact(s.steps)})" + _exact(s.trail) for s in self.secrets)
        return re.compile(f"{self._anchor}{_exact(self.lead)}(?:{'|'.join(ways)})".encode())

    @cached_property
    def may_follow(self) -> re.Pattern[bytes]:
        """Matches at an anchor if the text before it allows a secret there."""
        return re.compile(self.behind.encode())

    @cached_property
    def partial(self) -> re.Pattern[bytes]:
        ways = (_partial(self.lead + secret.all_steps) for secret in self.secrets)
        return re.compile(f"{self.behind}{self._anchor}(?:{'|'.join(ways)})".encode())

    def compile(self) -> None:
        """Builds the patterns now; each is otherwise built when it is first needed."""
        _ = self.head, self.may_follow, self.partial

    @cached_property
    def loose(self) -> str:
        ways = (_loose(self.lead + secret.all_steps) for secret in self.secrets)
        return f"{self._anchor}(?:{'|'.join(ways)})"

    @cached_property
    def longest_partial(self) -> int:
        return max(map(len, self.anchors)) + max(_longest(self.lead + secret.all_steps) for secret in self.secrets)

    @cached_property
    def is_word(self) -> bool:
        """Whether a match always contains an unbroken run of at least sixteen word characters."""
        if self.lead or not all(map(_WORD_CHARS.fullmatch, self.anchors)):
            return False
        anchor = min(map(len, self.anchors))
        return all(anchor + _unbroken(secret) >= WORD_RUN for secret in self.secrets)

    @property
    def _anchor(self) -> str:
        return _words(self.anchors, any_case=self.any_case)


def _unbroken(secret: Secret) -> int:
    length = 0
    for step in secret.all_steps:
        if isinstance(step, Run):
            if step.chars.startswith("[^") or "\\" in step.chars:
                break
            length += step.least
    return length


def _exact(steps: tuple[Step, ...]) -> str:
    return "".join(map(_exact_step, steps))


def _exact_step(step: Step) -> str:
    match step:
        case Run():
            return f"{step.ahead}{step.chars}{{{step.least},{step.most}}}"
        case Several():
            return _several(step)
    return _words(_spellings(step))


def _several(step: Several) -> str:
    # Not possessive: the next step cannot start inside a repetition anyway, and before Python 3.11.5 a possessive group
    # that contains an alternative matched wrongly.
    return f"(?:{_exact(step.steps)}){{0,{step.most}}}"


def _partial(steps: tuple[Step, ...]) -> str:
    if not steps:
        return "(?!)"
    step, rest = steps[0], _partial(steps[1:])
    match step:
        case Run():
            held = max(step.most, step.reach)
            return f"(?:{step.chars}{{0,{held}}}\\Z|{step.chars}{{{step.least},{step.most}}}{rest})"
        case Several():
            return f"{_several(step)}(?:{_partial(step.steps)}|{rest})"
    spellings = _spellings(step)
    begun = sorted({spelling[:n] for spelling in spellings for n in range(len(spelling))})
    return f"(?:{_words(tuple(begun))}\\Z|{_words(spellings)}{rest})"


def _loose(steps: tuple[Step, ...]) -> str:
    return "".join(map(_loose_step, steps))


def _loose_step(step: Step) -> str:
    match step:
        case Run():
            most = str(step.most) if step.most <= _LOOSE_MOST else ""
            return step.loose or f"{_as_escaped(step.chars)}{{{step.least},{most}}}"
        case Several():
            return f"(?:{_loose(step.steps)}){{0,{step.most}}}"
    return _words(_spellings(step))


def _as_escaped(chars: str) -> str:
    # In raw JSON, line breaks, tabs and quotes are escaped with a backslash.
    has_escapable = not chars.startswith("[^") and (r"\n" in chars or r"\x1e" in chars)
    return rf'(?:{chars}|\\["nrt])' if has_escapable else chars


def _longest(steps: tuple[Step, ...]) -> int:
    return sum(map(_longest_step, steps))


def _longest_step(step: Step) -> int:
    match step:
        case Run():
            return max(step.most, step.reach)
        case Several():
            return step.most * _longest(step.steps)
    return max(map(len, _spellings(step)))


def _spellings(step: Word | str) -> tuple[str, ...]:
    return (step,) if isinstance(step, str) else step.spellings


def _words(spellings: tuple[str, ...], *, any_case: bool = True) -> str:
    flag = "i" if any_case else ""
    return f"(?{flag}:{'|'.join(map(re.escape, spellings))})"
