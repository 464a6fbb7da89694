"""Masking a text that arrives in pieces, without letting a secret slip through between two of them.

Held back is only what could still become a secret: the beginning of an anchor, or an anchor and what stands after it,
at most about a kilobyte of what can be seen. Once a secret is certain its mask is given out at once and the rest of it
is swallowed, however long. For any way of cutting a text in pieces the outputs together are what masking the whole text
gives, unless someone spreads one secret over 16 KiB of invisible characters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from threadline.core.masking.matches import find
from threadline.core.masking.patterns import Rule, Tail
from threadline.core.masking.text_fold import fold

# More than the longest look-behind of any rule.
_CONTEXT = 32
_MOST_HELD = 16_384


class Openings:
    """Where, at the end of a view, a match could have begun that is not complete yet."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._longest = max(rule.longest_partial for rule in rules)
        self._by_pair: dict[bytes, list[tuple[bytes, Rule]]] = {}
        for rule in rules:
            for needle in rule.needles:
                self._by_pair.setdefault(needle[:2].lower(), []).append((needle, rule))
        self._first_bytes = {pair[:1] for pair in self._by_pair}

    def first(self, view: bytes, start: int) -> int:
        """The first such place from `start` on; the end of the view if there is none."""
        lowered = view.lower()
        for at in range(max(start, len(view) - self._longest), len(view)):
            pair = lowered[at : at + 2]
            for needle, rule in self._by_pair.get(pair, ()):
                if _could_begin(needle, rule, lowered if rule.any_case else view, view, at):
                    return at
            if len(pair) == 1 and pair in self._first_bytes:
                return at
        return len(view)


def _could_begin(needle: bytes, rule: Rule, hay: bytes, view: bytes, at: int) -> bool:
    if len(view) - at < len(needle):
        return needle.startswith(hay[at:])
    return hay.startswith(needle, at) and rule.partial.match(view, at) is not None


class StreamMasker:
    """One per text. `feed` gives out what is safe to show now, `flush` the rest; after that it is as new."""

    def __init__(self, rules_for: Callable[[bytes], Sequence[Rule]], openings: Openings) -> None:
        self._rules_for = rules_for
        self._openings = openings
        self._reset()

    def feed(self, text: str) -> str:
        self._held += text.encode("utf-8", "surrogatepass")
        shown = self._advance(complete=False)
        return shown + self._advance(complete=True) if len(self._held) > _MOST_HELD else shown

    def flush(self) -> str:
        rest = self._advance(complete=True)
        self._reset()
        return rest

    def _reset(self) -> None:
        self._before = b""
        self._held = b""
        self._tail: Tail | None = None

    def _advance(self, *, complete: bool) -> str:
        folded = fold(self._held, complete=complete)
        base = len(self._before)
        view = self._before + folded.view
        out: list[bytes] = []
        at = self._swallow(view, base, complete=complete)
        undecided = self._undecided(view, at, complete=complete)
        for found in find(view, self._rules_for(view), at):
            if self._tail is not None or found.start >= undecided:
                break
            shown = slice(folded.source_end(at - base), folded.source_start(found.secret_start - base))
            out += (self._held[shown], found.rule.label)
            if found.secret.trail:
                at = found.secret_end
            else:
                self._tail = found.secret.tail
                at = self._swallow(view, found.head_end, complete=complete)
            if undecided < found.end:
                undecided = self._undecided(view, found.end, complete=complete)
        if self._tail is not None:
            return self._give_out(out, folded.source_end(at - base), view[:at])
        cut = folded.source_start(undecided - base)
        out.append(self._held[folded.source_end(at - base) : cut])
        return self._give_out(out, cut, view[:undecided])

    def _swallow(self, view: bytes, at: int, *, complete: bool) -> int:
        """Where the open tail ends, if one is open; it stays open where more of it could come."""
        if self._tail is None:
            return at
        body_end = self._tail.body_end(view, at)
        end = self._tail.closing_end(view, body_end)
        if end > body_end or complete or not self._tail.goes_on(view, body_end):
            self._tail = None
        return end

    def _undecided(self, view: bytes, at: int, *, complete: bool) -> int:
        return len(view) if complete else self._openings.first(view, at)

    def _give_out(self, out: list[bytes], cut: int, before: bytes) -> str:
        self._held = self._held[cut:]
        self._before = before[-_CONTEXT:]
        return b"".join(out).decode("utf-8", "surrogatepass")
