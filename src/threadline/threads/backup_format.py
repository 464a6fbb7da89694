"""The file format of backups: rows of every tenant in the form of `core.portable`, the same for both databases.

A file is the magic line, a header and frames, each with its length in four bytes. The header is JSON and never
encrypted: it names the format's version, the program and the columns of every table. A frame holds compressed rows of
one table of one tenant; with a key it is encrypted, and bound to this backup and its position, so that frames cannot be
exchanged. The last frame has the number and tally of the rows of every table. The SHA-256 of everything before ends the
file: without both it is not complete.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import msgspec

from threadline.core.errors import InvalidInput, SettingsInvalid
from threadline.core.portable import ADDED_COLUMNS, TABLES, Row, Tally
from threadline.ports import Cipher
from threadline.version import __version__

FORMAT = 1
KEY_ID = "backup"
_MAGIC = b"threadline backup\n"
_LENGTH_BYTES = 4
_MAX_HEADER_BYTES = 1 << 20
# Against damaged lengths and compressed data that grows without end. A frame is about 4 MB, more only for one long row.
_MAX_FRAME_BYTES = 1 << 30
FRAME_BYTES = 4 << 20
_COMPRESSION_LEVEL = 1


class Header(msgspec.Struct, frozen=True):
    format: int
    program: str
    id: str
    is_encrypted: bool
    tables: dict[str, list[str]]


class RowFrame(msgspec.Struct, frozen=True, tag="rows", array_like=True):
    tenant_id: str
    table: str
    rows: list[list[object]]
    is_repeated: bool
    """Whether the rows are in the file a second time, for the second pass over a table."""


class LastFrame(msgspec.Struct, frozen=True, tag="end", array_like=True):
    tallies: dict[str, dict[str, tuple[int, bytes]]]
    """By tenant and table: the number of rows and the sum of their hashes."""


_decoder = msgspec.msgpack.Decoder(RowFrame | LastFrame)
Tallies = dict[str, dict[str, Tally]]


class Rows(NamedTuple):
    """Rows of one table of one tenant, with the columns of this program."""

    tenant_id: str
    table: str
    rows: list[Row]


def count_rows(tallies: Tallies) -> dict[str, int]:
    """The number of rows of each table, over all tenants."""
    return {table: sum(of.get(table, Tally()).rows for of in tallies.values()) for table in TABLES}


def add_to(tallies: Tallies, tenant_id: str, table: str, rows: Sequence[Row]) -> None:
    of = tallies.setdefault(tenant_id, {})
    of[table] = of.get(table, Tally()).plus(rows)


class BackupWriter:
    def __init__(self, file: BinaryIO, cipher: Cipher | None) -> None:
        self._file = file
        self._cipher = cipher
        self._hash = hashlib.sha256()
        self._frames = 0
        self.tallies: Tallies = {}
        self.rows = 0
        columns = {table: list(names) for table, names in TABLES.items()}
        self._header = Header(FORMAT, __version__, secrets.token_hex(16), cipher is not None, columns)
        encoded = msgspec.json.encode(self._header)
        self._write(_MAGIC + len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded)

    def write_rows(self, tenant_id: str, table: str, rows: Sequence[Row], *, is_repeated: bool) -> None:
        for start, end in _slices(rows):
            self._write_frame(RowFrame(tenant_id, table, [list(row) for row in rows[start:end]], is_repeated))
        self.rows += len(rows)
        if not is_repeated:
            add_to(self.tallies, tenant_id, table, rows)

    def finish(self) -> None:
        tallies = {
            tenant_id: {table: (tally.rows, tally.total.to_bytes(16, "big")) for table, tally in of.items()}
            for tenant_id, of in self.tallies.items()
        }
        self._write_frame(LastFrame(tallies))
        self._file.write(self._hash.digest())

    def _write_frame(self, frame: RowFrame | LastFrame) -> None:
        content = zlib.compress(msgspec.msgpack.encode(frame), _COMPRESSION_LEVEL)
        if self._cipher is not None:
            content = self._cipher.encrypt(content, (self._header.id, str(self._frames)))
        self._frames += 1
        self._write(len(content).to_bytes(_LENGTH_BYTES, "big") + content)

    def _write(self, content: bytes) -> None:
        self._hash.update(content)
        self._file.write(content)


def _slices(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """Ranges of about FRAME_BYTES. Only texts and bytes count: other values are small."""
    start = size = 0
    for at, row in enumerate(rows):
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if size >= FRAME_BYTES:
            yield start, at + 1
            start, size = at + 1, 0
    if start < len(rows):
        yield start, len(rows)


class BackupReader:
    """Reads the file from its beginning and checks it on the way. InvalidInput names what is wrong with it."""

    def __init__(self, file: BinaryIO, name: str, cipher: Cipher | None) -> None:
        self._file = file
        self._name = name
        self._cipher = cipher
        self._hash = hashlib.sha256()
        self._frames = 0
        self.header = self._read_header()
        self._columns = _match_columns(self.header, name)
        self.tallies: Tallies = {}
        """Of the rows read so far, with the columns of this program."""

    def _read_header(self) -> Header:
        if self._file.read(len(_MAGIC)) != _MAGIC:
            raise InvalidInput(f"{self._name} is not a backup made by `threadline backup`")
        self._hash.update(_MAGIC)
        encoded = self._read_block(_MAX_HEADER_BYTES)
        try:
            version = json.loads(encoded)["format"]
        except (ValueError, KeyError, TypeError) as exc:
            raise self._damaged() from exc
        if version != FORMAT:
            raise InvalidInput(
                f"{self._name} has backup format {version}, and this program reads format {FORMAT}: restore it with "
                "the version of threadline that made it"
            )
        try:
            header = msgspec.json.decode(encoded, type=Header)
        except msgspec.MsgspecError as exc:
            raise self._damaged() from exc
        if header.is_encrypted and self._cipher is None:
            raise InvalidInput(f"{self._name} is encrypted: give the file of its key with --key-file")
        return header

    def frames(self) -> Iterator[Rows]:
        """The rows in the order in which they have to be written. The end of the file is checked before this ends."""
        stored: Tallies = {}
        while True:
            frame = self._read_frame()
            if isinstance(frame, LastFrame):
                break
            columns = self._columns.get(frame.table)
            if columns is None or any(len(row) != columns.width for row in frame.rows):
                raise self._damaged()
            rows = [columns.arrange(row) for row in frame.rows]
            if not frame.is_repeated:
                add_to(stored, frame.tenant_id, frame.table, [tuple(row) for row in frame.rows])
                add_to(self.tallies, frame.tenant_id, frame.table, rows)
            yield Rows(frame.tenant_id, frame.table, rows)
        if self._file.read() != self._hash.digest() or stored != _tallies(frame):
            raise self._damaged()

    def _read_frame(self) -> RowFrame | LastFrame:
        content = self._read_block(_MAX_FRAME_BYTES)
        if self.header.is_encrypted and self._cipher is not None:
            try:
                content = self._cipher.decrypt(KEY_ID, content, (self.header.id, str(self._frames)))
            except SettingsInvalid as exc:
                raise InvalidInput(f"{self._name} is damaged, or was encrypted with another key") from exc
        self._frames += 1
        unpacker = zlib.decompressobj()
        try:
            packed = unpacker.decompress(content, _MAX_FRAME_BYTES)
            if not unpacker.eof:
                raise self._damaged()
            frame: RowFrame | LastFrame = _decoder.decode(packed)
        except (zlib.error, msgspec.MsgspecError) as exc:
            raise self._damaged() from exc
        return frame

    def _read_block(self, max_bytes: int) -> bytes:
        prefix = self._file.read(_LENGTH_BYTES)
        size = int.from_bytes(prefix, "big")
        if len(prefix) < _LENGTH_BYTES:
            raise InvalidInput(f"{self._name} is not complete: its end is missing")
        if size > max_bytes:
            raise self._damaged()
        block = self._file.read(size)
        if len(block) < size:
            raise InvalidInput(f"{self._name} is not complete: its end is missing")
        self._hash.update(prefix)
        self._hash.update(block)
        return block

    def _damaged(self) -> InvalidInput:
        return InvalidInput(f"{self._name} is damaged: take another backup")


class _Columns(NamedTuple):
    """Where the columns of this program are in a row of the file. Those that the file lacks have their default."""

    width: int
    positions: tuple[int | None, ...]
    defaults: tuple[object, ...]

    def arrange(self, row: list[object]) -> Row:
        return tuple(
            default if at is None else row[at] for at, default in zip(self.positions, self.defaults, strict=True)
        )


def _match_columns(header: Header, name: str) -> dict[str, _Columns]:
    """InvalidInput for a file that this program cannot restore without losing or inventing something."""
    return {table: _match_table(table, names, header, name) for table, names in header.tables.items()}


def _match_table(table: str, names: list[str], header: Header, name: str) -> _Columns:
    known = TABLES.get(table, ())
    unknown = [f"{table}.{column}" for column in names if column not in known]
    if unknown:
        raise InvalidInput(
            f"{name} was made by a newer threadline ({header.program}) and has {', '.join(unknown)}, which this one "
            "does not know: install that version"
        )
    missing = [column for column in known if column not in names and (table, column) not in ADDED_COLUMNS]
    if missing:
        raise InvalidInput(
            f"{name} was made by an older threadline ({header.program}) without {table}.{missing[0]}: restore it with "
            "that version, then upgrade and run `threadline migrate`"
        )
    positions = tuple(names.index(column) if column in names else None for column in known)
    return _Columns(len(names), positions, tuple(ADDED_COLUMNS.get((table, column)) for column in known))


def _tallies(frame: LastFrame) -> Tallies:
    return {
        tenant_id: {table: Tally(rows, int.from_bytes(total, "big")) for table, (rows, total) in of.items()}
        for tenant_id, of in frame.tallies.items()
    }
