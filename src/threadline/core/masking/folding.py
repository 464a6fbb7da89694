"""Folding: the view of a text in which a secret has one spelling, with the way back to the text.

Invisible characters are taken out, percent-encoding is decoded (also what was encoded several times), and backslash
escapes are undone to any depth, so that a view of a JSON string is the view of the text it holds. An escaped quote
becomes a mark of its own, because it may be a quote or may be content. Rules look at views; what they find is cut
from the text itself. Everything here is UTF-8 bytes; rules know ASCII only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

ESCAPED_QUOTE = b"\x1e"
ZERO_WIDTH = (
    rb"(?:\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xb8[\x80-\x8f]|\xef\xbb\xbf|\xc2\xad|\xcd\x8f|\xd8\x9c"
    rb"|\xe1\xa0\x8e|\xe1\x85[\x9f\xa0]|\xe3\x85\xa4|\xef\xbe\xa0|\xf3\xa0[\x80-\x87][\x80-\xbf])"
)
_HEX = rb"[0-9A-Fa-f]"
# Only up to 64 invisible characters in a row are taken out, so that a stream never holds back more.
_TOKEN = rb'%(z)b{65}+|%(z)b{1,64}+|%%(?:25){0,3}%(h)b{2}|\\{1,32}+(?:u%(h)b{4}|[nrtbf"])?' % {
    b"z": ZERO_WIDTH,
    b"h": _HEX,
}
_UNFINISHED = rb"(?P<unfinished>(?:%(z)b{1,64}+|%%(?:25){0,3}%(h)b?|\\{1,32}+(?:u%(h)b{0,3})?)\Z)" % {
    b"z": ZERO_WIDTH,
    b"h": _HEX,
}
_WHOLE = re.compile(_TOKEN)
_BEGUN = re.compile(_UNFINISHED + b"|" + _TOKEN)
# One at a time, so that `re` skips to the bytes such a character can begin with.
_INVISIBLE = re.compile(ZERO_WIDTH)
_INVISIBLES = re.compile(ZERO_WIDTH + b"{1,64}+")
_FIRST_BYTES = [bytes((byte,)) for byte in b"\xe2\xef\xc2\xe3\xe1\xf3\xcd\xd8"]
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b'"': ESCAPED_QUOTE}


class Folded(NamedTuple):
    """`pieces` are (where in the view, where in the source, length in the source or 0 for as many as in the view)."""

    view: bytes
    pieces: tuple[list[int], list[int], list[int]] | None
    end: int
    """Where the folded source ends: before a token that is not complete yet."""

    def source_start(self, at: int) -> int:
        """Where in the source the byte of the view begins; the end of it for the end of the view."""
        if at >= len(self.view):
            return self.end
        if self.pieces is None:
            return at
        piece = bisect_right(self.pieces[0], at) - 1
        start = self.pieces[1][piece]
        return start if self.pieces[2][piece] else start + at - self.pieces[0][piece]

    def source_end(self, at: int) -> int:
        """Where in the source the byte of the view before this one ends."""
        if self.pieces is None or at == 0:
            return at
        piece = bisect_right(self.pieces[0], at - 1) - 1
        start, length = self.pieces[1][piece], self.pieces[2][piece]
        return start + (length or at - self.pieces[0][piece])


def fold(raw: bytes, *, complete: bool = True) -> Folded:
    """The view of a text; of one that goes on, up to the last token that is whole."""
    if not is_foldable(raw):
        return Folded(raw, None, len(raw))
    chunks: list[bytes] = []
    ats: list[int] = []
    starts: list[int] = []
    lengths: list[int] = []
    done = size = 0
    end = len(raw)
    for token in (_WHOLE if complete else _BEGUN).finditer(raw):
        first, last = token.span()
        if first > done:
            chunks.append(raw[done:first])
            ats.append(size)
            starts.append(done)
            lengths.append(0)
            size += first - done
        done = last
        if token.lastindex:
            done = end = first
            break
        if value := _meaning(token.group()):
            chunks.append(value)
            ats.append(size)
            starts.append(first)
            lengths.append(last - first)
            size += len(value)
    if end > done:
        chunks.append(raw[done:end])
        ats.append(size)
        starts.append(done)
        lengths.append(0)
    return Folded(b"".join(chunks), (ats, starts, lengths), end)


def view_of(raw: bytes) -> bytes:
    """The view alone, for those who need no way back."""
    return _WHOLE.sub(lambda token: _meaning(token.group()), raw) if is_foldable(raw) else raw


def is_foldable(raw: bytes) -> bool:
    return b"\\" in raw or b"%" in raw or _holds_invisible(raw)


def _holds_invisible(raw: bytes) -> bool:
    if raw.isascii():
        return False
    for byte in _FIRST_BYTES:
        if byte in raw:
            return _INVISIBLE.search(raw) is not None
    return False


@lru_cache(maxsize=2048)
def _meaning(token: bytes) -> bytes:
    """What a token stands for in the view."""
    if token.startswith(b"%"):
        return bytes((int(token[-2:], 16),))
    if not token.startswith(b"\\"):
        return b"" if _INVISIBLES.fullmatch(token) else b"\x00"
    escape = token.lstrip(b"\\")
    return _character(int(escape[1:], 16)) if escape.startswith(b"u") else _LETTERS.get(escape, b"")


def _character(point: int) -> bytes:
    if point == ord('"'):
        return ESCAPED_QUOTE
    found = chr(point).encode("utf-8", "surrogatepass")
    return b"" if found == b"\\" or _INVISIBLES.fullmatch(found) else found
