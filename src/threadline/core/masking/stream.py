"""Masking of a text that arrives in chunks. A secret that is split between chunks is masked too.

Only text that may still become a secret is held back: the start of an anchor, or an anchor and the text after it, about
a kilobyte of visible text at most. Once a match is certain, its mask is emitted and the rest of the secret is dropped.
However a text is split, the outputs together equal the masked text, except if one secret is spread over 16 KiB of
invisible characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from threadline.core.masking.matcher import find, hide
from threadline.core.masking.normal_form import normalize
from threadline.core.masking.patterns import Rule, Tail

_CONTEXT = 32
"""Bytes kept before the held text, as they read after masking: more than the longest look-behind of any rule."""
_MOST_HELD = 16_384
"""Bound of the held text, so that a stream of invisible characters cannot exhaust memory."""


class PartialMatches:
    """Finds the start of an incomplete match at the end of a text."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._longest = max(rule.longest_partial for rule in rules)
        self._by_pair: dict[bytes, list[tuple[bytes, Rule]]] = {}
        for rule in rules:
            for needle in rule.needles:
                self._by_pair.setdefault(needle[:2].lower(), []).append((needle, rule))
        second: dict[bytes, bytes] = {}
        for pair in self._by_pair:
            second[pair[:1]] = second.get(pair[:1], b"") + pair[1:]
        # Where an anchor can begin, found by `re`: a loop over positions takes as long as the rest of a feed.
        ways = (re.escape(one) + b"(?:[" + re.escape(two) + b"]|\\Z)" for one, two in second.items())
        self._candidate = re.compile(b"|".join(ways))

    def first(self, view: bytes, start: int) -> int:
        """The first such position from `start`; the end of the view if there is none."""
        lowered = view.lower()
        begun = self._candidate.search(lowered, max(start, len(view) - self._longest))
        while begun is not None:
            at = begun.start()
            pair = begun.group()
            if len(pair) == 1:
                return at
            for needle, rule in self._by_pair[pair]:
                if _could_begin(needle, rule, lowered if rule.any_case else view, view, at):
                    return at
            begun = self._candidate.search(lowered, at + 1)
        return len(view)


def _could_begin(needle: bytes, rule: Rule, hay: bytes, view: bytes, at: int) -> bool:
    if len(view) - at < len(needle):
        return needle.startswith(hay[at:])
    return hay.startswith(needle, at) and rule.partial.match(view, at) is not None


class StreamMasker:
    """One per text. `feed` returns what is safe to show now, `flush` the rest. After `flush` it starts a new text."""

    def __init__(self, rules_for: Callable[[bytes], Sequence[Rule]], partial_matches: PartialMatches) -> None:
        self._rules_for = rules_for
        self._partial_matches = partial_matches
        self._reset()

    def feed(self, text: str) -> str:
        self._held += text.encode("utf-8", "surrogatepass")
        output = self._advance(complete=False)
        return output + self._advance(complete=True) if len(self._held) > _MOST_HELD else output

    def flush(self) -> str:
        rest = self._advance(complete=True)
        self._reset()
        return rest

    def _reset(self) -> None:
        self._before = b""
        self._held = b""
        self._tail: Tail | None = None

    def _advance(self, *, complete: bool) -> str:
        normal = normalize(self._held, complete=complete)
        base = len(self._before)
        view = self._before + normal.view
        if self._tail is None and not self._rules_for(view):
            # Most pieces: nothing in them is a secret.
            undecided = self._undecided(view, base, complete=complete)
            cut = normal.source_start(undecided - base)
            return self._emit([self._held[:cut]], cut, view[:undecided])
        out: list[bytes] = []
        at = self._skip_tail(view, base, complete=complete)
        view = self._before + b"]" * (at - base) + view[at:]
        masked = bytearray(view)
        undecided = self._undecided(view, at, complete=complete)
        for found in find(view, self._rules_for(view), at):
            if self._tail is not None or found.start >= undecided:
                break
            before = slice(normal.source_end(at - base), normal.source_start(found.secret_start - base))
            out += (self._held[before], found.rule.label)
            if found.secret.trail:
                at = found.secret_end
            else:
                self._tail = found.secret.tail
                at = self._skip_tail(view, found.head_end, complete=complete)
            hide(masked, found)
            undecided = self._undecided(bytes(masked), found.end, complete=complete)
        if self._tail is not None:
            return self._emit(out, normal.source_end(at - base), bytes(masked[:at]))
        cut = normal.source_start(undecided - base)
        out.append(self._held[normal.source_end(at - base) : cut])
        return self._emit(out, cut, bytes(masked[:undecided]))

    def _skip_tail(self, view: bytes, at: int, *, complete: bool) -> int:
        """The end of the open tail, if there is one. It stays open if the next chunk may continue it."""
        if self._tail is None:
            return at
        body_end = self._tail.body_end(view, at)
        end = self._tail.closing_end(view, body_end)
        if end > body_end or complete or not self._tail.may_continue(view, body_end):
            self._tail = None
        return end

    def _undecided(self, view: bytes, at: int, *, complete: bool) -> int:
        return len(view) if complete else self._partial_matches.first(view, at)

    def _emit(self, out: list[bytes], cut: int, before: bytes) -> str:
        self._held = self._held[cut:]
        self._before = before[-_CONTEXT:]
        return b"".join(out).decode("utf-8", "surrogatepass")
