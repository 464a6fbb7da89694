"""Checks of a database file, and transactions over all tenants for backups and restores.

Copies of tables to and from another database, in the form of `core.portable`. System scope only.

The file refers to threads, timelines and turns by numbers, the portable form by ids. Adding a row that exists changes
nothing, so an interrupted copy can simply be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from threadline.core.messages import ROLES
from threadline.core.portable import TABLES, Row, RowPage
from threadline.core.sealing import Limits
from threadline.core.threads import system_scope
from threadline.ports import Clock, Finding
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.connection import LOCK_SECONDS, Location, connect, translated
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.lineage import Place, pack, unpack
from threadline.stores.sqlite.migrate import MIGRATIONS, journal
from threadline.stores.sqlite.session import Database, ScopedSession

P = ParamSpec("P")
T = TypeVar("T")
_SQL = load_queries(__package__, "queries/maintenance.sql")

_SHOWN = 5
_FROM_BACKUP = "restore the file from a backup, or copy what can be read with `threadline copy`"


def find_faults(database: Database) -> list[Finding]:
    """Every fault, worst first. Empty means healthy."""
    damage = list(_damage(database))
    if damage:
        return damage
    return [*_schema(database), *_references(database), *_counts(database)]


def _damage(database: Database) -> Iterator[Finding]:
    try:
        complaints = [text for (text,) in database.rows("PRAGMA integrity_check(10)")]
    except apsw.CorruptError as exc:
        complaints = [str(exc)]
    for complaint in complaints:
        if complaint != "ok":
            yield Finding("error", f"the file is damaged: {complaint}", _FROM_BACKUP)


def _schema(database: Database) -> Iterator[Finding]:
    applied = journal(database.connection, database.location)
    version = database.connection.pragma("user_version")
    if len(applied) != version:
        what = f"the header has schema version {version}, the migration journal {len(applied)}"
        yield Finding("error", what, _FROM_BACKUP)
    if len(applied) < len(MIGRATIONS):
        yield Finding("error", f"the schema is version {len(applied)} of {len(MIGRATIONS)}", "run `threadline migrate`")


def _references(database: Database) -> Iterator[Finding]:
    broken = database.rows("PRAGMA foreign_key_check")
    if broken:
        tables = ", ".join(sorted({row[0] for row in broken}))
        yield Finding("error", f"{len(broken)} rows refer to rows that do not exist, in {tables}", _FROM_BACKUP)


def _counts(database: Database) -> Iterator[Finding]:
    for query, what in (
        ("find_wrong_counts", "threads have a wrong message count"),
        ("find_wrong_timelines", "threads point to a timeline of another thread"),
        ("find_gaps", "timelines have gaps"),
        ("find_stray_timelines", "timelines refer to a thread or a parent that does not exist"),
    ):
        wrong = database.rows(_SQL[query])
        if wrong:
            named = ", ".join(f"{tenant_id}/{id}" for tenant_id, id in wrong[:_SHOWN])
            yield Finding("error", f"{len(wrong)} {what}: {named}", _FROM_BACKUP)


class DatabaseTransaction:
    """One transaction over every tenant on a connection of its own: a backup reads one state while others write, a
    restore stores everything or nothing."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def tenants(self) -> list[str]:
        rows = await asyncio.to_thread(self._database.rows, _SQL["list_all_tenants"])
        return [id for (id,) in rows]

    async def enter(self, tenant_id: str) -> TenantTables:
        return TenantTables(ScopedSession(self._database, system_scope(tenant_id), self._clock, Limits()))


class TenantTables:
    """The tables of one tenant, inside a DatabaseTransaction."""

    def __init__(self, session: ScopedSession) -> None:
        self._session = session

    async def read_rows(self, table: str, *, place: Any | None = None, limit: int = 1000) -> RowPage:
        return await self._run(read_rows, table, place, limit)

    async def write_rows(self, table: str, rows: Sequence[Row]) -> None:
        await self._run(write_rows, table, rows)

    async def _run(self, work: Callable[Concatenate[ScopedSession, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        with translated(self._session.database.location.shown):
            return await asyncio.to_thread(work, self._session, *args, **kwargs)


@asynccontextmanager
async def open_transaction(location: Location, clock: Clock, *, writes: bool) -> AsyncIterator[DatabaseTransaction]:
    connection = await asyncio.to_thread(connect, location, read_only=not writes)
    if location.in_memory and not writes:
        # Without a write-ahead log a reader would block the writers, so it reads a copy.
        connection = _copy_memory(connection)
    try:
        with translated(location.shown):
            # A read transaction sees the state of its first read, and does not block writers.
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        yield DatabaseTransaction(Database(connection, location, LOCK_SECONDS), clock)
        with translated(location.shown):
            await asyncio.to_thread(connection.execute, "COMMIT")
    finally:
        # Closing rolls back what was not committed. In a thread, because it may copy the log into the file.
        await asyncio.to_thread(connection.close)


def _copy_memory(source: apsw.Connection) -> apsw.Connection:
    try:
        copy = apsw.Connection(":memory:")
        with copy.backup("main", source, "main") as copying:
            copying.step()
        copy.pragma("query_only", True)
        return copy
    finally:
        source.close()


_NUMBERED = frozenset(
    ("timelines", "threads", "messages", "summaries", "turns", "tool_runs", "outbox", "stored_values")
)
"""Tables that are paged by row number, at the same cost at any depth; the others are small and paged by offset."""
_FLAGS = {"agents": 6, "api_tokens": 9, "threads": 5, "tool_runs": 5, "turns": 16}
_KEEPS_ID = {("messages", "turn_id"), ("hidden_parts", "turn_id"), ("inbox", "turn_id"), ("outbox", "turn_id")}
"""Columns that keep an id, because the row they name may not exist."""


class TableCopyOperations(Operations):
    async def read_rows(self, table: str, *, place: Any | None = None, limit: int = 1000) -> RowPage:
        return await self._engine.read_large(read_rows, table, place, limit)

    async def write_rows(self, table: str, rows: Sequence[Row]) -> None:
        await self._engine.write_large(write_rows, table, rows)


def read_rows(session: ScopedSession, table: str, place: int | None, limit: int) -> RowPage:
    session.scope.require("system")
    found = session.rows(_SQL[f"read_{table}"], (session.tenant_id, place or 0, limit))
    last = found[-1][0] if found and table in _NUMBERED else (place or 0) + len(found)
    outward = _outward(session, table)
    return RowPage([outward(row[1:]) for row in found], last if len(found) == limit else None)


def _outward(session: ScopedSession, table: str) -> Callable[[Row], Row]:
    if table == "messages":
        return lambda row: (*row[:4], ROLES[row[4]], *row[5:])
    if table == "timelines":
        names: dict[int, str] = dict(session.rows(_SQL["number_timelines"], (session.tenant_id,)))
        return lambda row: (*row[:5], tuple((names[no], seq) for no, seq in unpack(row[5])), row[6])
    if table in _FLAGS:
        at = _FLAGS[table]
        return lambda row: (*row[:at], bool(row[at]), *row[at + 1 :])
    return lambda row: row


def write_rows(session: ScopedSession, table: str, rows: Sequence[Row]) -> None:
    session.scope.require("system")
    if table == "timelines":
        _write_timelines(session, rows)
        return
    inward = _inward(session, table)
    session.run_many(_SQL[f"write_{table}"], [(session.tenant_id, *inward(row)) for row in rows])


def _write_timelines(session: ScopedSession, rows: Sequence[Row]) -> None:
    """Parents come before their branches, as they were made. A timeline that is there already is only told which
    thread it belongs to, if it does not know."""
    numbers, threads = _numbers(session, "timelines"), _numbers(session, "threads")
    for id, owner_id, thread_id, parent_id, parent_seq, lineage, created_us in rows:
        if id not in numbers:
            places = [Place(numbers[ancestor], seq) for ancestor, seq in lineage]
            base = (*places[0], True) if places else (None, None, False)
            values = (session.tenant_id, owner_id, id, created_us, parent_id, parent_seq, *base, pack(places))
            session.run(_SQL["write_timelines"], values)
            numbers[id] = session.last_number()
        place = (threads.get(thread_id), numbers[id])
        if place[0] is not None and session.run(_SQL["settle_timeline"], place):
            session.run(_SQL["lengthen_chain"], place)


def _inward(session: ScopedSession, table: str) -> Callable[[Row], Row]:
    """How a row's ids become numbers."""
    columns = TABLES[table]
    kinds = (("timeline_id", "timelines"), ("thread_id", "threads"), ("turn_id", "turns"))
    numbers = {
        columns.index(column): _numbers(session, kind)
        for column, kind in kinds
        if column in columns and (table, column) not in _KEEPS_ID
    }
    if table == "messages":
        numbers[columns.index("role")] = {role: number for number, role in enumerate(ROLES)}
    return lambda row: tuple(numbers[at][value] if at in numbers else value for at, value in enumerate(row))


def _numbers(session: ScopedSession, kind: str) -> dict[str, int]:
    return {id: number for number, id in session.rows(_SQL[f"number_{kind}"], (session.tenant_id,))}
