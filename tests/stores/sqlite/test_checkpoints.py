"""The write-ahead log is moved into the file while commits continue, and restarted after all of it was moved."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from threadline.stores.sqlite.connection import connect, locate
from threadline.stores.sqlite.writer import Checkpoints


@pytest.fixture
def connection(path: Path) -> Iterator[apsw.Connection]:
    connection = connect(locate(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE notes (note BLOB)")
    yield connection
    connection.close()


def _write(connection: apsw.Connection, megabytes: int) -> None:
    connection.execute("INSERT INTO notes VALUES (zeroblob(?))", (megabytes * 2**20,))


def _log_bytes(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size


def test_a_long_log_is_checkpointed_and_restarted(path: Path, connection: apsw.Connection) -> None:
    moved = threading.Event()
    checkpoints = Checkpoints(locate(path), moved.set)
    checkpoints.attach(connection)
    _write(connection, 1)
    assert not moved.is_set()
    _write(connection, 9)
    assert moved.wait(30)
    checkpoints.finish(connection)
    long = _log_bytes(path)
    _write(connection, 1)
    assert _log_bytes(path) == long
    checkpoints.close()


def test_a_reader_that_holds_on_is_not_asked_with_every_commit(path: Path, connection: apsw.Connection) -> None:
    moved = threading.Event()
    checkpoints = Checkpoints(locate(path), moved.set)
    checkpoints.attach(connection)
    reader = connect(locate(path), read_only=True)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM notes").fetchall()
    _write(connection, 10)
    assert moved.wait(30)
    checkpoints.finish(connection)
    moved.clear()
    _write(connection, 1)
    reader.execute("COMMIT")
    _write(connection, 10)
    assert moved.wait(30)
    checkpoints.finish(connection)
    checkpoints.close()
    reader.close()
