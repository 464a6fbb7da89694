"""The SQLite store: one file (or memory), one writer, one connection for small reads and one thread for large ones.

Opening creates the file if it does not exist, and migrates an older one. Several processes may use one file. A store
belongs to the process that opened it: a forked child must open its own.

All operations of `threadline.ports.StoreSession` in one class, and the execution of transaction bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import datetime as dt
import os
import weakref
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from threadline.core.errors import StoreFull, StoreReadOnly
from threadline.core.sealing import Limits
from threadline.core.threads import Scope
from threadline.ports import (
    Clock,
    DatabaseTransaction,
    Finding,
    PoolStats,
    StoreSession,
    TransactionBody,
    Watch,
    WorkWatch,
)
from threadline.stores.arguments import check_arguments
from threadline.stores.sql import load_queries
from threadline.stores.sqlite import maintenance
from threadline.stores.sqlite.access import AccessOperations, CredentialOperations
from threadline.stores.sqlite.change_watch import Watchers, WatchRegistry
from threadline.stores.sqlite.connection import (
    LOCK_SECONDS,
    Location,
    can_write,
    connect,
    locate,
    translated,
    without_log,
)
from threadline.stores.sqlite.engine import AutocommitEngine, Availability, ReaderThread, TransactionEngine
from threadline.stores.sqlite.hidden_parts import HiddenPartOperations
from threadline.stores.sqlite.history import HistoryOperations
from threadline.stores.sqlite.maintenance import TableCopyOperations
from threadline.stores.sqlite.messages import MessageOperations
from threadline.stores.sqlite.migrate import migrate, require_current
from threadline.stores.sqlite.places import PlaceOperations
from threadline.stores.sqlite.purge import PurgeOperations
from threadline.stores.sqlite.queues import QueueOperations
from threadline.stores.sqlite.retention import RetentionOperations
from threadline.stores.sqlite.search import index_some, index_when_idle, register_ranking
from threadline.stores.sqlite.session import Database, ScopedSession
from threadline.stores.sqlite.sign_ins import SignInOperations
from threadline.stores.sqlite.summaries import SummaryOperations
from threadline.stores.sqlite.thread_search import ThreadSearchOperations
from threadline.stores.sqlite.threads import ThreadOperations
from threadline.stores.sqlite.timelines import TimelineOperations
from threadline.stores.sqlite.turn_commits import TurnCommitOperations
from threadline.stores.sqlite.turns import TurnOperations, TurnOutputOperations
from threadline.stores.sqlite.usage import UsageOperations
from threadline.stores.sqlite.values import ValueOperations
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
        self._availability = Availability(self._location.shown)
        self._reader_thread = ReaderThread(partial(_open_for_search, self._location))
        # The writer's thread refers to the registry and not to the store, so that a store that is never closed can be
        # garbage collected and end the thread.
        registry = WatchRegistry()
        others_version: Callable[[], int] = partial(opened.reader.connection.pragma, "data_version")
        self._writer: Writer | None = None
        if opened.writer is not None:
            self._writer = Writer(
                opened.writer, on_touched=registry.touched, housekeeping=partial(index_when_idle, opened.writer)
            )
            # SQLite counts per connection, and the reader's number also changes with this process's own commits.
            others_version = self._writer.others_version
            # The thread of a store that is never closed must end before the interpreter does.
            weakref.finalize(self, self._writer.finish_at_exit)
        self._watchers = Watchers(registry, others_version)
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
        """The store in this file, or in `:memory:`. StoreCorrupt if it is not a Threadline file, SchemaMismatch if a
        newer version wrote it, StoreReadOnly if it cannot be written and `read_only` is not set. While another process
        holds the file, calls wait up to `lock_seconds`, then raise StoreBusy."""
        opened = await asyncio.to_thread(_open, locate(path), read_only, lock_seconds)
        return cls(opened, clock or _SystemClock(), limits or Limits())

    def scoped(self, scope: Scope) -> StoreSession:
        reader = ScopedSession(self._reader, scope, self._clock, self._limits)
        writer = None if self._writer_database is None else reader.on(self._writer_database)
        return SqliteTransaction(
            AutocommitEngine(reader, writer, self._writer, self._reader_thread, self._availability)
        )

    async def transact(self, scope: Scope, work: TransactionBody[T]) -> T:
        writer, database = self._writing()
        session = ScopedSession(database, scope, self._clock, self._limits)
        job = partial(contextvars.copy_context().run, run_transaction_body, work, session)
        return await writer.submit(job, may_fail_late=True)

    def _writing(self) -> tuple[Writer, Database]:
        self._availability.check()
        if self._writer is None or self._writer_database is None:
            raise StoreReadOnly(f"{self._location.shown} was opened read-only")
        return self._writer, self._writer_database

    def watch(self, scope: Scope, subject: str) -> AbstractAsyncContextManager[Watch]:
        self._availability.check()
        return self._watchers.watch(scope.tenant_id, subject)

    def watch_work(self) -> AbstractAsyncContextManager[WorkWatch]:
        self._availability.check()
        return self._watchers.watch_work()

    def announce_work(self, tenant_id: str) -> None:
        self._watchers.announce_work()

    async def tenants(self) -> list[str]:
        self._availability.check()
        with translated(self._location.shown):
            return [id for (id,) in self._reader.connection.execute(_SQL["list_tenants"])]

    async def busy_tenants(self) -> list[str]:
        self._availability.check()
        with translated(self._location.shown):
            return [id for (id,) in self._reader.connection.execute(_SQL["list_busy_tenants"])]

    async def check_writable(self) -> None:
        writer, _ = self._writing()
        # A job that writes nothing still begins a write transaction, which waits for other processes.
        await writer.submit(_do_nothing)

    def pool_stats(self) -> PoolStats:
        """The reader's connection, and the writer's if the store is not read-only."""
        waiting = 0 if self._writer is None else self._writer.waiting
        return PoolStats(open=1 if self._writer is None else 2, in_use=1 if waiting else 0, waiting=waiting)

    async def statistics(self) -> dict[str, int]:
        self._availability.check()
        return await self._reader_thread.run(_statistics)

    async def index_pending(self) -> int:
        writer, database = self._writing()
        taken = 0
        while some := await writer.submit(partial(index_some, database, _INDEXED_AT_A_TIME)):
            taken += some
        return taken

    async def check(self) -> list[Finding]:
        self._availability.check()
        return await self._reader_thread.run(maintenance.find_faults)

    def snapshot(self) -> AbstractAsyncContextManager[DatabaseTransaction]:
        self._availability.check()
        return maintenance.open_transaction(self._location, self._clock, writes=False)

    def load(self) -> AbstractAsyncContextManager[DatabaseTransaction]:
        self._writing()
        return maintenance.open_transaction(self._location, self._clock, writes=True)

    async def compact(self, *, progress: Callable[[int], None] | None = None) -> None:
        """Rewrites the whole file: it shrinks to what it needs, and no unused part of a page keeps purged text. Appends
        wait until it is done. StoreUnavailable if another process uses the file, StoreFull if there is no space for a
        second copy. `progress` is called from another thread with the number of steps made, in thousands."""
        writer, database = self._writing()
        await writer.submit(partial(_request_compaction, database, progress))
        if database.scrub_error is not None:
            raise database.scrub_error

    async def close(self) -> None:
        if self._availability.refusal is not None:
            return
        self._availability.refusal = "is closed"
        await self._watchers.close()
        await asyncio.to_thread(self._reader_thread.close)
        self._reader.connection.close()
        if self._writer is not None:
            # Last: the connection that closes last moves the log into the file, and a read-only one cannot.
            await asyncio.to_thread(self._writer.finish)

    def leave_to_parent(self) -> None:
        """For a forked child: nothing may be used or closed, because the file locks are the parent's."""
        self._availability.refusal = "was opened before this process was forked: open it again here"
        if self._writer is not None:
            self._writer.abandon()


def _open(location: Location, read_only: bool, lock_seconds: float) -> _Opened:
    if read_only:
        return _open_reader(location, lock_seconds)
    path = Path(location.name)
    # The log is beside the file, so its folder must be writable too.
    if path.is_file() and not (can_write(path) and can_write(path.parent)):
        raise StoreReadOnly(f"{location.shown} cannot be written: change its permissions, or open it read-only")
    writer = _database(location, lock_seconds=lock_seconds)
    try:
        migrate(writer.connection, location)
        register_ranking(writer.connection)
        return _Opened(location, _database(location, read_only=True, lock_seconds=lock_seconds), writer)
    except BaseException:
        writer.connection.close()
        raise


def _open_reader(location: Location, lock_seconds: float) -> _Opened:
    """A file in write-ahead mode is read together with files beside it. Where those cannot be created, because the
    folder is read-only or the disk is full, the file is read alone."""
    if location.in_memory or can_write(Path(location.name).parent) or Path(location.name + "-shm").exists():
        with contextlib.suppress(StoreFull):
            return _read(location, lock_seconds)
    return _read(without_log(location), lock_seconds)


def _read(location: Location, lock_seconds: float) -> _Opened:
    reader = _database(location, read_only=True, lock_seconds=lock_seconds)
    try:
        require_current(reader.connection, location)
    except BaseException:
        reader.connection.close()
        raise
    return _Opened(location, reader, None)


def _database(location: Location, *, read_only: bool = False, lock_seconds: float = LOCK_SECONDS) -> Database:
    return Database(connect(location, read_only=read_only, lock_seconds=lock_seconds), location, lock_seconds)


def _open_for_search(location: Location) -> Database:
    database = _database(location, read_only=True)
    register_ranking(database.connection)
    return database


def _do_nothing() -> None:
    pass


def _request_compaction(database: Database, progress: Callable[[int], None] | None) -> None:
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
    # Kept until the process ends: freeing a connection closes it, and closing releases the parent's file locks.
    _left_to_parent.extend(_open_stores)
    for store in _left_to_parent:
        store.leave_to_parent()


os.register_at_fork(after_in_child=_forked)


@check_arguments
class SqliteTransaction(
    ThreadOperations,
    MessageOperations,
    ThreadSearchOperations,
    TimelineOperations,
    HistoryOperations,
    HiddenPartOperations,
    PlaceOperations,
    QueueOperations,
    CredentialOperations,
    TurnOperations,
    TurnCommitOperations,
    TurnOutputOperations,
    SummaryOperations,
    UsageOperations,
    ValueOperations,
    AccessOperations,
    PurgeOperations,
    RetentionOperations,
    SignInOperations,
    TableCopyOperations,
):
    """All operations, in one scope."""


def run_transaction_body(work: TransactionBody[T], session: ScopedSession) -> T:
    """Runs the work to its end inside the open transaction.

    Its operations never suspend, so the coroutine needs no event loop: the first step runs it to its end.
    """
    engine = TransactionEngine(session)
    steps = work(SqliteTransaction(engine)).__await__()
    try:
        next(steps)
    except StopIteration as done:
        engine.require_no_failure()
        result: T = done.value
        return result
    else:
        steps.close()
        raise RuntimeError("a transaction may await only its own operations: do everything else before or after it")
    finally:
        engine.end()
