"""Purges during writes: rows that are being added when a purge begins are purged as well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from threadline.core.threads import NewThread, Scope, system_scope
from threadline.ports import Transaction
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange

ALICE = Scope("a", "alice")
PURGES: dict[str, Callable[[PostgresStore, str], Awaitable[object]]] = {
    "thread": lambda store, thread_id: store.scoped(ALICE).purge_thread(thread_id),
    "user": lambda store, _: store.scoped(ALICE).purge_user("alice"),
    "tenant": lambda store, _: store.scoped(system_scope("a")).purge_tenant(),
}
WRITES: dict[str, Callable[[Transaction, str], Awaitable[object]]] = {
    "append": lambda tx, thread_id: tx.append(thread_id, exchange("more"), key="k"),
    "save": lambda tx, thread_id: tx.save(thread_id, "there"),
    "load": lambda tx, thread_id: tx.load(thread_id, "here"),
    "undo": lambda tx, thread_id: tx.undo(thread_id),
    "move": lambda tx, thread_id: tx.move(thread_id, 0),
    "branch": lambda tx, thread_id: tx.branch(thread_id, NewThread()),
    "create": lambda tx, _: tx.create_thread(NewThread()),
}
MEETINGS = [
    (purge, write) for purge in PURGES for write in WRITES if purge != "thread" or write not in ("branch", "create")
]
"""A purge of one thread does not affect others."""


@pytest.mark.req("SX-03")
@pytest.mark.parametrize(("purge", "write"), MEETINGS)
async def test_rows_added_during_a_purge_are_purged(
    own_store: PostgresStore, admin: asyncpg.Connection, purge: str, write: str
) -> None:
    thread = await create_thread_with(own_store.scoped(ALICE), "one", "two")
    await own_store.scoped(ALICE).save(thread.id, "here")
    written, purging = asyncio.Event(), asyncio.Event()

    async def work(tx: Transaction) -> None:
        await WRITES[write](tx, thread.id)
        written.set()
        await purging.wait()

    async with asyncio.timeout(30):
        writer = asyncio.create_task(own_store.transact(ALICE, work))
        await written.wait()
        purger = asyncio.ensure_future(PURGES[purge](own_store, thread.id))
        await until_it_waits(admin)
        purging.set()
        await asyncio.gather(writer, purger)
    left = await own_store.scoped(system_scope("a")).row_counts()
    kept = {"users", "tenants"} if purge == "thread" else {"tenants"} if purge == "user" else set()
    assert {table for table, rows in left.items() if rows} == kept


async def until_it_waits(admin: asyncpg.Connection) -> None:
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while not await admin.fetch(waiting):
        pass
