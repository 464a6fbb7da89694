"""Long pasted texts in a line that is typed: shown as a short mark, and sent whole.

A mark is a text of its own, such as `[Pasted text 1: 4,000 lines]`, so that the line can be edited and found in the
history. Only marks that this chat made are replaced.
"""

from __future__ import annotations

import re

_LINES = 10
_CHARACTERS = 1_000
"""Shorter texts are shown as they are: they fit on a screen and can be corrected."""


class PastedTexts:
    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._marks: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """The mark for a long text; a short one as it is. Equal texts have one mark."""
        lines = text.count("\n") + 1
        if lines <= _LINES and len(text) <= _CHARACTERS:
            return text
        if text not in self._marks:
            size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
            mark = f"[Pasted text {len(self._texts) + 1}: {size}]"
            self._marks[text] = mark
            self._texts[mark] = text
        return self._marks[text]

    def unfold(self, line: str) -> str:
        """The line with every text in the place of its mark."""
        if not self._texts:
            return line
        # In one pass: a pasted text can contain what looks like a mark.
        marks = "|".join(map(re.escape, self._texts))
        return re.sub(marks, lambda found: self._texts[found[0]], line)

    def mark_before(self, text: str) -> int:
        """How long the mark at the end of the text is, 0 if it does not end with one."""
        return next((len(mark) for mark in self._texts if text.endswith(mark)), 0)
