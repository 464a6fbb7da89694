"""Markdown for a terminal, as it arrives: headings, emphasis, links, code, lists and tables are formatted.

A stream cannot wait for the end of a paragraph, so this is a small machine over characters that holds back only what
is still ambiguous: a marker at the end of what has arrived, or the first characters of a line. Without colours the
markers stay as they are; only tables are drawn, if there is a width.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from threadline.cli.chat.code_colours import highlighter
from threadline.cli.chat.tables import TableFilter, draw_table
from threadline.cli.chat.word_wrap import WordWrap

_BOLD, _CODE, _HEADING, _DIM, _RESET = "\x1b[1m", "\x1b[36m", "\x1b[1;34m", "\x1b[2m", "\x1b[0m"
_LINE_START = re.compile(
    r"(?P<indent>\s{0,8})(?:(?P<fence>```+)|(?P<heading>#{1,6}) |(?P<bullet>[-*+]) |(?P<quote>>) ?)"
)
_MAYBE_LINE_START = re.compile(r"\s{0,8}(?:`{0,2}|#{0,6}|[-*+]|>)?")
_LONGEST_SPAN = 300
_BEFORE_EMPHASIS = frozenset(" \n([\"'“—-")
_SPANS = (
    (re.compile(r"\*(?P<text>[^\s*](?:[^*\n]{0,280}[^\s*])?)\*(?!\w)"), "\x1b[3m"),
    (re.compile(r"~~(?P<text>[^~\n]{1,280})~~"), "\x1b[9m"),
    (re.compile(r"\[(?P<text>[^\]\n]{1,140})\]\((?P<url>[^\s)]{1,140})\)"), "\x1b[4m"),
)
"""Marked text that is printed as a whole, with the code before it."""


class MarkdownStream:
    """Feed it pieces of text; it gives back what to print."""

    def __init__(self, *, colours: bool, width: int | None = None) -> None:
        """`width` wraps words and draws tables; without it lines stay as they are."""
        self._colours = colours
        self._width = width
        self._wrap = None if width is None else WordWrap(width)
        self._tables = None if width is None or colours else TableFilter(width)
        self._table: list[str] = []
        self._held = ""
        self._at_line_start = True
        self._in_fence = False
        self._bold = self._code = self._heading = False
        self._last = " "
        """The character before a marker: within a word, as in 6*7, an asterisk is no emphasis."""
        self._highlight: Callable[[str], str] = str

    def feed(self, text: str) -> str:
        if self._tables is not None and self._wrap is not None:
            return self._wrap.feed(self._tables.feed(text))
        if not self._colours:
            return text
        self._held += text
        out = self._take(final=False)
        return out if self._wrap is None else self._wrap.feed(out)

    def flush(self) -> str:
        if self._tables is not None and self._wrap is not None:
            return self._wrap.feed(self._tables.flush()) + self._wrap.flush()
        if not self._colours:
            return ""
        rest = self._finish()
        return rest if self._wrap is None else self._wrap.feed(rest) + self._wrap.flush()

    def _finish(self) -> str:
        rest = self._take(final=True) + self._end_table()
        styled = self._bold or self._code or self._heading or self._in_fence
        self._bold = self._code = self._heading = self._in_fence = False
        self._at_line_start = True
        return rest + (_RESET if styled else "")

    def _take(self, *, final: bool) -> str:
        out: list[str] = []
        while self._held:
            piece = self._line_head(final) if self._at_line_start else self._inline(final)
            if piece is None:
                break
            out.append(piece)
        return "".join(out)

    def _line_head(self, final: bool) -> str | None:
        line, newline, _ = self._held.partition("\n")
        if not newline and not final and _MAYBE_LINE_START.fullmatch(line):
            return None
        if self._width is not None and not self._in_fence:
            if line.lstrip().startswith("|"):
                return self._add_row(line, newline, final)
            if self._table:
                return self._end_table()
        found = _LINE_START.match(line)
        if found and found["fence"]:
            return self._fence(line, newline, final)
        self._at_line_start = False
        if self._in_fence or not found:
            return ""
        self._held = self._held[found.end() :]
        if found["heading"]:
            self._heading = True
            return _HEADING
        if found["bullet"]:
            return f"{found['indent']}• "
        return f"{found['indent']}{_DIM}│{_RESET} "

    def _add_row(self, line: str, newline: str, final: bool) -> str | None:
        """Holds the rows of a table back until it ends: the widths of its columns depend on all of them."""
        if not newline and not final:
            return None
        self._held = self._held[len(line) + len(newline) :]
        self._table.append(line)
        return ""

    def _end_table(self) -> str:
        lines, self._table = self._table, []
        return draw_table(lines, self._width) if lines and self._width is not None else ""

    def _fence(self, line: str, newline: str, final: bool) -> str | None:
        if not newline and not final:
            return None
        self._held = self._held[len(line) + len(newline) :]
        self._in_fence = not self._in_fence
        self._highlight = highlighter(line.strip().strip("`").strip()) if self._in_fence else str
        if self._in_fence and self._highlight is not str:
            return f"{_DIM}{line}{_RESET}{newline}"
        return f"{_DIM}{line}{_RESET}{newline}" + (_CODE if self._in_fence else "")

    def _inline(self, final: bool) -> str | None:
        if self._in_fence:
            return self._code_line(final)
        for index, char in enumerate(self._held):
            if char == "\n":
                return self._end_line(index)
            if char not in "*`~[":
                continue
            if index:
                return self._plain(index)
            return self._marker(char, final)
        return self._plain(len(self._held))

    def _code_line(self, final: bool) -> str | None:
        """A whole line of a code block: highlighting needs all of it."""
        line, newline, rest = self._held.partition("\n")
        if not newline and not final:
            return None
        self._held, self._at_line_start = rest, bool(newline)
        return self._highlight(line) + newline

    def _span(self, final: bool) -> str | None:
        """Emphasis, text that is struck out, or a link; a marker that begins none of them is plain text."""
        for pattern, start in _SPANS:
            found = pattern.match(self._held)
            if found and (self._held[0] != "*" or self._last in _BEFORE_EMPHASIS):
                self._plain(found.end())
                address = f" ({found['url']})" if "url" in pattern.groupindex else ""
                return f"{start}{found['text']}{self._back()}{address}"
        # The end of the span may still arrive.
        if not final and "\n" not in self._held and len(self._held) < _LONGEST_SPAN:
            return None
        return self._plain(1)

    def _plain(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        self._last = text[-1:] or self._last
        return text

    def _end_line(self, index: int) -> str:
        text = self._plain(index + 1)
        self._last = " "
        self._at_line_start = True
        if self._heading or self._bold or self._code:
            self._heading = self._bold = self._code = False
            return text[:-1] + _RESET + "\n"
        return text

    def _marker(self, char: str, final: bool) -> str | None:
        if char == "`":
            self._held = self._held[1:]
            self._code = not self._code
            return _CODE if self._code else self._back()
        if self._held == "*" and not final:
            return None
        if self._code:
            return self._plain(1)
        if not self._held.startswith("**"):
            return self._span(final)
        self._held = self._held[2:]
        self._bold = not self._bold
        return _BOLD if self._bold else self._back()

    def _back(self) -> str:
        return _RESET + (_HEADING if self._heading else "") + (_BOLD if self._bold else "")
