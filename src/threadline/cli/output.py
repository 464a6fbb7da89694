"""What the terminal prints: tables, JSON, progress, and texts made safe to show.

What a model or a stranger wrote may hold control sequences that move the cursor, change the title or fill the
clipboard. `shown` turns every one into visible text; everything printed for a person passes through it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"
_LONGEST_RUN_OF_MARKS = 8


def shown(text: str, *, multiline: bool = False) -> str:
    """The text with nothing in it that a terminal would obey, and no more marks on a letter than a line can hold."""
    out: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) else 0
        if marks > _LONGEST_RUN_OF_MARKS:
            continue
        if (multiline and char in "\n\t") or char in _JOINERS or unicodedata.category(char) not in _HIDDEN:
            out.append(char)
        else:
            out.append(f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")
    return "".join(out)


def print_json(value: Any) -> None:
    print(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=2))


def say(args: argparse.Namespace, value: Any, sentence: str) -> None:
    """What a command did: one sentence, or the value where `--json` was asked for."""
    if args.json:
        print_json(value)
    else:
        print(sentence)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    """Columns as wide as they need to be, the last one cut at the terminal's edge. `empty` says what to do next."""
    cells = [[shown(cell) for cell in row] for row in rows]
    if not cells:
        print(empty)
        return
    widths = [max(_width(row[i]) for row in [list(headings), *cells]) for i in range(len(headings))]
    for row in [list(headings), *cells]:
        padded = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(padded).rstrip())


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def when(moment: dt.datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


class Progress:
    """A line on standard error that counts up, only where someone watches."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._watched = sys.stderr.isatty()
        self._shown = False

    def __call__(self, done: int, total: int | None = None) -> None:
        if not self._watched:
            return
        self._shown = True
        share = f" of {total:,} ({done * 100 // max(total, 1)} %)" if total is not None else ""
        print(f"\r{self._what}: {done:,}{share}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._shown:
            print(file=sys.stderr)


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) or c in _JOINERS else 2 if _is_wide(c) else 1 for c in text)


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in ("W", "F")
