"""The normal form of a text, in which a secret has one spelling, with a mapping back to the text.

Invisible characters and combining marks are removed, percent-encoding is decoded (repeated encoding too), and backslash
escapes are undone to any depth, so that a JSON string and its value have the same normal form (`view`). An escaped
quote becomes a character of its own, because it may be a delimiter or content. Rules match views; matches are cut from
the text itself. Everything here is UTF-8 bytes; rules are ASCII only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache, lru_cache
from typing import NamedTuple

ESCAPED_QUOTE = b"\x1e"
_INVISIBLES = (
    rb"\xe2\x80[\x8b-\x8f\xaa-\xae]",
    rb"\xe2\x81[\xa0-\xaf]",
    rb"\xef\xb8[\x80-\x8f]",
    rb"\xef\xbb\xbf",
    rb"\xef\xbe\xa0",
    rb"\xc2\xad",
    # Combining marks: they change how a letter looks, and no rule contains one.
    rb"\xcc[\x80-\xbf]",
    rb"\xcd[\x80-\xaf]",
    rb"\xd8\x9c",
    rb"\xe1\xa0\x8e",
    rb"\xe1\x85[\x9f\xa0]",
    rb"\xe3\x85\xa4",
    rb"\xf3\xa0[\x80-\x87][\x80-\xbf]",
)
INVISIBLE = b"(?:" + b"|".join(_INVISIBLES) + b")"
_HEX = rb"[0-9A-Fa-f]"
# Each alternative starts with its own literal, because only then `re` skips to the relevant bytes.
_TOKENS = (
    *(one + INVISIBLE + b"{0,63}" for one in _INVISIBLES),
    b"%(?:25){0,3}" + _HEX + b"{2}",
    rb"\\\\{0,31}+(?:u" + _HEX + rb'{4}|[nrtbf"])?',
)
_UNFINISHED = rb"((?:%%(?:25){0,3}%(h)b?|\\{1,32}+(?:u%(h)b{0,3})?)\Z)" % {b"h": _HEX}
_IS_INVISIBLE = re.compile(b"|".join(_INVISIBLES))
_FIRST_BYTES = [bytes((byte,)) for byte in b"\xe2\xef\xc2\xe3\xe1\xf3\xcc\xcd\xd8"]
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b'"': ESCAPED_QUOTE}


class NormalForm(NamedTuple):
    """`pieces` are parallel lists: start in the view, start in the source, length in the source (0: as in the view)."""

    view: bytes
    pieces: tuple[list[int], list[int], list[int]] | None
    end: int
    """End of the normalized source: before a token that is not complete yet."""

    def source_start(self, at: int) -> int:
        """The start in the source of a byte of the view; for the end of the view, the end of the source."""
        if at >= len(self.view):
            return self.end
        if self.pieces is None:
            return at
        piece = bisect_right(self.pieces[0], at) - 1
        start = self.pieces[1][piece]
        return start if self.pieces[2][piece] else start + at - self.pieces[0][piece]

    def source_end(self, at: int) -> int:
        """The end in the source of the byte before this one."""
        if self.pieces is None or at == 0:
            return at
        piece = bisect_right(self.pieces[0], at - 1) - 1
        start, length = self.pieces[1][piece], self.pieces[2][piece]
        return start + (length or at - self.pieces[0][piece])


def normalize(raw: bytes, *, complete: bool = True) -> NormalForm:
    """The normal form of a text; with `complete=False`, only up to its last complete token."""
    if not _needs_normalizing(raw):
        return NormalForm(raw, None, len(raw))
    chunks: list[bytes] = []
    ats: list[int] = []
    starts: list[int] = []
    lengths: list[int] = []
    size = done = 0

    def keep(chunk: bytes, start: int, length: int) -> None:
        nonlocal size
        if chunk:
            chunks.append(chunk)
            ats.append(size)
            starts.append(start)
            lengths.append(length)
            size += len(chunk)

    end = len(raw)
    for token in _tokens(complete=complete).finditer(raw):
        first, last = token.span()
        if token.lastindex:
            end = first
            break
        keep(raw[done:first], done, 0)
        keep(_meaning(token.group()), first, last - first)
        done = last
    keep(raw[done:end], done, 0)
    return NormalForm(b"".join(chunks), (ats, starts, lengths), end)


def normal_bytes(raw: bytes) -> bytes:
    """The normal form without the mapping."""
    if not _needs_normalizing(raw):
        return raw
    return _tokens(complete=True).sub(lambda token: _meaning(token.group()), raw)


@cache
def _tokens(*, complete: bool) -> re.Pattern[bytes]:
    """Compiled with the first text that needs it, and not by every import of Threadline."""
    return re.compile(b"|".join(_TOKENS if complete else (_UNFINISHED, *_TOKENS)))


def _needs_normalizing(raw: bytes) -> bool:
    return b"\\" in raw or b"%" in raw or _has_invisible(raw)


def _has_invisible(raw: bytes) -> bool:
    if raw.isascii():
        return False
    for byte in _FIRST_BYTES:
        if byte in raw:
            return _IS_INVISIBLE.search(raw) is not None
    return False


@lru_cache(maxsize=2048)
def _meaning(token: bytes) -> bytes:
    """The bytes of a token in the normal form."""
    if token.startswith(b"%"):
        return bytes((int(token[-2:], 16),))
    escape = token.lstrip(b"\\")
    return _character(int(escape[1:], 16)) if escape.startswith(b"u") else _LETTERS.get(escape, b"")


def _character(point: int) -> bytes:
    if point == ord('"'):
        return ESCAPED_QUOTE
    # Escaped tag characters (invisible) are a surrogate pair: a first half that all share, and a second half.
    if point in (ord("\\"), 0xDB40) or 0xDC00 <= point <= 0xDFFF:
        return b""
    found = chr(point).encode("utf-8", "surrogatepass")
    return b"" if _IS_INVISIBLE.fullmatch(found) else found
