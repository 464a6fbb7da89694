"""Notifications to other processes: after the commit, once, and ignored by the process that sent them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from threadline.core.threads import NewThread, Scope
from threadline.ports import Transaction
from threadline.stores.postgres import change_watch
from threadline.stores.postgres.change_watch import CHANNEL
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import user_message

ALICE = Scope("a", "alice")
MARK = "the end"


class Received(asyncio.Queue[str]):
    """The payloads that another listener received, without the sender."""

    def add(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self.put_nowait(str(payload).partition("@")[0])

    async def until(self, last: str) -> list[str]:
        payloads = []
        async with asyncio.timeout(30):
            while (each := await self.get()) != last:
                payloads.append(each)
        return sorted(payloads)


@pytest.fixture
async def received(admin: asyncpg.Connection) -> AsyncIterator[Received]:
    received = Received()
    await admin.add_listener(CHANNEL, received.add)
    yield received
    await admin.remove_listener(CHANNEL, received.add)


async def mark(admin: asyncpg.Connection) -> None:
    await admin.execute("SELECT pg_notify($1, $2)", CHANNEL, MARK)


async def test_changes_are_sent_in_one_batch_when_the_store_closes(
    dsn: str, admin: asyncpg.Connection, received: Received, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_watch, "BATCH_SECONDS", 3_600)
    store = await PostgresStore.open(dsn, clock=clock)
    tx = store.scoped(ALICE)
    await tx.create_thread(NewThread(id="thread", state_key="key"))
    for text in ("one", "two", "three"):
        await tx.append("thread", [user_message(text)])
    await store.close()
    await mark(admin)
    assert await received.until(MARK) == ["a key", "a thread"]


async def test_a_rolled_back_change_is_not_sent(
    dsn: str, admin: asyncpg.Connection, received: Received, clock: ManualClock
) -> None:
    async def work(tx: Transaction) -> None:
        await tx.create_thread(NewThread(state_key="key"))
        raise KeyError

    store = await PostgresStore.open(dsn, clock=clock)
    with pytest.raises(KeyError):
        await store.transact(ALICE, work)
    await store.close()
    await mark(admin)
    assert await received.until(MARK) == []


async def test_the_process_that_made_a_change_wakes_once(
    own_store: PostgresStore, admin: asyncpg.Connection, received: Received
) -> None:
    """Immediately; the notification to other processes does not wake it again."""
    tx = own_store.scoped(ALICE)
    async with asyncio.timeout(30), own_store.watch(ALICE, "key") as watch, own_store.watch(ALICE, "mark") as marked:
        await tx.create_thread(NewThread(state_key="key"))
        await watch.wait(60)
        again = asyncio.create_task(watch.wait(60))
        await received.until("a key")
        # Notifications arrive in order, so the one before this has arrived as well.
        await admin.execute("SELECT threadline.notify('a', 'mark')")
        await marked.wait(60)
        assert not again.done()
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


async def test_a_store_closes_without_its_server(
    dsn: str, admin: asyncpg.Connection, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_watch, "BATCH_SECONDS", 3_600)
    store = await PostgresStore.open(dsn, clock=clock)
    await store.scoped(ALICE).create_thread(NewThread())
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    async with asyncio.timeout(30):
        await store.close()
