"""What the synchronous function behind an operation gets: a connection, a scope, the time and the limits.

A `Database` is one connection and the follow-up work of its next commit. A `ScopedSession` is a database seen from one
scope; the same functions run on the reader's session, on the writer's, and inside `transact`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import apsw

from threadline.core.errors import ThreadlineError
from threadline.core.messages import to_us
from threadline.core.sealing import Limits
from threadline.core.threads import Scope
from threadline.ports import Clock
from threadline.stores.rows import RowReader
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.connection import Location

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
Columns: TypeAlias = tuple[str, ...]

_SQL = load_queries(__package__, "queries/session.sql")


_columns_by_query: dict[str, tuple[str, ...]] = {}


def _columns(sql: str, cursor: apsw.Cursor) -> tuple[str, ...]:
    """The names of a query's columns. Cached by its text: asking SQLite takes longer than reading the row."""
    columns = _columns_by_query.get(sql)
    if columns is None:
        columns = _columns_by_query[sql] = tuple(name for name, *_ in cursor.get_description())
    return columns


class Database:
    """One open connection. Functions that write set `touched` and `scrub`; the committer reads them afterwards."""

    __slots__ = ("compact", "connection", "location", "lock_seconds", "progress", "scrub", "scrub_error", "touched")

    def __init__(self, connection: apsw.Connection, location: Location, lock_seconds: float) -> None:
        self.connection = connection
        self.location = location
        self.lock_seconds = lock_seconds
        self.touched: set[tuple[str, str]] = set()
        """What changed, as (tenant, subject), so that its watches wake."""
        self.scrub = False
        """Whether text was purged and must be removed from the write-ahead log."""
        self.compact = False
        """Whether to rewrite the file at any size."""
        self.progress: Callable[[int], None] | None = None
        """Called during a rewrite with the number of steps SQLite has made, in thousands."""
        self.scrub_error: ThreadlineError | None = None
        """Why the last scrub failed."""

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
        """Whether the scope sees the rows of every owner in the tenant."""
        self.limits = limits
        self._clock = clock
        self._connection = database.connection
        self._execute = database.connection.execute

    def on(self, database: Database) -> ScopedSession:
        """The same scope on another connection."""
        return ScopedSession(database, self.scope, self._clock, self.limits)

    def touch(self, *subjects: str) -> None:
        """Wakes the watches on these subjects after the commit."""
        self.database.touched.update([(self.tenant_id, subject) for subject in subjects])

    def now_us(self) -> int:
        return to_us(self._clock.now())

    def row(self, sql: str, values: Row = ()) -> Row | None:
        return next(self._execute(sql, values), None)

    def rows(self, sql: str, values: Row = ()) -> list[Row]:
        return self._execute(sql, values).fetchall()

    def read(self, reader: RowReader[T], sql: str, values: Row = ()) -> T | None:
        """The value of the first row; None if there is none."""
        columns, row = self.row_and_columns(sql, values)
        return None if row is None else reader.read(columns, row)

    def read_all(self, reader: RowReader[T], sql: str, values: Row = ()) -> list[T]:
        columns, found = self.rows_and_columns(sql, values)
        return [reader.read(columns, row) for row in found]

    def row_and_columns(self, sql: str, values: Row = ()) -> tuple[Columns, Row | None]:
        cursor = self._execute(sql, values)
        row = next(cursor, None)
        return ((), None) if row is None else (_columns(sql, cursor), row)

    def rows_and_columns(self, sql: str, values: Row = ()) -> tuple[Columns, list[Row]]:
        """The rows and the names of their columns; () if there are no rows."""
        cursor = self._execute(sql, values)
        first = next(cursor, None)
        # The columns are read before the last row: afterwards SQLite no longer knows them.
        return ((), []) if first is None else (_columns(sql, cursor), [first, *cursor])

    def stream(self, sql: str, values: Row = ()) -> apsw.Cursor:
        """Rows one by one. A caller that stops early must close the cursor: an open read keeps the log long."""
        return self._execute(sql, values)

    def run(self, sql: str, values: Row = ()) -> int:
        """Returns how many rows it changed."""
        self._execute(sql, values)
        return self._connection.changes()

    def run_many(self, sql: str, values: Iterable[Row]) -> None:
        self._connection.executemany(sql, values)

    def last_number(self) -> int:
        """The number of the row that was inserted last."""
        return self._connection.last_insert_rowid()

    def snapshot(self) -> Snapshot:
        """Several reads that see one state of the database."""
        return Snapshot(self._connection)

    def ensure_owner(self, owner_id: str | None = None) -> None:
        """Creates the rows of the tenant and the owner if they do not exist, so that other rows can refer to them."""
        owner = self.user_id if owner_id is None else owner_id
        if not self.has_user(owner):
            self.ensure_tenant()
            self._execute(_SQL["add_user"], (self.tenant_id, owner, self.now_us()))

    def has_user(self, owner_id: str) -> bool:
        return self.row(_SQL["find_user"], (self.tenant_id, owner_id)) is not None

    def ensure_tenant(self) -> None:
        """For rows that refer to a tenant but to no user."""
        self._execute(_SQL["add_tenant"], (self.tenant_id, self.now_us()))


class Snapshot:
    """A read transaction, unless one is open already: several reads see one state of the database."""

    __slots__ = ("_connection", "_mine")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._mine = not connection.in_transaction

    def __enter__(self) -> None:
        if self._mine:
            self._connection.execute("BEGIN")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._mine and self._connection.in_transaction:
            # Nothing was written. A commit that fails would leave the transaction open, and every later read of this
            # connection would see the state of now.
            self._connection.execute("ROLLBACK")
