"""Rows on their way to and from another database, in the form of `core.portable`. System scope only.

Times are timestamps here and microseconds on the way; bodies are compressed here and plain on the way. Adding a row
that is there already changes nothing, so a copy that broke off is simply made again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

from threadline.core.messages import from_us, to_us
from threadline.core.portable import TABLES, Row, RowPage
from threadline.stores.postgres.messages import ROLES
from threadline.stores.postgres.session import ScopedSession, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/copying.sql")
_BY_KEY = frozenset(("messages", "turn_chunks"))
"""Tables read by their key, at any depth for the same price; the others are small and read by offset."""
_BEFORE_ALL = ("", -1)


class TableCopyOperations:
    session: ScopedSession

    @in_transaction
    async def read_rows(self, table: str, *, place: Any | None = None, limit: int = 1000) -> RowPage:
        self.session.scope.require("system")
        if table in _BY_KEY:
            start: tuple[Any, ...] = _BEFORE_ALL if place is None else place
        else:
            start = (place or 0,)
        found = await self.session.rows(_SQL[f"read_{table}"], *start, limit)
        outward = _outward(self.session, table)
        rows = [outward(tuple(row)) for row in found]
        if len(rows) < limit:
            return RowPage(rows, None)
        return RowPage(rows, tuple(found[-1][:2]) if table in _BY_KEY else start[0] + limit)

    @in_transaction
    async def write_rows(self, table: str, rows: Sequence[Row]) -> None:
        self.session.scope.require("system")
        if table == "timelines":
            threads = {row[0] for row in await self.session.rows(_SQL["list_threads"])}
            rows = [(*row[:2], row[2] if row[2] in threads else None, *row[3:]) for row in rows]
        inward = _inward(self.session, table)
        await self.session.run_many(_SQL[f"write_{table}"], [inward(row) for row in rows])
        if table == "messages":
            await self.session.run_many(_SQL["leave_to_search"], _ranges(rows))


def _ranges(rows: Sequence[Row]) -> list[Row]:
    """Which seqs of which timelines these messages are, for search to read when it comes by."""
    found: dict[str, tuple[str, int, int]] = {}
    for timeline_id, seq, owner_id, *_ in rows:
        _, first, last = found.get(timeline_id, (owner_id, seq, seq))
        found[timeline_id] = (owner_id, min(first, seq), max(last, seq))
    return [(owner_id, timeline_id, first, last) for timeline_id, (owner_id, first, last) in found.items()]


def _times(table: str) -> frozenset[int]:
    """Which columns are timestamps here; a message's time is microseconds here as well."""
    if table == "messages":
        return frozenset()
    return frozenset(at for at, column in enumerate(TABLES[table]) if column.endswith("_us"))


def _outward(session: ScopedSession, table: str) -> Callable[[Row], Row]:
    times, unpack = _times(table), session.internals.bodies.unpack

    def outward(row: Row) -> Row:
        values = [_microseconds(value) if at in times else value for at, value in enumerate(row)]
        if table == "messages":
            values[4], values[8] = ROLES[values[4]], unpack(values[8])
        elif table == "timelines":
            values = [*row[:5], tuple(zip(row[5], row[6], strict=True)), _microseconds(row[7])]
        return tuple(values)

    return outward


def _inward(session: ScopedSession, table: str) -> Callable[[Row], Row]:
    times, pack = _times(table), session.internals.bodies.pack

    def inward(row: Row) -> Row:
        values = [from_us(value) if at in times and value is not None else value for at, value in enumerate(row)]
        if table == "messages":
            values[4], values[8] = row[4][:1].encode(), pack(row[8])
        elif table == "timelines":
            values[5:6] = [[id for id, _ in row[5]], [seq for _, seq in row[5]]]
        return tuple(values)

    return inward


def _microseconds(value: Any) -> Any:
    return to_us(value) if isinstance(value, dt.datetime) else value
