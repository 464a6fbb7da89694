"""Matching: which rules can match a text, and where they do.

A prefilter selects the few rules that can match anywhere in a text; it may select too many, never too few. RE2 scans a
text in one pass, and only normalizes it if necessary; without RE2, literals are searched, most of them only in words
that are long enough for a secret. The selected rules are then tried at their anchors from left to right. Both
prefilters lead to the same matches.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from threadline.core.masking.normal_form import INVISIBLE, normal_bytes
from threadline.core.masking.patterns import WORD_RUN, Rule, Secret

try:
    import re2
except ImportError:  # the extra `masking` is not installed
    re2 = None

# A set that runs out of memory reports no match. Two megabytes have been enough for every text tried.
_RE2_MEMORY = 64 << 20
_LONG_RUN = b"x" * WORD_RUN
_WORDS = re.compile(rb"[A-Za-z0-9_+/.:=-]{%d,}+" % WORD_RUN)
_AS_RUNS = bytes(ord("x") if _WORDS.match(bytes((byte,)) * WORD_RUN) else ord(" ") for byte in range(256))


class SecretMatch(NamedTuple):
    """A match in a normal form. `secret_start` to `secret_end` is masked; the rule's tail determines `secret_end`."""

    rule: Rule
    secret: Secret
    start: int
    secret_start: int
    head_end: int
    secret_end: int
    end: int


class Prefilter(Protocol):
    def rules(self, raw: bytes) -> Sequence[Rule]:
        """Every rule that can match the normal form of this text, in order of precedence."""
        ...


class LiteralPrefilter:
    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._needles: dict[tuple[bool, bool], list[tuple[bytes, int]]] = {}
        for index, rule in enumerate(rules):
            group = self._needles.setdefault((rule.is_word, rule.any_case), [])
            group += ((needle, index) for needle in rule.needles)

    def rules(self, raw: bytes) -> Sequence[Rule]:
        view = normal_bytes(raw)
        named = self._named(view, is_word=False)
        if _LONG_RUN in view.translate(_AS_RUNS):
            named |= self._named(b" ".join(_WORDS.findall(view)), is_word=True)
        return [self._rules[index] for index in sorted(named)] if named else ()

    def _named(self, view: bytes, *, is_word: bool) -> set[int]:
        lowered = view.lower()
        named = {index for needle, index in self._needles.get((is_word, True), ()) if needle in lowered}
        return named.union(index for needle, index in self._needles.get((is_word, False), ()) if needle in view)


# Bytes that have to be normalized, except the escapes that the `loose` patterns handle.
_UNCLEAR = rb'\\[^"nrt]|\\$|%[0-9A-Fa-f]{2}|' + INVISIBLE


class Re2Prefilter:
    def __init__(self, rules: Sequence[Rule]) -> None:
        options: Any = re2.Options()
        options.max_mem = _RE2_MEMORY
        options.encoding = re2.Options.Encoding.LATIN1
        self._rules = rules
        self._set: Any = re2.Set.SearchSet(options)
        for rule in rules:
            self._set.Add(rule.loose.encode())
        self._unclear = len(rules)
        self._set.Add(_UNCLEAR)
        self._set.Compile()

    def rules(self, raw: bytes) -> Sequence[Rule]:
        named = self._set.Match(raw)
        if not named:
            return ()
        if self._unclear in named:
            named = self._set.Match(normal_bytes(raw)) or ()
        return [self._rules[index] for index in sorted(named) if index != self._unclear]


def make_prefilter(rules: Sequence[Rule], *, with_re2: bool | None = None) -> Prefilter:
    """RE2 if it is installed, unless `with_re2` says otherwise."""
    use_re2 = re2 is not None if with_re2 is None else with_re2
    return Re2Prefilter(rules) if use_re2 else LiteralPrefilter(rules)


def find(view: bytes, rules: Sequence[Rule], start: int = 0) -> Iterator[SecretMatch]:
    """Every match from `start`, without overlaps: leftmost first; of two at the same place, the earlier rule's.

    What precedes an anchor is judged as it reads after masking, because masking the result again must find nothing new:
    in `/home/AKIA…/xghp_…` the letters before `ghp_` no longer look like base64 once the first key is masked.
    """
    lowered = view.lower()
    probes = [(needle, lowered if rule.any_case else view, rule) for rule in rules for needle in rule.needles]
    waiting: list[tuple[int, int, re.Match[bytes]]] = []

    def wait_for(rank: int, at: int) -> None:
        needle, hay, rule = probes[rank]
        if (head := _next_head(needle, hay, view, rule, at)) is not None:
            heapq.heappush(waiting, (head.start(), rank, head))

    for rank in range(len(probes)):
        wait_for(rank, start)
    done = start
    masked = bytearray(view)
    while waiting:
        at, rank, head = heapq.heappop(waiting)
        rule = probes[rank][2]
        if at >= done and rule.may_follow.match(masked, at):
            found = _found(rule, head, view)
            yield found
            done = found.end
            hide(masked, found)
        wait_for(rank, max(done, at + 1))


def hide(view: bytearray, found: SecretMatch) -> None:
    """Overwrite a secret with the last character of its mask, so that no position changes."""
    view[found.secret_start : found.secret_end] = b"]" * (found.secret_end - found.secret_start)


def _next_head(needle: bytes, hay: bytes, view: bytes, rule: Rule, at: int) -> re.Match[bytes] | None:
    find_needle, match_head = hay.find, rule.head.match
    while (at := find_needle(needle, at)) >= 0:
        if (head := match_head(view, at)) is not None:
            return head
        at += 1
    return None


def _found(rule: Rule, head: re.Match[bytes], view: bytes) -> SecretMatch:
    way = head.lastindex or 1
    secret = rule.secrets[way - 1]
    end = secret.tail.end(view, head.end())
    return SecretMatch(
        rule=rule,
        secret=secret,
        start=head.start(),
        secret_start=head.start() if rule.masks_anchor else head.start(way),
        head_end=head.end(),
        secret_end=head.end(way) if secret.trail else end,
        end=end,
    )
