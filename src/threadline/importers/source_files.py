"""Files of other programs, read in bounded memory: lines, the items of a large JSON array, folders, zip and zstd.

Everything about a file may be hostile. A fault is InvalidInput; the reader of a source adds the file's name.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import stat
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

from threadline.core import jsontext
from threadline.core.errors import InvalidInput, LimitExceeded
from threadline.core.sanitize import sanitize_text

MOST_LINE_BYTES = 64 << 20
MOST_ITEM_BYTES = 128 << 20
MOST_FILE_BYTES = 1 << 30
"""Of one session, which is read as a whole, and of what a compressed file may become."""
_MOST_RATIO = 200
_BLOCK = 1 << 20


class Line(NamedTuple):
    number: int
    value: dict[str, Any]


@contextlib.contextmanager
def open_source(path: Path) -> Iterator[IO[bytes]]:
    """A regular file. Other kinds may never end, or do something when they are read."""
    try:
        # Not blocking: opening a pipe without a writer would wait for ever.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        raise InvalidInput(f"cannot be read: {exc.strerror}") from exc
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InvalidInput("must be a regular file or a folder")
        yield file


@contextlib.contextmanager
def open_maybe_zstd(path: Path) -> Iterator[IO[bytes]]:
    with open_source(path) as file:
        if path.suffix not in (".zst", ".zstd"):
            yield file
            return
        try:
            zstd = import_module("zstandard")
        except ImportError:
            raise InvalidInput("is packed: run `pip install zstandard`, or unpack it with `zstd -d`") from None
        try:
            with zstd.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
                file, read_across_frames=True
            ) as unpacked:
                yield unpacked
        except zstd.ZstdError as exc:
            raise InvalidInput(f"is not valid zstd: {exc}") from exc


def read_lines(file: IO[bytes]) -> Iterator[Line]:
    """The JSON objects of a file, one a line. A last line without its end is left out: it is being written."""
    buffer, number, total = b"", 0, 0
    while block := file.read(_BLOCK):
        total += len(block)
        if total > MOST_FILE_BYTES:
            raise LimitExceeded("bytes of a session", MOST_FILE_BYTES, total)
        *whole, buffer = (buffer + block).split(b"\n") if b"\n" in block else (buffer + block,)
        for raw in whole:
            number += 1
            if raw.strip():
                yield Line(number, parse_object(raw, f"line {number}"))
        if len(buffer) > MOST_LINE_BYTES:
            raise LimitExceeded(f"bytes of line {number + 1}", MOST_LINE_BYTES, len(buffer))
    if buffer.strip():
        with contextlib.suppress(InvalidInput):
            yield Line(number + 1, parse_object(buffer, f"line {number + 1}"))


def parse_object(raw: bytes, what: str) -> dict[str, Any]:
    value = parse_json(raw, what)
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be a JSON object, got {jsontext.type_of(value)}")
    return value


def parse_json(raw: bytes, what: str) -> Any:
    """Like `jsontext.parse`, but characters that no database stores are replaced, because tools print them."""
    jsontext.check_depth(raw, what)
    try:
        value = json.loads(raw.decode(), parse_constant=_refuse_constant)
        return _clean(value) if b"\\u" in raw else value
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"{what} must be UTF-8, got byte {raw[exc.start]:#04x} at {exc.start}") from None
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"{what} must be JSON: {exc}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _clean(value: Any) -> Any:
    match value:
        case str():
            return sanitize_text(value)
        case dict():
            return {sanitize_text(key): _clean(each) for key, each in value.items()}
        case list():
            return [_clean(each) for each in value]
    return value


def read_items(file: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """The items of a JSON array, one after the other, with their numbers; a single value that is no array is item 0."""
    text = _Text(file)
    text.skip(" \t\r\n\ufeff")
    if text.peek() != "[":
        yield 0, text.value("the file")
        return
    text.advance()
    number = 0
    while True:
        text.skip(" \t\r\n,")
        if text.peek() in ("]", ""):
            if text.peek() == "":
                raise InvalidInput(f"ends after item {number}, inside the array")
            return
        yield number, text.value(f"item {number}")
        number += 1


class _Text:
    """A text of which only the part that is being read is in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder(parse_constant=_refuse_constant)
        self._text, self._at, self._is_over = "", 0, False

    def _more(self, size: int = _BLOCK) -> bool:
        block = self._file.read(size)
        self._is_over = not block
        try:
            self._text = self._text[self._at :] + self._decoder.decode(block, final=not block)
        except UnicodeDecodeError as exc:
            raise InvalidInput(f"must be UTF-8: {exc.reason}") from None
        self._at = 0
        return not self._is_over

    def peek(self) -> str:
        while self._at >= len(self._text):
            if not self._more():
                return ""
        return self._text[self._at]

    def advance(self) -> None:
        self._at += 1

    def skip(self, characters: str) -> None:
        while (found := self.peek()) and found in characters:
            self._at += 1

    def value(self, what: str) -> Any:
        size = _BLOCK
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
                # A number at the end of what was read may be incomplete.
                if end < len(self._text) or self._is_over:
                    raw = self._text[self._at : end]
                    jsontext.check_depth(raw.encode("utf-8", "surrogatepass"), what)
                    self._at = end
                    return _clean(value) if "\\u" in raw else value
                fault: Exception = InvalidInput("ends too early")
            except (ValueError, RecursionError) as exc:
                fault = exc
            if self._is_over or isinstance(fault, RecursionError):
                raise InvalidInput(f"{what} must be JSON: {fault}") from None
            if len(self._text) - self._at > MOST_ITEM_BYTES:
                raise LimitExceeded(f"characters of {what}", MOST_ITEM_BYTES, len(self._text) - self._at)
            # Doubled each time, so that a long item is not parsed again too often.
            self._more(size)
            size = max(size, len(self._text) - self._at)


@contextlib.contextmanager
def open_in_zip(path: Path, name: str) -> Iterator[IO[bytes]]:
    with open_source(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                found = archive.getinfo(name)
                if found.file_size > _BLOCK * 64 and found.file_size > _MOST_RATIO * max(found.compress_size, 1):
                    raise InvalidInput(
                        f"{name} would be {found.file_size:,} bytes: more than a real export can be packed"
                    )
                with archive.open(found) as unpacked:
                    yield unpacked
        except (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError, EOFError) as exc:
            raise InvalidInput(f"is not a zip file that can be read: {exc}") from exc


def names_in_zip(path: Path) -> list[str]:
    with open_source(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return archive.namelist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as exc:
            raise InvalidInput(f"is not a zip file that can be read: {exc}") from exc


def files_below(folder: Path) -> Iterator[Path]:
    """Every regular file, in order of its name. Links are not followed: they may lead anywhere, also in circles."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path
