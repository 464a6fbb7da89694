"""Reads that wait for a connection: equal ones share a result, those of different scopes do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from threadline.core.channels import Agent
from threadline.core.errors import StoreUnavailable
from threadline.core.threads import NewThread, Scope, ThreadChanges
from threadline.ports import Transaction
from threadline.stores.postgres import change_watch
from threadline.stores.postgres.pool import Address, Pool, ReadCoalescer
from threadline.stores.postgres.store import PostgresStore

ALICE, BOB = Scope("a", "alice"), Scope("a", "bob")
MANY = 20


@pytest.fixture
async def narrow(dsn: str) -> AsyncIterator[PostgresStore]:
    """A store with a single connection."""
    store = await PostgresStore.open(dsn, max_size=1)
    yield store
    await store.close()


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notices to other processes wait for a connection too; here only reads do."""
    monkeypatch.setattr(change_watch, "BATCH_SECONDS", 3_600)


@asynccontextmanager
async def occupied(store: PostgresStore) -> AsyncIterator[None]:
    """The store's only connection is in use."""
    taken, over = asyncio.Event(), asyncio.Event()

    async def hold(tx: Transaction) -> None:
        taken.set()
        await over.wait()

    holding = asyncio.create_task(store.transact(Scope("a", "carol"), hold))
    await asyncio.wait_for(taken.wait(), 30)
    yield
    over.set()
    await holding


async def waiting_reads(store: PostgresStore) -> int:
    """How many reads wait, after all tasks have started."""
    for _ in range(10):
        await asyncio.sleep(0)
    return store.pool_stats().waiting


async def test_equal_reads_that_wait_share_one_result(narrow: PostgresStore) -> None:
    alice = narrow.scoped(ALICE)
    thread = await alice.create_thread(NewThread())
    async with occupied(narrow):
        reads = [asyncio.create_task(alice.thread(thread.id)) for _ in range(MANY)]
        assert await waiting_reads(narrow) == 1
    assert await asyncio.gather(*reads) == [await alice.thread(thread.id)] * MANY


async def test_a_shared_result_is_not_older_than_the_last_caller(
    narrow: PostgresStore, own_store: PostgresStore
) -> None:
    thread = await narrow.scoped(ALICE).create_thread(NewThread())
    async with occupied(narrow):
        early = asyncio.create_task(narrow.scoped(ALICE).thread(thread.id))
        assert await waiting_reads(narrow) == 1
        changed = await own_store.scoped(ALICE).update_thread(thread.id, ThreadChanges(title="New"))
        late = asyncio.create_task(narrow.scoped(ALICE).thread(thread.id))
        assert await waiting_reads(narrow) == 1
    assert await early == await late == changed


async def test_reads_of_different_scopes_are_not_shared(narrow: PostgresStore) -> None:
    thread = await narrow.scoped(ALICE).create_thread(NewThread())
    async with occupied(narrow):
        reads = [asyncio.create_task(narrow.scoped(who).thread(thread.id)) for who in (ALICE, BOB)]
        assert await waiting_reads(narrow) == 2
    assert [found is not None for found in await asyncio.gather(*reads)] == [True, False]


async def test_reads_for_all_users_of_a_tenant_are_shared(narrow: PostgresStore) -> None:
    agent = Agent("helper", "Helper", "echo")
    await narrow.scoped(Scope("a", "alice", "admin")).put_agent(agent)
    other_tenant = Scope("b", "alice")
    async with occupied(narrow):
        own = [asyncio.create_task(narrow.scoped(who).agent("helper")) for who in (ALICE, BOB, Scope("a", "carol"))]
        other = asyncio.create_task(narrow.scoped(other_tenant).agent("helper"))
        assert await waiting_reads(narrow) == 2
    assert await asyncio.gather(*own) == [agent] * 3
    assert await other is None


async def test_a_cancelled_caller_does_not_cancel_the_shared_read(narrow: PostgresStore) -> None:
    alice = narrow.scoped(ALICE)
    thread = await alice.create_thread(NewThread())
    async with occupied(narrow):
        first, second = (asyncio.create_task(alice.thread(thread.id)) for _ in range(2))
        assert await waiting_reads(narrow) == 1
        first.cancel()
        await asyncio.wait([first])
    found = await second
    assert found is not None
    assert found.id == thread.id
    assert narrow.pool_stats().in_use == 0


async def test_a_failed_shared_read_fails_for_all_and_is_not_kept(dsn: str) -> None:
    pool = Pool(Address.parse(dsn), max_size=1)
    await pool.open(min_size=1)
    await pool.close()
    coalescer = ReadCoalescer(pool, lambda *_: asyncio.get_running_loop().create_future())
    for _ in range(2):
        errors = await asyncio.gather(*(coalescer.read("SELECT 1", ()) for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in errors] == [StoreUnavailable] * 3
