"""Splits long replies into messages of a platform's size: between blocks, else lines, sentences or words.

Each platform measures blocks itself. A split inside code gives two code blocks, a split inside bold text two bold
halves. A grapheme of several code points is not split, unless it alone exceeds the limit. Only white space at a split
is dropped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from threadline.channels.markdown import Block, Span, merge_spans

_ENDS = (re.compile(r"\n(?=.)", re.DOTALL), re.compile(r"(?<=[.!?…。])\s+(?=\S)"), re.compile(r"\s+(?=\S)"))
_JOINERS = frozenset("\u200d\ufe0e\ufe0f\u20e3")
_FLAG_LETTERS = re.compile("[\U0001f1e6-\U0001f1ff]")
_FULL_ENOUGH = 0.5
"""Splits at a line rather than at a word only if the message is at least this full."""


class Size(NamedTuple):
    """The size of a block, or a platform's limit: characters, as the platform counts them, and formatted ranges."""

    length: int
    ranges: int = 0

    def fits(self, limit: Size) -> bool:
        return self.length <= limit.length and self.ranges <= limit.ranges

    def then(self, other: Size) -> Size:
        """Both, with an empty line between them."""
        return Size(self.length + len(BETWEEN) + other.length, self.ranges + other.ranges)


BETWEEN = "\n\n"
Measure: TypeAlias = Callable[[Block], Size]


def split(blocks: Sequence[Block], measure: Measure, limit: Size) -> Iterator[list[Block]]:
    """The blocks in lists that each fit the limit, in order."""
    piece: list[Block] = []
    taken = Size(0)
    for block in blocks:
        for part in cut(block, measure, limit):
            size = measure(part)
            if piece and taken.then(size).fits(limit):
                piece.append(part)
                taken = taken.then(size)
                continue
            if piece:
                yield piece
            piece, taken = [part], size
    if piece:
        yield piece


def cut(block: Block, measure: Measure, limit: Size) -> Iterator[Block]:
    """One block as blocks that each fit the limit."""
    rest = block
    # No platform counts fewer characters than len(), so text that is far too long need not be measured.
    while len(rest.text) > limit.length or not measure(rest).fits(limit):
        end = _split_position(rest.text, _longest(rest, measure, limit), is_code=rest.kind == "code")
        head, tail = _split_at(rest, end)
        if head.text.strip():
            yield head
        if not tail.text.strip():
            return
        rest = tail
    yield rest


def _longest(block: Block, measure: Measure, limit: Size) -> int:
    """How many characters from the start fit; at least one, so that the loop ends."""
    window = _slice(block, 0, limit.length)
    if limit.ranges:
        # Of two adjacent spans at least one is formatted, so more spans than this cannot fit.
        window = window._replace(spans=window.spans[: 2 * limit.ranges + 2])
    low, high = 1, len(window.text)
    while low < high:
        middle = (low + high + 1) // 2
        if measure(_slice(window, 0, middle)).fits(limit):
            low = middle
        else:
            high = middle - 1
    return low


def _split_position(text: str, longest: int, *, is_code: bool) -> int:
    # One character more, to see a break directly after the longest part.
    window = text[: longest + 1]
    for order, pattern in enumerate(_ENDS):
        if is_code and order == 1:
            continue
        found = [match.start() for match in pattern.finditer(window)]
        if found and found[-1] > 0 and (order == len(_ENDS) - 1 or found[-1] >= longest * _FULL_ENOUGH):
            return found[-1]
    end = longest
    while end > 1 and end < len(text) and _splits_grapheme(text, end):
        end -= 1
    return end if end > 1 else longest


def _splits_grapheme(text: str, at: int) -> bool:
    here, before = text[at], text[at - 1]
    if here in _JOINERS or before == "\u200d" or unicodedata.combining(here):
        return True
    # Skin tones follow their emoji; the letters of a flag come in pairs.
    return "\U0001f3fb" <= here <= "\U0001f3ff" or (bool(_FLAG_LETTERS.match(here)) and _splits_flag(text, at))


def _splits_flag(text: str, at: int) -> bool:
    start = at
    while start > 0 and _FLAG_LETTERS.match(text[start - 1]):
        start -= 1
    return (at - start) % 2 == 1


def _split_at(block: Block, end: int) -> tuple[Block, Block]:
    text = block.text
    start = end
    if block.kind == "code":
        # Indentation of the next line is part of the code.
        start += text[end : end + 1] == "\n"
    else:
        start += len(text[end:]) - len(text[end:].lstrip())
    return _slice(block, 0, end), _slice(block, start, len(text))


def _slice(block: Block, start: int, end: int) -> Block:
    spans: list[Span] = []
    at = 0
    for span in block.spans:
        if at >= end:
            break
        if at + len(span.text) > start:
            spans.append(span._replace(text=span.text[max(start - at, 0) : end - at]))
        at += len(span.text)
    return block._replace(spans=tuple(merge_spans(spans)))
