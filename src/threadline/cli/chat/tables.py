"""Tables of Markdown for a terminal, drawn by rich within the width."""

from __future__ import annotations

import io
import re

_RULE = re.compile(r"\|?\s*:?-{1,}:?\s*(\|\s*:?-{1,}:?\s*)*\|?\s*")
_MARKS = re.compile(r"\*\*|~~|`")


def draw_table(lines: list[str], width: int) -> str:
    """The lines as a table; unchanged if they are none, or if rich is not installed."""
    plain = "".join(f"{line}\n" for line in lines)
    if len(lines) < 2 or not _RULE.fullmatch(lines[1].strip()):
        return plain
    try:
        from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - an extra, and slow to import
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
    except ModuleNotFoundError:
        return plain
    heads = _cells(lines[0])
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    for line in lines[2:]:
        row = _cells(line)[: len(heads)]
        table.add_row(*row, *[""] * (len(heads) - len(row)))
    out = io.StringIO()
    Console(file=out, width=max(width, 20), color_system=None, markup=False, highlight=False).print(table)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines() if line.strip())


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [_MARKS.sub("", cell.replace("\\|", "|").strip()) for cell in re.split(r"(?<!\\)\|", inner)]


class TableFilter:
    """Passes text on as it is written and draws the tables in it. The rest of a table's row is held back, and so is the
    table until it ends."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._line = ""
        self._rows: list[str] = []
        self._is_line_passed = False
        self._in_fence = False

    def feed(self, text: str) -> str:
        return "".join(map(self._add, text.splitlines(keepends=True)))

    def flush(self) -> str:
        line, self._line, self._is_line_passed = self._line, "", False
        if self._is_row(line):
            self._rows.append(line)
            line = ""
        return self._end_table() + line

    def _add(self, piece: str) -> str:
        is_complete = piece.endswith("\n")
        if self._is_line_passed:
            self._is_line_passed = not is_complete
            return piece
        self._line += piece
        start = self._line.lstrip()
        if not is_complete and (not start or start.startswith("|") or "```".startswith(start[:3])):
            return ""
        line, self._line = self._line, ""
        if is_complete and self._is_row(line):
            self._rows.append(line.rstrip("\n"))
            return ""
        if start.startswith("```"):
            self._in_fence = not self._in_fence
        self._is_line_passed = not is_complete
        return self._end_table() + line

    def _is_row(self, line: str) -> bool:
        return not self._in_fence and line.lstrip().startswith("|")

    def _end_table(self) -> str:
        rows, self._rows = self._rows, []
        return draw_table(rows, self._width) if rows else ""
