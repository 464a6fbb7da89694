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
