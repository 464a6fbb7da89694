"""Connections to a database file: opening, settings, lock waits, and the translation of the driver's errors.

SQLite keeps most settings per connection, so every connection is configured here. A database in memory is a file with a
unique name in SQLite's `memdb` file system, so that several connections can share it. `translate` is the only place
where errors of the driver become errors of Threadline.
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
from urllib.parse import quote

import apsw

from threadline.core.errors import (
    InvalidInput,
    InvalidText,
    StoreBusy,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    ThreadlineError,
)

APPLICATION_ID = 0x54484C4E
"""'THLN', in the header of every Threadline file."""

PAGE_SIZE = 8192
"""A turn of 2.5 kB fills pages of this size to 1.15 times its bytes, pages of 4096 to 1.7 times; both are as fast."""

LOCK_SECONDS = 30.0
"""How long a call waits for another process that holds the write lock: longer than a large import's transaction."""
_SCRUB_SECONDS = 1.0
"""How long a scrub waits for readers of other processes. Short, because appends wait for the scrub."""
_PROGRESS_STEPS = 100_000
"""Steps of SQLite's virtual machine between two progress reports."""
_STATEMENTS_CACHED = 256
"""More than the number of queries, so that each is prepared once per connection."""
_LONGEST_PAUSE_MILLISECONDS = 2.0
"""Upper bound of one pause between two attempts to get a lock."""


class Location(NamedTuple):
    """Where a database is. `name` is SQLite's name for it, `shown` is the path as the user gave it. `immutable`: its
    folder cannot be written, so SQLite reads it without a log and without locks."""

    name: str
    shown: str
    in_memory: bool
    immutable: bool = False

    @property
    def uri(self) -> str | None:
        """Its name as a URI, where SQLite needs one."""
        if self.immutable:
            return f"file:{quote(self.name)}?immutable=1"
        return self.name if self.in_memory else None


def locate(path: str | os.PathLike[str]) -> Location:
    text = os.fspath(path)
    if text == ":memory:":
        return Location(f"file:/threadline-{secrets.token_hex(8)}?vfs=memdb", text, True)
    return Location(str(Path(text).absolute()), text, False)


def can_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def without_log(location: Location) -> Location:
    """The same file, to be read as it is. StoreReadOnly if it has a log: without it the file may be inconsistent."""
    log = Path(location.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise StoreReadOnly(
            f"{location.shown} cannot be read where nothing can be written, because it has a log: "
            f"copy it together with {log.name} to another folder, and open the copy"
        )
    return location._replace(immutable=True)


def connect(location: Location, *, read_only: bool = False, lock_seconds: float = LOCK_SECONDS) -> apsw.Connection:
    """An open, configured connection. The caller closes it."""
    access = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with translated(location.shown):
        connection = apsw.Connection(
            location.uri or location.name,
            flags=access | apsw.SQLITE_OPEN_URI if location.uri else access,
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
    # The stability guarantee keeps SQLite from planning a statement again when a parameter changes: 2 µs instead of 9
    # for a join.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    # Overwrites deleted text, so that free pages do not keep it until the next purge. No measurable cost.
    connection.execute("PRAGMA secure_delete = ON")
    # Shrinks the log after a large import.
    connection.execute("PRAGMA journal_size_limit = 67108864")
    # Savepoints copy pages; in a temporary file that would cost more than the work they protect.
    connection.execute("PRAGMA temp_store = MEMORY")


class RetryPolicy:
    """Busy handler: waits for the lock of another process in short random pauses, so that two processes that retry do
    not stay in step."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since = 0.0

    def __call__(self, attempt: int) -> bool:
        now = time.monotonic()
        if attempt == 0:
            self._since = now
        if now - self._since > self._seconds:
            return False
        time.sleep(random.uniform(0.1, _LONGEST_PAUSE_MILLISECONDS) / 1000)  # noqa: S311 no secret
        return True


def scrub(
    connection: apsw.Connection, *, rewrite: bool, lock_seconds: float, progress: Callable[[int], None] | None = None
) -> None:
    """Removes deleted text from the write-ahead log and, with `rewrite`, from unused parts of pages. Waits only briefly
    for readers of other processes that still need the log. `progress` gets the number of steps SQLite has made, in
    thousands; the total is not known."""
    connection.set_busy_handler(RetryPolicy(_SCRUB_SECONDS))
    steps = itertools.count(_PROGRESS_STEPS // 1_000, _PROGRESS_STEPS // 1_000)

    def report() -> bool:
        if progress is not None:
            progress(next(steps))
        return False

    try:
        if rewrite:
            connection.set_progress_handler(report, _PROGRESS_STEPS)
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
    """The Threadline error for an error of the driver."""
    match error:
        case UnicodeEncodeError():
            return InvalidText("text must not contain lone surrogates (half a character)")
        case OverflowError():
            return InvalidInput("integer must have at most 64 bits")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"{shown} is locked by another process: try again, or stop that process")
        case apsw.FullError():
            return _full(shown)
        case apsw.IOError() if getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE:
            # The file that readers share could not be created beside the database.
            return _full(shown)
        case apsw.ReadOnlyError():
            return StoreReadOnly(f"{shown} cannot be written: change its permissions, or open it read-only")
        case apsw.NotADBError():
            return StoreCorrupt(f"{shown} is not a SQLite database")
        case apsw.CorruptError():
            return StoreCorrupt(f"{shown} is damaged ({error}): restore it from a backup")
        case apsw.CantOpenError():
            return StoreUnavailable(f"{shown} cannot be opened: check that its folder exists and is writable")
        case apsw.PermissionsError() | apsw.AuthError():
            return StoreUnavailable(f"{shown} cannot be opened: check its permissions")
        case _:
            return StoreFailed(f"{shown}: {error}")


def _full(shown: str) -> StoreFull:
    return StoreFull(f"no space left for {shown}: free some and repeat the call")
