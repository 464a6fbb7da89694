"""What the terminal prints: sentences, tables, JSON, progress."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from threadline.cli.printable import JOINERS, shown


def print_json(value: Any) -> None:
    print(json.dumps(_plain(value), ensure_ascii=False, indent=2))


def _plain(value: Any) -> Any:
    """With names in the spelling of the HTTP API; keys that users chose stay as they are."""
    match value:
        case msgspec.Struct():
            return {_camel(name): _plain(getattr(value, name)) for name in value.__struct_fields__}
        case tuple() if hasattr(value, "_asdict"):
            return {_camel(name): _plain(each) for name, each in value._asdict().items()}
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return msgspec.to_builtins(value)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


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


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


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
    return sum(0 if unicodedata.combining(c) or c in JOINERS else 2 if _is_wide(c) else 1 for c in text)


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in ("W", "F")
