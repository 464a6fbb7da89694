"""One connection to one database file: how it is opened, what every connection is told, and whose errors these are.

Every pragma that SQLite keeps per connection is set here, so that no connection goes without it. A database in
memory lives in SQLite's `memdb` file system under a name of its own, so that the same several connections work on it.
Errors of the driver become errors of the house in `translated`, and nowhere else.
"""

from __future__ import annotations

import itertools
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from threadline.core.errors import (
    InvalidInput,
    InvalidText,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    ThreadlineError,
)

APPLICATION_ID = 0x54484C4E
"""'THLN', in the header of every file that is ours."""

PAGE_SIZE = 8192
"""A turn of 2.5 kB fills pages of this size to 1.15 times its bytes, pages of 4096 to 1.7 times; both are as fast."""

LOCK_SECONDS = 30.0
_SCRUB_SECONDS = 1.0
_STEPS = 100_000
_STATEMENTS_CACHED = 256
_CONTENTION_MILLISECONDS = 2.0


class Location(NamedTuple):
    """Where a database is. `name` is what SQLite is told, `shown` what people are."""

    name: str
    shown: str
    in_memory: bool


def locate(path: str | os.PathLike[str]) -> Location:
    text = os.fspath(path)
    if text == ":memory:":
        return Location(f"file:/threadline-{secrets.token_hex(8)}?vfs=memdb", text, True)
    return Location(str(Path(text).absolute()), text, False)


def connect(location: Location, *, read_only: bool = False, lock_seconds: float = LOCK_SECONDS) -> apsw.Connection:
    """An open connection with everything set that a connection must be told. The caller closes it."""
    access = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with translated(location.shown):
        connection = apsw.Connection(
            location.name,
            flags=access | apsw.SQLITE_OPEN_URI if location.in_memory else access,
            statementcachesize=_STATEMENTS_CACHED,
        )
        try:
            _configure(connection, lock_seconds)
        except BaseException:
            connection.close()
            raise
    return connection


def _configure(connection: apsw.Connection, lock_seconds: float) -> None:
    connection.set_busy_handler(RetryPolicy(lock_seconds))
    # Without this promise SQLite plans a statement anew whenever a parameter changes: 9 µs instead of 2 for a join.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    # Old text must not survive in free space until a purge comes for it; measured, this costs nothing.
    connection.execute("PRAGMA secure_delete = ON")
    # What an import made of the log need not stay that large.
    connection.execute("PRAGMA journal_size_limit = 67108864")
    # Savepoints copy pages aside; in a temporary file they would cost more than the work they guard.
    connection.execute("PRAGMA temp_store = MEMORY")


class RetryPolicy:
    """Waits for another process's lock, in short uneven steps so that processes do not keep meeting."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since = 0.0

    def __call__(self, attempt: int) -> bool:
        now = time.monotonic()
        if attempt == 0:
            self._since = now
        if now - self._since > self._seconds:
            return False
        time.sleep(random.uniform(0.1, _CONTENTION_MILLISECONDS) / 1000)  # noqa: S311 no secret
        return True


def scrub(
    connection: apsw.Connection, *, anew: bool, lock_seconds: float, progress: Callable[[int], None] | None = None
) -> None:
    """Leaves nothing of what was deleted in the write-ahead log, nor, if the file is written anew, in the parts of
    pages that SQLite does not use at present. It does not wait long for readers elsewhere that hold on to the log.
    `progress` is told how many thousand steps SQLite has made; how many there will be, nobody knows."""
    connection.set_busy_handler(RetryPolicy(_SCRUB_SECONDS))
    steps = itertools.count(_STEPS // 1_000, _STEPS // 1_000)

    def report() -> bool:
        if progress is not None:
            progress(next(steps))
        return False

    try:
        if anew:
            connection.set_progress_handler(report, _STEPS)
            connection.execute("VACUUM")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.set_progress_handler(None)
        connection.set_busy_handler(RetryPolicy(lock_seconds))


DRIVER_ERRORS = (apsw.Error, UnicodeEncodeError, OverflowError)
"""What the driver raises: SQLite's errors, and its own about values that SQLite cannot hold."""


@contextmanager
def translated(shown: str) -> Iterator[None]:
    try:
        yield
    except DRIVER_ERRORS as exc:
        raise translate(exc, shown) from exc


def translate(error: Exception, shown: str) -> ThreadlineError:
    """The error of the house for an error of the driver, with what to do next."""
    match error:
        case UnicodeEncodeError():
            return InvalidText("a text contains half a character (a lone surrogate)")
        case OverflowError():
            return InvalidInput("a number has more than 64 bits")
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{shown} is locked by another process: try again, or stop the one that holds it")
        case apsw.FullError():
            return StoreFull(f"no space left for {shown}: free some and repeat the call")
        case apsw.ReadOnlyError():
            return StoreReadOnly(f"{shown} cannot be written: change its permissions, or open it read-only")
        case apsw.NotADBError():
            return StoreCorrupt(f"{shown} is not a SQLite database")
        case apsw.CorruptError():
            return StoreCorrupt(f"{shown} is damaged ({error}): restore it from a backup")
        case apsw.CantOpenError():
            return StoreUnavailable(f"{shown} cannot be opened: does its folder exist, and may you write there?")
        case apsw.PermissionsError() | apsw.AuthError():
            return StoreUnavailable(f"{shown} may not be opened: check its permissions")
        case _:
            return StoreFailed(f"{shown}: {error}")
