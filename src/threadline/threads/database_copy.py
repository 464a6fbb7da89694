"""Copies a whole database into another, of the same kind or not, and verifies the copy.

Tenant by tenant, table by table. Rows that exist in the target are left alone, so an interrupted copy is repeated from
the start with the same result. Then both databases are read again and compared; during a copy nothing may write to the
source.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from threadline.core.errors import Conflict
from threadline.core.portable import TABLES, Row, Tally
from threadline.core.threads import system_scope
from threadline.ports import Store, Transaction
from threadline.ports.administration import TableCopyOperations

_PAGE = 1000
# Rows of up to a megabyte: so many are in memory at a time.
_PAGES = {"stored_values": 16}
# Timelines and threads refer to each other: timelines learn their thread in a second pass.
PASSES = tuple(pass_ for table in TABLES for pass_ in ((table, "timelines") if table == "threads" else (table,)))


async def copy_database(
    source: Store,
    target: Store,
    *,
    tenants: Sequence[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Copies these tenants (default: all) and returns how many rows of each table the target has. Conflict if the two
    databases differ afterwards."""
    copied: dict[str, int] = dict.fromkeys(TABLES, 0)
    done = 0
    for tenant_id in await source.tenants() if tenants is None else tenants:
        scope = system_scope(tenant_id)
        reading, writing = source.scoped(scope), target.scoped(scope)
        for table in PASSES:
            async for rows in read_pages(reading, table):
                await writing.write_rows(table, rows)
                done += len(rows)
                if progress is not None:
                    progress(done)
        for table, count in (await _verified(tenant_id, reading, writing)).items():
            copied[table] += count
    return copied


async def _verified(tenant_id: str, reading: Transaction, writing: Transaction) -> dict[str, int]:
    counts: dict[str, int] = {}
    for table in TABLES:
        there, here = await _tally(reading, table), await _tally(writing, table)
        if there != here:
            raise Conflict(
                f"{table} of tenant {tenant_id} differ: {there.rows} rows in the source, {here.rows} in the target; "
                "stop whatever writes to either, and copy again into an empty database"
            )
        counts[table] = here.rows
    return counts


async def _tally(tx: TableCopyOperations, table: str) -> Tally:
    tally = Tally()
    async for rows in read_pages(tx, table):
        tally = tally.plus(rows)
    return tally


async def read_pages(tx: TableCopyOperations, table: str) -> AsyncIterator[list[Row]]:
    limit = _PAGES.get(table, _PAGE)
    page = await tx.read_rows(table, limit=limit)
    while True:
        if page.rows:
            yield page.rows
        if page.next_place is None:
            return
        page = await tx.read_rows(table, place=page.next_place, limit=limit)
