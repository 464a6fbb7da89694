"""Markdown for a terminal, as it arrives: headings, emphasis, code and lists get colours, everything else stays.

A stream cannot wait for the end of a paragraph, so this is a small machine over characters that holds back only what
is still ambiguous: a marker at the end of what has arrived, or the first characters of a line. Without colours, text
passes unchanged.
"""

from __future__ import annotations

import re

_BOLD, _CODE, _HEADING, _DIM, _RESET = "\x1b[1m", "\x1b[36m", "\x1b[1;34m", "\x1b[2m", "\x1b[0m"
_LINE_START = re.compile(
    r"(?P<indent>\s{0,8})(?:(?P<fence>```+)|(?P<heading>#{1,6}) |(?P<bullet>[-*+]) |(?P<quote>>) ?)"
)
_MAYBE_LINE_START = re.compile(r"\s{0,8}(?:`{0,2}|#{0,6}|[-*+]|>)?")


class MarkdownStream:
    """Feed it pieces of text; it gives back what to print."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._held = ""
        self._at_line_start = True
        self._in_fence = False
        self._bold = self._code = self._heading = False

    def feed(self, text: str) -> str:
        if not self._colours:
            return text
        self._held += text
        return self._take(final=False)

    def flush(self) -> str:
        if not self._colours:
            return ""
        rest = self._take(final=True)
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

    def _fence(self, line: str, newline: str, final: bool) -> str | None:
        if not newline and not final:
            return None
        self._held = self._held[len(line) + len(newline) :]
        self._in_fence = not self._in_fence
        return f"{_DIM}{line}{_RESET}{newline}" + (_CODE if self._in_fence else "")

    def _inline(self, final: bool) -> str | None:
        for index, char in enumerate(self._held):
            if char == "\n":
                return self._end_line(index)
            if self._in_fence or char not in "*`":
                continue
            if index:
                return self._plain(index)
            return self._marker(char, final)
        return self._plain(len(self._held))

    def _plain(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        return text

    def _end_line(self, index: int) -> str:
        text = self._plain(index + 1)
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
        if self._code or not self._held.startswith("**"):
            return self._plain(1)
        self._held = self._held[2:]
        self._bold = not self._bold
        return _BOLD if self._bold else self._back()

    def _back(self) -> str:
        return _RESET + (_HEADING if self._heading else "") + (_BOLD if self._bold else "")
