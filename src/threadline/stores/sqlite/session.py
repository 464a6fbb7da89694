"""What the sync functions behind the verbs are given: a connection, a scope, the time.

A `Database` is one connection and what its commit must bring about afterwards. A `Reach` is a database seen from one
scope; the same functions run on a reader's reach, on the writer's, and inside `transact`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeAlias

import apsw

from threadline.core.errors import ThreadlineError
from threadline.core.messages import to_us
from threadline.core.sealing import Limits
from threadline.core.threads import Scope
from threadline.ports import Clock
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.connection import Location

Row: TypeAlias = tuple[Any, ...]

_SQL = load_queries(__package__, "queries/reach.sql")


class Database:
    """One open connection. `touched` and `scrub` are set by functions that write and read after the commit."""

    __slots__ = ("compact", "connection", "location", "lock_seconds", "progress", "scrub", "touched", "unscrubbed")

    def __init__(self, connection: apsw.Connection, location: Location, lock_seconds: float) -> None:
        self.connection = connection
        self.location = location
        self.lock_seconds = lock_seconds
        self.touched: set[tuple[str, str]] = set()
        """What changed, as (tenant, subject): whoever watches it wakes."""
        self.scrub = False
        """Whether text was purged: then the write-ahead log must not keep it."""
        self.compact = False
        """Whether the file is to be written anew, whatever its size."""
        self.progress: Callable[[int], None] | None = None
        """Told meanwhile how many thousand steps SQLite has made."""
        self.unscrubbed: ThreadlineError | None = None
        """Why the last scrubbing did not come to its end."""

    def rows(self, sql: str, values: Row = ()) -> list[Row]:
        return self.connection.execute(sql, values).fetchall()


class ScopedSession:
    __slots__ = ("_clock", "_connection", "_execute", "database", "limits", "scope", "sees_all", "tenant_id", "user_id")

    def __init__(self, database: Database, scope: Scope, clock: Clock, limits: Limits) -> None:
        self.database = database
        self.scope = scope
        self.tenant_id = scope.tenant_id
        self.user_id = scope.user_id
        self.sees_all = scope.role == "system"
        """Whether the rows of every owner of the tenant are in sight."""
        self.limits = limits
        self._clock = clock
        self._connection = database.connection
        self._execute = database.connection.execute

    def on(self, database: Database) -> ScopedSession:
        """The same scope on another connection."""
        return ScopedSession(database, self.scope, self._clock, self.limits)

    def touch(self, *subjects: str) -> None:
        """Whoever watches one of them wakes after the commit."""
        self.database.touched.update([(self.tenant_id, subject) for subject in subjects])

    def now_us(self) -> int:
        return to_us(self._clock.now())

    def row(self, sql: str, values: Row = ()) -> Row | None:
        return next(self._execute(sql, values), None)

    def rows(self, sql: str, values: Row = ()) -> list[Row]:
        return self._execute(sql, values).fetchall()

    def stream(self, sql: str, values: Row = ()) -> apsw.Cursor:
        """Rows one by one; whoever stops before the end closes it, so that no read stays open."""
        return self._execute(sql, values)

    def run(self, sql: str, values: Row = ()) -> int:
        """How many rows it changed."""
        self._execute(sql, values)
        return self._connection.changes()

    def run_many(self, sql: str, values: Iterable[Row]) -> None:
        self._connection.executemany(sql, values)

    def last_number(self) -> int:
        """The number of the row that was inserted last."""
        return self._connection.last_insert_rowid()

    def snapshot(self) -> _Snapshot:
        """Several reads that see one state of the database."""
        return _Snapshot(self._connection)

    def introduce(self, owner_id: str | None = None) -> None:
        """Makes the tenant and the owner known, so that rows can refer to them."""
        owner = self.user_id if owner_id is None else owner_id
        if not self.knows(owner):
            self.introduce_tenant()
            self._execute(_SQL["add_user"], (self.tenant_id, owner, self.now_us()))

    def knows(self, owner_id: str) -> bool:
        return self.row(_SQL["find_user"], (self.tenant_id, owner_id)) is not None

    def introduce_tenant(self) -> None:
        """For rows that refer to no user."""
        self._execute(_SQL["add_tenant"], (self.tenant_id, self.now_us()))


class _Snapshot:
    __slots__ = ("_connection", "_mine")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._mine = not connection.in_transaction

    def __enter__(self) -> None:
        if self._mine:
            self._connection.execute("BEGIN")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._mine:
            self._connection.execute("COMMIT")
