"""Watches of turns, with LISTEN and NOTIFY and without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from threadline.core.threads import NewThread, Scope
from threadline.core.turns import Chunk
from threadline.ports import Transaction
from threadline.stores.postgres import change_watch as watching
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn

ALICE = Scope("a", "alice")
LISTENING = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"


@pytest.fixture
async def running(own_store: PostgresStore, clock: ManualClock) -> int:
    """A turn `turn` that runs; its fence."""
    tx = own_store.scoped(ALICE)
    thread = await tx.create_thread(NewThread())
    await add_turn(tx, "turn", thread.id, "web")
    turn = await tx.lease_turn("turn", "w", seconds=60)
    assert turn is not None
    return turn.fence


@pytest.fixture
async def other_process(dsn: str, clock: ManualClock) -> AsyncIterator[Transaction]:
    store = await PostgresStore.open(dsn, clock=clock)
    yield store.scoped(ALICE)
    await store.close()


async def test_a_watch_wakes_for_a_change_of_another_process(
    own_store: PostgresStore, other_process: Transaction, running: int
) -> None:
    async with own_store.watch(ALICE, "turn") as watch, asyncio.timeout(30):
        for number in range(1, 4):
            waiting = asyncio.create_task(watch.wait(60))
            await other_process.put_chunks("turn", running, [Chunk(number, b"{}")])
            await waiting


async def test_a_change_between_two_waits_is_not_missed(
    own_store: PostgresStore, other_process: Transaction, running: int
) -> None:
    async with own_store.watch(ALICE, "turn") as watch, asyncio.timeout(30):
        await other_process.put_chunks("turn", running, [Chunk(1, b"{}")])
        await watch.wait(60)


async def test_a_turn_with_the_same_id_in_another_tenant_wakes_no_watch(
    own_store: PostgresStore, admin: asyncpg.Connection, running: int
) -> None:
    async with own_store.watch(ALICE, "turn") as watch:
        await admin.execute("SELECT threadline.notify('b', 'turn'), threadline.notify('a', 'another')")
        started = asyncio.get_running_loop().time()
        await watch.wait(0.2)
        assert asyncio.get_running_loop().time() - started >= 0.19


async def test_a_rolled_back_change_wakes_no_watch(own_store: PostgresStore, running: int) -> None:
    async def work(tx: Transaction) -> None:
        await tx.request_stop("turn")
        raise KeyError

    async with own_store.watch(ALICE, "turn") as watch:
        with pytest.raises(KeyError):
            await own_store.transact(ALICE, work)
        started = asyncio.get_running_loop().time()
        await watch.wait(0.2)
        assert asyncio.get_running_loop().time() - started >= 0.19


async def test_a_lost_listener_wakes_every_watch_and_reconnects(
    own_store: PostgresStore, other_process: Transaction, admin: asyncpg.Connection, running: int
) -> None:
    async with own_store.watch(ALICE, "turn") as watch, asyncio.timeout(30):
        waiting = asyncio.create_task(watch.wait(60))
        await asyncio.sleep(0)
        await admin.execute(f"SELECT pg_terminate_backend(pid) {LISTENING}")
        await waiting
        # It wakes once more when it listens again, because of what it may have missed.
        await watch.wait(60)
        waiting = asyncio.create_task(watch.wait(60))
        await other_process.request_stop("turn")
        await waiting


async def test_without_a_listener_a_watch_polls(
    dsn: str, clock: ManualClock, running: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    store = await PostgresStore.open(f"{dsn}&pgbouncer=true", clock=clock)
    async with store.watch(ALICE, "turn") as watch, asyncio.timeout(30):
        for _ in range(3):
            await watch.wait(60)
    await store.close()


async def test_many_watches_share_one_connection(
    own_store: PostgresStore, admin: asyncpg.Connection, running: int
) -> None:
    watches = [own_store.watch(ALICE, "turn") for _ in range(20)]
    opened = await asyncio.gather(*(watch.__aenter__() for watch in watches))
    assert await admin.fetchval(f"SELECT count(*) {LISTENING}") == 1
    async with asyncio.timeout(30):
        waiting = [asyncio.create_task(watch.wait(60)) for watch in opened]
        await own_store.scoped(ALICE).request_stop("turn")
        await asyncio.gather(*waiting)
    for watch in watches:
        await watch.__aexit__(None, None, None)


async def test_closing_the_store_wakes_every_watch(dsn: str, clock: ManualClock, running: int) -> None:
    store = await PostgresStore.open(dsn, clock=clock)
    async with store.watch(ALICE, "turn") as watch, asyncio.timeout(30):
        waiting = asyncio.create_task(watch.wait(60))
        await asyncio.sleep(0)
        await store.close()
        await waiting
