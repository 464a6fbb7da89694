"""Prints the results of commands: a sentence, a table or JSON on standard output, progress on standard error."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from threadline.cli.printable import JOINERS, printable
from threadline.core.errors import InvalidInput

# JSON escapes the control characters below U+0020 itself; terminals also execute these.
_CONTROL = re.compile(r"[\x7f-\x9f]")
_CONTROL_UTF8 = re.compile(rb"\x7f|\xc2[\x80-\x9f]")


def print_json(value: Any) -> None:
    text = json.dumps(to_json(value), ensure_ascii=False, indent=2)
    print(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def to_json(value: Any) -> Any:
    """Field names become camelCase, as in the HTTP API; keys of dictionaries are user data and stay unchanged."""
    match value:
        case msgspec.Struct():
            return {camel(name): to_json(getattr(value, name)) for name in value.__struct_fields__}
        case tuple() if hasattr(value, "_asdict"):
            return {camel(name): to_json(each) for name, each in value._asdict().items()}
        case dict():
            return {key: to_json(each) for key, each in value.items()}
        case list() | tuple():
            return [to_json(each) for each in value]
        case _:
            return msgspec.to_builtins(value)


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def report(args: argparse.Namespace, value: Any, sentence: str) -> None:
    """Prints what a command did: `value` with `--json`, otherwise the sentence."""
    if args.json:
        print_json(value)
    else:
        print(sentence)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    """Prints aligned columns, or `empty` if there are no rows; it names the command to run next."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not cells:
        print(empty)
        return
    widths = [max(display_width(row[i]) for row in [list(headings), *cells]) for i in range(len(headings))]
    for row in [list(headings), *cells]:
        padded = [cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(padded).rstrip())


def pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_time(moment: dt.datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


class _TerminalOutput:
    """Standard output on a terminal, for JSON: control characters are written as JSON escapes, which mean the same."""

    def write(self, piece: bytes) -> int:
        return sys.stdout.buffer.write(_CONTROL_UTF8.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), piece))


class BytesOutput(Protocol):
    def write(self, piece: bytes, /) -> int: ...


@contextlib.contextmanager
def output_file(path: str | None) -> Iterator[BytesOutput]:
    if path is None:
        yield _TerminalOutput() if sys.stdout.isatty() else sys.stdout.buffer
        return
    try:
        with Path(path).open("wb") as file:
            yield file
    except OSError as exc:
        raise InvalidInput(f"cannot write {path}: {exc.strerror}") from exc


class Progress:
    """A counter on standard error, printed only if that is a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._is_terminal = sys.stderr.isatty()
        self._has_printed = False

    def __call__(self, done: int, total: int | None = None) -> None:
        if not self._is_terminal:
            return
        self._has_printed = True
        share = f" of {total:,} ({done * 100 // max(total, 1)} %)" if total is not None else ""
        print(f"\r{self._label}: {done:,}{share}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._has_printed:
            print(file=sys.stderr)


def display_width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) or c in JOINERS else 2 if _is_wide(c) else 1 for c in text)


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in ("W", "F")


def cut(text: str, width: int) -> str:
    """The text in at most `width` cells, with `…` where it was cut."""
    if display_width(text) <= width:
        return text
    kept = ""
    for char in text:
        if display_width(kept + char) > width - 1:
            break
        kept += char
    return unicodedata.normalize("NFC", kept) + "…"
