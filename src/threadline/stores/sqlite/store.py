"""The SQLite store: one file (or memory), one thread that writes, readers beside it.

Opening makes the file if there is none and brings an older one up to date. Several processes may use one file. A store
belongs to the process that opened it: after a fork, the child opens its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import datetime as dt
import os
import weakref
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from threadline.core.errors import StoreReadOnly
from threadline.core.sealing import Limits
from threadline.core.threads import Scope
from threadline.ports import Clock, Finding, PoolStats, StoreSession, TransactionBody, Watch
from threadline.stores.sql import load_queries
from threadline.stores.sqlite import backup, check, rank
from threadline.stores.sqlite.change_watch import Watchers
from threadline.stores.sqlite.connection import LOCK_SECONDS, Location, connect, locate, translated
from threadline.stores.sqlite.engine import Gate, Library, OnItsOwn
from threadline.stores.sqlite.migrate import migrate, require_current
from threadline.stores.sqlite.search_index import index_in_passing, index_some
from threadline.stores.sqlite.session import Database, ScopedSession
from threadline.stores.sqlite.transaction import SqliteTransaction, drive
from threadline.stores.sqlite.writer import Writer

T = TypeVar("T")
_SQL = load_queries(__package__, "queries/store.sql")
_INDEXED_AT_A_TIME = 500


class _SystemClock:
    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)


class _Opened(NamedTuple):
    location: Location
    reader: Database
    writer: Database | None


class SqliteStore:
    def __init__(self, opened: _Opened, clock: Clock, limits: Limits) -> None:
        """Use `open`."""
        self._location, self._reader, self._writer_database = opened
        self._clock = clock
        self._limits = limits
        self._gate = Gate(self._location.shown)
        self._watchers = Watchers(partial(opened.reader.connection.pragma, "data_version"))
        self._library = Library(partial(_searched, self._location))
        self._writer: Writer | None = None
        if opened.writer is not None:
            self._writer = Writer(
                opened.writer, on_touched=self._watchers.touched, errands=partial(index_in_passing, opened.writer)
            )
            self._watchers.others_version = self._writer.others_version
            # Whoever forgets to close leaves a thread that must end before the interpreter does.
            weakref.finalize(self, self._writer.finish_at_exit)
        _open_stores.add(self)

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        read_only: bool = False,
        lock_seconds: float = LOCK_SECONDS,
    ) -> SqliteStore:
        """The store in this file, or in `:memory:`. StoreCorrupt for a file that is not ours, SchemaMismatch for one
        from a newer program, StoreReadOnly for one that cannot be written and was not asked to be read only. While
        another process holds the file, calls wait for `lock_seconds`; then they raise StoreUnavailable."""
        opened = await asyncio.to_thread(_open, locate(path), read_only, lock_seconds)
        return cls(opened, clock or _SystemClock(), limits or Limits())

    def scoped(self, scope: Scope) -> StoreSession:
        reader = ScopedSession(self._reader, scope, self._clock, self._limits)
        writer = None if self._writer_database is None else reader.on(self._writer_database)
        return SqliteTransaction(OnItsOwn(reader, writer, self._writer, self._library, self._gate))

    async def transact(self, scope: Scope, work: TransactionBody[T]) -> T:
        writer, database = self._writing()
        session = ScopedSession(database, scope, self._clock, self._limits)
        job = partial(contextvars.copy_context().run, drive, work, session)
        return await writer.submit(job, may_fail_late=True)

    def _writing(self) -> tuple[Writer, Database]:
        self._gate.check()
        if self._writer is None or self._writer_database is None:
            raise StoreReadOnly(f"{self._location.shown} was opened read-only")
        return self._writer, self._writer_database

    def watch(self, scope: Scope, subject: str) -> AbstractAsyncContextManager[Watch]:
        self._gate.check()
        return self._watchers.watch(scope.tenant_id, subject)

    async def tenants(self) -> list[str]:
        self._gate.check()
        with translated(self._location.shown):
            return [id for (id,) in self._reader.connection.execute(_SQL["list_tenants"])]

    def pool_stats(self) -> PoolStats:
        """One connection reads; one, if any, writes what waits for it, several at a time."""
        waiting = 0 if self._writer is None else self._writer.waiting
        return PoolStats(open=1 if self._writer is None else 2, in_use=1 if waiting else 0, waiting=waiting)

    async def statistics(self) -> dict[str, int]:
        self._gate.check()
        return await self._library.run(_statistics)

    async def index_pending(self) -> int:
        writer, database = self._writing()
        taken = 0
        while some := await writer.submit(partial(index_some, database, _INDEXED_AT_A_TIME)):
            taken += some
        return taken

    async def check(self) -> list[Finding]:
        self._gate.check()
        return await self._library.run(check.findings)

    async def backup(self, path: str | os.PathLike[str], *, progress: backup.Progress | None = None) -> None:
        """A copy of the database as it stands now, made while it is in use. It appears under its name when whole."""
        self._gate.check()
        await asyncio.to_thread(backup.copy, self._location, locate(path), progress)

    async def compact(self, *, progress: Callable[[int], None] | None = None) -> None:
        """Writes the whole file anew: it takes no more space than it needs, and no unused part of a page keeps anything
        of what was purged. Appends wait meanwhile. StoreUnavailable if others hold on to the file, StoreFull if there
        is no room for a second one. `progress` is told, by another thread, how many thousand steps were made."""
        writer, database = self._writing()
        await writer.submit(partial(_ask_to_compact, database, progress))
        if database.unscrubbed is not None:
            raise database.unscrubbed

    async def close(self) -> None:
        if self._gate.refusal is not None:
            return
        self._gate.refusal = "is closed"
        await self._watchers.close()
        await asyncio.to_thread(self._library.close)
        self._reader.connection.close()
        if self._writer is not None:
            # Last, because whoever closes last moves the log into the file, and a reader cannot.
            await asyncio.to_thread(self._writer.finish)

    def leave_to_parent(self) -> None:
        """In a forked child: nothing here may be used, nor closed, for the locks behind it are the parent's."""
        self._gate.refusal = "was opened before this process was forked: open it again here"
        if self._writer is not None:
            self._writer.abandon()


def _open(location: Location, read_only: bool, lock_seconds: float) -> _Opened:
    if read_only:
        reader = _database(location, read_only=True, lock_seconds=lock_seconds)
        try:
            require_current(reader.connection, location)
        except BaseException:
            reader.connection.close()
            raise
        return _Opened(location, reader, None)
    writer = _database(location, lock_seconds=lock_seconds)
    try:
        if writer.connection.readonly("main"):
            raise StoreReadOnly(f"{location.shown} cannot be written: change its permissions, or open it read-only")
        migrate(writer.connection, location)
        rank.register(writer.connection)
        return _Opened(location, _database(location, read_only=True, lock_seconds=lock_seconds), writer)
    except BaseException:
        writer.connection.close()
        raise


def _database(location: Location, *, read_only: bool = False, lock_seconds: float = LOCK_SECONDS) -> Database:
    return Database(connect(location, read_only=read_only, lock_seconds=lock_seconds), location, lock_seconds)


def _searched(location: Location) -> Database:
    database = _database(location, read_only=True)
    rank.register(database.connection)
    return database


def _ask_to_compact(database: Database, progress: Callable[[int], None] | None) -> None:
    database.progress = progress
    database.compact = database.scrub = True


def _statistics(database: Database) -> dict[str, int]:
    connection = database.connection
    found: dict[str, int] = dict(database.rows(_SQL["count_all_rows"]))
    size = connection.pragma("page_count") * connection.pragma("page_size")
    log = Path(database.location.name + "-wal")
    if log.exists():
        size += log.stat().st_size
    return found | {"bytes": size, "schema_version": connection.pragma("user_version")}


_open_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_left_to_parent: list[SqliteStore] = []


def _forked() -> None:
    # Kept for ever: to free a connection is to close it.
    _left_to_parent.extend(_open_stores)
    for store in _left_to_parent:
        store.leave_to_parent()


os.register_at_fork(after_in_child=_forked)
