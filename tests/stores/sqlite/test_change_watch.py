"""Watches: woken by this process's commits at once, by other processes' within a moment, and deaf to nothing."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.stores.sqlite.conftest import OpenSqlite
from threadline.core.threads import NewThread, Scope
from threadline.core.turns import Chunk
from threadline.ports import Transaction
from threadline.stores.sqlite import change_watch as watching
from threadline.stores.sqlite import store as sqlite_store
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn

PATIENCE = 30


async def running_turn(tx: Transaction, clock: ManualClock, turn_id: str) -> int:
    thread = await tx.create_thread(NewThread())
    await add_turn(tx, turn_id, thread.id, "web")
    turn = await tx.lease_turn(turn_id, "w1", seconds=60)
    assert turn is not None
    return turn.fence


async def test_another_processs_commit_wakes_a_watch(open_sqlite: OpenSqlite, clock: ManualClock) -> None:
    ours, theirs = await open_sqlite(), await open_sqlite()
    fence = await running_turn(ours.scoped(Scope()), clock, "turn-1")
    async with asyncio.timeout(PATIENCE), ours.watch(Scope(), "turn-1") as watch:
        for n in (1, 2):
            waiting = asyncio.create_task(watch.wait(PATIENCE))
            await asyncio.sleep(0)
            await theirs.scoped(Scope()).put_chunks("turn-1", fence, [Chunk(n, b"{}")])
            await waiting
            assert len(await ours.scoped(Scope()).chunks("turn-1")) == n


async def test_another_processs_commit_right_after_the_watch_began_wakes_it(
    open_sqlite: OpenSqlite, path: Path
) -> None:
    """Before the loop has taken a single step."""
    store = await open_sqlite()
    await store.scoped(Scope()).create_thread(NewThread())
    with closing(apsw.Connection(str(path))) as theirs:
        async with asyncio.timeout(PATIENCE), store.watch(Scope(), "key") as watch:
            theirs.execute("UPDATE threads SET title = 'Lisbon'")
            await watch.wait(2 * PATIENCE)


async def test_what_happened_between_two_waits_is_not_missed(open_sqlite: OpenSqlite, clock: ManualClock) -> None:
    store = await open_sqlite()
    tx = store.scoped(Scope())
    fence = await running_turn(tx, clock, "turn-1")
    async with asyncio.timeout(PATIENCE), store.watch(Scope(), "turn-1") as watch:
        await tx.put_chunks("turn-1", fence, [Chunk(1, b"{}")])
        await watch.wait(PATIENCE)


async def test_a_turn_wakes_its_own_watchers_immediately(
    open_sqlite: OpenSqlite, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polling is off, so only the writer can wake the watches."""
    monkeypatch.setattr(watching, "POLL_SECONDS", 3_600)
    store = await open_sqlite()
    tx = store.scoped(Scope())
    fence = await running_turn(tx, clock, "turn-1")
    async with (
        asyncio.timeout(PATIENCE),
        store.watch(Scope(), "turn-1") as own,
        store.watch(Scope("elsewhere"), "turn-1") as namesake,
        store.watch(Scope(), "turn-2") as other,
    ):
        waits = {watch: asyncio.create_task(watch.wait(PATIENCE)) for watch in (own, namesake, other)}
        await asyncio.sleep(0)
        await tx.put_chunks("turn-1", fence, [Chunk(1, b"{}")])
        await waits[own]
        assert not waits[namesake].done()
        assert not waits[other].done()
        for wait in waits.values():
            wait.cancel()
        await asyncio.gather(*waits.values(), return_exceptions=True)


async def test_who_looks_at_the_file_is_not_woken_by_what_this_process_writes(
    open_sqlite: OpenSqlite, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.001)
    ours = await open_sqlite()
    tx = ours.scoped(Scope())
    fence = await running_turn(tx, clock, "turn-1")
    async with asyncio.timeout(PATIENCE), ours.watch(Scope(), "turn-2") as other:
        waiting = asyncio.create_task(other.wait(PATIENCE))
        for n in range(1, 6):
            await tx.put_chunks("turn-1", fence, [Chunk(n, b"{}")])
            await asyncio.sleep(0.01)
            await ours.transact(Scope(), lambda work: work.create_thread(NewThread()))
            await asyncio.sleep(0.01)
        assert not waiting.done()
        # Opened only now: an idle store indexes what is pending, which is a commit of another process.
        theirs = await open_sqlite()
        await theirs.scoped(Scope()).put_chunks("turn-1", fence, [Chunk(6, b"{}")])
        await waiting


async def test_housekeeping_does_not_wake_a_watch_that_starts_during_it(
    open_sqlite: OpenSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number cannot be looked up then, and the one that is known must not seem to be another."""
    at_work, done = threading.Event(), threading.Event()

    def housekeeping(_database: object) -> bool:
        at_work.set()
        done.wait(PATIENCE)
        return False

    monkeypatch.setattr(sqlite_store, "index_when_idle", housekeeping)
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.001)
    store = await open_sqlite()
    assert await asyncio.to_thread(at_work.wait, PATIENCE)
    async with store.watch(Scope(), "key") as watch:
        waiting = asyncio.create_task(watch.wait(PATIENCE))
        done.set()
        await asyncio.sleep(0.1)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_the_file_is_not_polled_without_watchers(open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()

    def lookers() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "threadline-watch"]

    assert lookers() == []
    async with store.watch(Scope(), "one"), store.watch(Scope(), "two"):
        assert lookers() == ["threadline-watch"]
    assert lookers() == []
    async with store.watch(Scope(), "one"):
        assert lookers() == ["threadline-watch"]


async def test_a_wait_ends_after_its_time(open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()
    async with asyncio.timeout(PATIENCE), store.watch(Scope(), "turn-1") as watch:
        await watch.wait(0.001)
    assert watching.POLL_SECONDS <= 0.05
