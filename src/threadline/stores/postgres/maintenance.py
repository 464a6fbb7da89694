"""Maintenance: permanent removal, copying rows to and from another database, and the checks of `threadline doctor`.

A purge removes rows and index entries when its transaction commits; the pages keep their bytes until VACUUM.

Rows are copied in the form of `core.portable`: times are microseconds there and timestamps here, message bodies are
plain there and compressed here. Adding a row that exists changes nothing, so an interrupted copy can be repeated.

A check reports tables without forced row security, roles with more rights than they need, threads whose count differs
from their messages, and rows whose thread is missing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from threadline.core import jsontext
from threadline.core.ids import new_id
from threadline.core.messages import from_us, to_us
from threadline.core.portable import TABLES, Row, RowPage
from threadline.core.threads import Scope, system_scope
from threadline.ports import Finding
from threadline.stores.postgres.errors import translated
from threadline.stores.postgres.messages import ROLES
from threadline.stores.postgres.pool import Pool
from threadline.stores.postgres.retention import refuse_held
from threadline.stores.postgres.session import (
    MAINTENANCE_SECONDS,
    NO_TENANT,
    WORKER,
    Operations,
    ScopedSession,
    StoreInternals,
    enter_statement,
    in_transaction,
    quote_literal,
)
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/maintenance.sql")
_FIRST_KEYS: dict[str, tuple[Any, ...]] = {
    "messages": ("", -1),
    "turn_chunks": ("", -1),
    "stored_values": ("", "", "", "", -1),
}
"""Large tables, read by their key so that each page costs the same, each with a key before its first. The key is the
first columns of a row. The other tables are small and read by offset."""
_RESTORE = "restore from a backup"


class PurgeOperations(Operations):
    @in_transaction
    async def purge_thread(self, thread_id: str) -> bool:
        await self.session.allow_long_statements()
        await refuse_held(self.session, "thread", thread_id)
        if not await self._count("purge_thread", thread_id):
            return False
        self.session.notify(thread_id)
        return True

    @in_transaction
    async def purge_user(self, user_id: str) -> dict[str, int]:
        await self.session.allow_long_statements()
        if user_id != self.session.owner_id:
            self.session.scope.require("system")
        await refuse_held(self.session, "user", user_id)
        return await self._counts("purge_owner", user_id)

    @in_transaction
    async def purge_tenant(self, *, actor_id: str | None = None) -> dict[str, int]:
        await self.session.allow_long_statements()
        self.session.scope.require("system")
        await refuse_held(self.session, "tenant")
        removed = await self._counts("purge_tenant")
        values = (new_id(), actor_id or self.session.owner_id, jsontext.dump({"rows": removed}), self.session.now())
        await self.session.run(_SQL["add_tenant_purge"], *values)
        return removed

    @in_transaction
    async def row_counts(self) -> dict[str, int]:
        await self.session.allow_long_statements()
        return {row["tablename"]: row["counted"] for row in await self.session.rows(_SQL["count_rows"])}

    async def _counts(self, query: str, *values: str) -> dict[str, int]:
        found = await self.session.rows(_SQL[query], *values)
        return {row["tablename"]: row["removed"] for row in found if row["removed"]}

    async def _count(self, query: str, *values: str) -> int:
        row = await self.session.row(_SQL[query], *values)
        return 0 if row is None else int(row[0])


class TableCopyOperations(Operations):
    @in_transaction
    async def read_rows(self, table: str, *, place: Any | None = None, limit: int = 1000) -> RowPage:
        await self.session.allow_long_statements()
        self.session.scope.require("system")
        first_key = _FIRST_KEYS.get(table)
        if first_key is not None:
            start: tuple[Any, ...] = first_key if place is None else place
        else:
            start = (place or 0,)
        found = await self.session.rows(_SQL[f"read_{table}"], *start, limit)
        convert = _to_portable(self.session, table)
        rows = [convert(tuple(row)) for row in found]
        if len(rows) < limit:
            return RowPage(rows, None)
        return RowPage(rows, start[0] + limit if first_key is None else tuple(found[-1][: len(first_key)]))

    @in_transaction
    async def write_rows(self, table: str, rows: Sequence[Row]) -> None:
        await self.session.allow_long_statements()
        self.session.scope.require("system")
        if table == "timelines":
            # A timeline can outlive its thread, because a branch still shows its messages.
            threads = {row[0] for row in await self.session.rows(_SQL["list_threads"])}
            rows = [(*row[:2], row[2] if row[2] in threads else None, *row[3:]) for row in rows]
        convert = _from_portable(self.session, table)
        await self.session.run_many(_SQL[f"write_{table}"], [convert(row) for row in rows])
        if table == "threads":
            await self.session.rows(_SQL["label_threads"], [row[0] for row in rows])
        if table == "messages":
            await self.session.run_many(_SQL["add_search_backlog"], _ranges(rows))


class DatabaseTransaction:
    """One transaction over every tenant, in the worker's role, which sees one tenant at a time."""

    def __init__(self, internals: StoreInternals, connection: asyncpg.Connection) -> None:
        self._internals = internals
        self._connection = connection
        self._entered: Scope | None = None
        """The role and tenant of this connection on a node of a cluster."""

    async def tenants(self) -> list[str]:
        session = ScopedSession(self._internals, NO_TENANT, self._connection)
        return [row["tenant_id"] for row in await session.rows_of_schema(_SQL["list_tenants"])]

    async def enter(self, tenant_id: str) -> TenantTables:
        session = ScopedSession(self._internals, system_scope(tenant_id), self._connection)
        if self._internals.is_distributed:
            await self.leave()
            await session.run_script(enter_statement(session.scope, WORKER))
            self._entered = session.scope
        else:
            await session.run_script(f"SET LOCAL threadline.tenant = {quote_literal(tenant_id)}")
        return TenantTables(session)

    async def leave(self) -> None:
        """Before a commit on several nodes of a cluster: only the role that prepared a transaction may end it."""
        if self._entered is not None:
            session = ScopedSession(self._internals, self._entered, self._connection)
            await session.run_script(enter_statement(self._entered, "none"))
            self._entered = None


class TenantTables(TableCopyOperations):
    """The tables of one tenant inside a DatabaseTransaction, each read through one cursor: pages by offset would read
    a large table again and again."""

    async def read_rows(self, table: str, *, place: Any | None = None, limit: int = 1000) -> RowPage:
        if place is None:
            await self.session.allow_long_statements()
            start = _FIRST_KEYS.get(table, (0,))
            place = await self.session.open_cursor(_SQL[f"read_{table}"], *start, None)
        with translated():
            found = await place.fetch(limit)
        convert = _to_portable(self.session, table)
        return RowPage([convert(tuple(row)) for row in found], place if len(found) == limit else None)


@asynccontextmanager
async def open_transaction(
    internals: StoreInternals, pool: Pool, *, writes: bool
) -> AsyncIterator[DatabaseTransaction]:
    """A snapshot if it does not write: every statement sees the state of the first."""
    begin = internals.begin_statement(NO_TENANT)
    if not writes:
        begin = begin.replace("BEGIN;", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;", 1)
    async with pool.borrow() as connection:
        with translated():
            await connection.execute(begin)
        # An exception leaves the transaction open: the pool then closes the connection, which rolls back.
        transaction = DatabaseTransaction(internals, connection)
        yield transaction
        await transaction.leave()
        with translated():
            await connection.execute("COMMIT", timeout=MAINTENANCE_SECONDS)


def _ranges(rows: Sequence[Row]) -> list[Row]:
    """The first and last seq of these messages per timeline, for the backlog of search."""
    found: dict[str, tuple[str, int, int]] = {}
    for timeline_id, seq, owner_id, *_ in rows:
        _, first, last = found.get(timeline_id, (owner_id, seq, seq))
        found[timeline_id] = (owner_id, min(first, seq), max(last, seq))
    return [(owner_id, timeline_id, first, last) for timeline_id, (owner_id, first, last) in found.items()]


def _times(table: str) -> frozenset[int]:
    """The positions of timestamp columns. A message's time is microseconds in this database as well."""
    if table == "messages":
        return frozenset()
    return frozenset(at for at, column in enumerate(TABLES[table]) if column.endswith("_us"))


def _to_portable(session: ScopedSession, table: str) -> Callable[[Row], Row]:
    times, unpack = _times(table), session.internals.bodies.unpack

    def convert(row: Row) -> Row:
        values = [_microseconds(value) if at in times else value for at, value in enumerate(row)]
        if table == "messages":
            values[4], values[8] = ROLES[values[4]], unpack(values[8])
        elif table == "timelines":
            values = [*row[:5], tuple(zip(row[5], row[6], strict=True)), _microseconds(row[7])]
        return tuple(values)

    return convert


def _from_portable(session: ScopedSession, table: str) -> Callable[[Row], Row]:
    times, pack = _times(table), session.internals.bodies.pack

    def convert(row: Row) -> Row:
        values = [from_us(value) if at in times and value is not None else value for at, value in enumerate(row)]
        if table == "messages":
            values[4], values[8] = row[4][:1].encode(), pack(row[8])
        elif table == "timelines":
            values[5:6] = [[id for id, _ in row[5]], [seq for _, seq in row[5]]]
        return tuple(values)

    return convert


def _microseconds(value: Any) -> Any:
    return to_us(value) if isinstance(value, dt.datetime) else value


async def check_schema(session: ScopedSession) -> list[Finding]:
    """Faults of the schema and its roles."""
    await session.allow_long_statements()
    return [finding async for finding in _find_schema_faults(session)]


async def _find_schema_faults(session: ScopedSession) -> AsyncIterator[Finding]:
    for row in await session.rows_of_schema(_SQL["list_unprotected"]):
        table = row["tablename"]
        if not row["is_forced"]:
            remedy = f"ALTER TABLE threadline.{table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
            yield Finding("error", f"row security is not forced on table {table}", remedy)
        if not row["has_policy"]:
            yield Finding(
                "error", f"table {table} has no policy", f"SELECT threadline.protect('threadline.{table}', …)"
            )
    for row in await session.rows_of_schema(_SQL["list_privileged_roles"]):
        remedy = f"ALTER ROLE {row['rolname']} NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE"
        yield Finding("error", f"role {row['rolname']} has more rights than it needs", remedy)
    for row in await session.rows_of_schema(_SQL["list_owned_by_roles"]):
        remedy = f"ALTER TABLE threadline.{row['tablename']} OWNER TO threadline_migrator"
        yield Finding("error", f"table {row['tablename']} is owned by {row['owner']}", remedy)
    for row in await session.rows_of_schema(_SQL["list_other_grantees"]):
        remedy = f"REVOKE ALL ON threadline.{row['tablename']} FROM {row['grantee']}"
        yield Finding("warning", f"{row['grantee']} has rights on table {row['tablename']}", remedy)


async def check_tenant(session: ScopedSession) -> list[Finding]:
    """Threads of one tenant with a wrong count, and rows without their thread."""
    await session.allow_long_statements()
    miscounted = [
        Finding(
            "error",
            f"the message count of thread {row['id']} of tenant {session.tenant_id} is wrong",
            "restore from a backup, or export the thread and import it again",
        )
        for row in await session.rows(_SQL["list_wrong_counts"])
    ]
    dangling = [
        Finding("error", f"{row['kind']} {row['name']} of tenant {session.tenant_id} has no thread", _RESTORE)
        for row in await session.rows(_SQL["list_dangling"])
    ]
    return miscounted + dangling
