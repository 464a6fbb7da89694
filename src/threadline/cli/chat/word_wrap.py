"""Wraps text for a terminal while it is written: words are moved to the next line instead of being cut at the edge.

Only the word that is still being written is held back. Colour codes take no room. A wrapped line of a list continues
below its text. Words that are longer than a line are cut.
"""

from __future__ import annotations

import re

from threadline.cli.output import display_width

_PIECE = re.compile(r"\n|[ \t]+|(?:\x1b\[[0-9;]*m|[^\s\x1b])+")
_CODE = re.compile(r"\x1b\[[0-9;]*m")
_LEAST = 20


class WordWrap:
    def __init__(self, width: int, indent: int = 0) -> None:
        """`indent` is that of the lines into which the first one is wrapped."""
        self._width = max(width, _LEAST)
        self._held = ""
        self._column = 0
        self._indent = min(indent, self._width // 2)
        self._space = ""

    def feed(self, text: str) -> str:
        self._held += text
        # The last piece may continue; a line end cannot.
        pieces = _PIECE.findall(self._held)
        if pieces and not self._held.endswith("\n"):
            self._held = pieces.pop()
        else:
            self._held = ""
        return "".join(map(self._place, pieces))

    def flush(self) -> str:
        held, self._held = self._held, ""
        out = "".join(map(self._place, _PIECE.findall(held)))
        self._column, self._indent, self._space = 0, 0, ""
        return out

    def _place(self, piece: str) -> str:
        if piece == "\n":
            self._column, self._indent, self._space = 0, 0, ""
            return piece
        if piece.isspace():
            self._space += piece.replace("\t", "    ")
            if self._column == 0:
                self._indent = min(len(self._space), self._width // 2)
            return ""
        width = display_width(_CODE.sub("", piece))
        space, self._space = self._space, ""
        is_marker = self._column == 0 and _CODE.sub("", piece) in ("•", "│", "-", "*")
        if self._column and self._column + len(space) + width > self._width:
            self._column = self._indent
            space = "\n" + " " * self._indent
            out = space + self._cut(piece)
        else:
            self._column += len(space)
            out = space + self._cut(piece)
        if is_marker:
            self._indent = min(self._column + 1, self._width // 2)
        return out

    def _cut(self, piece: str) -> str:
        """The word, with line ends where it is longer than what is left of the line."""
        out = ""
        for part in re.split(r"(\x1b\[[0-9;]*m)", piece):
            if _CODE.fullmatch(part):
                out += part
                continue
            for char in part:
                wide = display_width(char)
                if self._column + wide > self._width:
                    out, self._column = out + "\n", 0
                out += char
                self._column += wide
        return out


def wrap_words(text: str, width: int | None, indent: int = 0) -> str:
    """A whole text, wrapped; as it is if `width` is None."""
    if width is None:
        return text
    wrap = WordWrap(width, indent)
    return wrap.feed(text) + wrap.flush()


def shorten_lines(text: str, most: int) -> str:
    lines = text.splitlines()
    return text if len(lines) <= most else "\n".join([*lines[:most], f"… {len(lines) - most} more lines"])
