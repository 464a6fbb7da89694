"""What is told to other processes about threads: after the commit, once, and not to oneself."""

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


class Heard(asyncio.Queue[str]):
    """What somebody else who listens was told, without who told it."""

    def hear(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self.put_nowait(str(payload).partition("@")[0])

    async def until(self, last: str) -> list[str]:
        told = []
        async with asyncio.timeout(30):
            while (each := await self.get()) != last:
                told.append(each)
        return sorted(told)


@pytest.fixture
async def heard(admin: asyncpg.Connection) -> AsyncIterator[Heard]:
    heard = Heard()
    await admin.add_listener(CHANNEL, heard.hear)
    yield heard
    await admin.remove_listener(CHANNEL, heard.hear)


async def mark(admin: asyncpg.Connection) -> None:
    await admin.execute("SELECT pg_notify($1, $2)", CHANNEL, MARK)


async def test_what_changed_in_a_moment_is_told_once_and_the_rest_when_the_store_closes(
    dsn: str, admin: asyncpg.Connection, heard: Heard, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_watch, "BATCH_SECONDS", 3_600)
    store = await PostgresStore.open(dsn, clock=clock)
    tx = store.scoped(ALICE)
    await tx.create_thread(NewThread(id="thread", state_key="key"))
    for text in ("one", "two", "three"):
        await tx.append("thread", [user_message(text)])
    await store.close()
    await mark(admin)
    assert await heard.until(MARK) == ["a key", "a thread"]


async def test_what_was_rolled_back_is_not_told(
    dsn: str, admin: asyncpg.Connection, heard: Heard, clock: ManualClock
) -> None:
    async def work(tx: Transaction) -> None:
        await tx.create_thread(NewThread(state_key="key"))
        raise KeyError

    store = await PostgresStore.open(dsn, clock=clock)
    with pytest.raises(KeyError):
        await store.transact(ALICE, work)
    await store.close()
    await mark(admin)
    assert await heard.until(MARK) == []


async def test_who_changed_it_is_woken_once(own_store: PostgresStore, admin: asyncpg.Connection, heard: Heard) -> None:
    """By itself, at once; what it told the others does not wake it again."""
    tx = own_store.scoped(ALICE)
    async with asyncio.timeout(30), own_store.watch(ALICE, "key") as watch, own_store.watch(ALICE, "mark") as marked:
        await tx.create_thread(NewThread(state_key="key"))
        await watch.wait(60)
        again = asyncio.create_task(watch.wait(60))
        await heard.until("a key")
        # Notices come in order: whoever hears this one has heard the one before.
        await admin.execute("SELECT threadline.notify('a', 'mark')")
        await marked.wait(60)
        assert not again.done()
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


async def test_a_store_whose_server_is_gone_closes_all_the_same(
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
