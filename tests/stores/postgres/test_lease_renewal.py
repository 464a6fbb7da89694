"""A turn that runs keeps its lease, whatever else uses the database: a living turn must not be taken over."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from threadline.core.threads import NewThread, Scope
from threadline.core.turn_commits import Accepted, TurnAcceptance
from threadline.core.turns import Lease
from threadline.ports import Transaction
from threadline.processes import LocalProcesses
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import (
    add_turn,
    clean_text,
    create_thread_with,
    user_message,
)
from threadline.turns.leases import Leases, Timing

pytestmark = pytest.mark.req("R-04")

ALICE = Scope("a", "alice")
WAIT_SECONDS = 60.0
CONNECTIONS = 2
BLOCKED = """
    SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted
"""


@pytest.fixture(params=["direct", "pgbouncer"])
async def store(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[PostgresStore]:
    """With the server's clock, as in a service. `pgbouncer` uses the settings for one, without one."""
    joint = "&" if "?" in dsn else "?"
    url = dsn if request.param == "direct" else f"{dsn}{joint}pgbouncer=true"
    store = await PostgresStore.open(url, max_size=CONNECTIONS)
    yield store
    await store.close()


@asynccontextmanager
async def all_connections_in_use(store: PostgresStore) -> AsyncIterator[None]:
    """Transactions hold every connection, and further calls wait behind them."""
    released = asyncio.Event()

    async def hold(tx: Transaction) -> None:
        await tx.threads()
        await released.wait()

    holding = [asyncio.create_task(store.transact(Scope("a", f"user{n}"), hold)) for n in range(CONNECTIONS)]
    waiting = [asyncio.create_task(store.scoped(Scope("a", f"late{n}")).threads()) for n in range(4)]
    try:
        while store.pool_stats().waiting < len(waiting):  # noqa: ASYNC110 - nothing to await
            await asyncio.sleep(0.01)
        yield
    finally:
        released.set()
        await asyncio.gather(*holding, *waiting)


async def lease_until(admin: asyncpg.Connection) -> dt.datetime:
    found = await admin.fetchval("SELECT lease_until FROM threadline.turns WHERE tenant_id = 'a'")
    assert isinstance(found, dt.datetime)
    return found


async def test_leases_are_renewed_while_every_connection_is_in_use(
    store: PostgresStore, admin: asyncpg.Connection
) -> None:
    session = store.scoped(ALICE)
    thread = await create_thread_with(session, "hello")
    await add_turn(session, "turn-1", thread.id)
    leases = Leases(store, LocalProcesses(None), Timing(lease_seconds=0.6, wait_seconds=0.1))
    turn = await leases.lease(ALICE, (await session.active_turns(thread.id))[0])
    assert turn is not None
    lost: list[str] = []
    keeping = asyncio.create_task(
        leases.keep(ALICE, turn, stop=lambda: lost.append("stop"), lose=lambda: lost.append("lose"))
    )
    try:
        async with asyncio.timeout(WAIT_SECONDS), all_connections_in_use(store):
            for _ in range(3):
                before = await lease_until(admin)
                while await lease_until(admin) == before:  # noqa: ASYNC110 - nothing to await
                    await asyncio.sleep(0.01)
    finally:
        keeping.cancel()
    assert lost == []


async def test_a_request_to_stop_is_seen_while_every_connection_is_in_use(
    store: PostgresStore, admin: asyncpg.Connection
) -> None:
    session = store.scoped(ALICE)
    thread = await create_thread_with(session, "hello")
    await add_turn(session, "turn-1", thread.id)
    leases = Leases(store, LocalProcesses(None), Timing(lease_seconds=30, wait_seconds=0.1))
    turn = await leases.lease(ALICE, (await session.active_turns(thread.id))[0])
    assert turn is not None
    stopped = asyncio.Event()
    keeping = asyncio.create_task(leases.keep(ALICE, turn, stop=stopped.set, lose=lambda: None))
    try:
        async with asyncio.timeout(WAIT_SECONDS), all_connections_in_use(store):
            await admin.execute("UPDATE threadline.turns SET stop_asked = true WHERE tenant_id = 'a'")
            await stopped.wait()
    finally:
        keeping.cancel()


async def test_a_lease_begins_when_it_is_granted(store: PostgresStore, admin: asyncpg.Connection) -> None:
    """Not when its transaction began: that may have waited for other transactions of the user since."""
    session = store.scoped(ALICE)
    thread = await session.create_thread(NewThread())
    new = TurnAcceptance(
        turn_id="turn-1",
        surface="web",
        title=clean_text("A title"),
        message=user_message("Is it far?"),
        policy="reject",
        lease=Lease("w", 5),
        thread_id=thread.id,
    )
    async with asyncio.timeout(WAIT_SECONDS):
        await admin.execute("SELECT pg_advisory_lock(hashtextextended('a/alice', 1))")
        accepting = asyncio.create_task(session.accept_turn(new))
        while not await admin.fetchval(BLOCKED):  # noqa: ASYNC110 - nothing to await
            await asyncio.sleep(0.01)
        still_locked_at = await admin.fetchval("SELECT clock_timestamp()")
        await admin.execute("SELECT pg_advisory_unlock_all()")
        accepted = await accepting
    assert isinstance(accepted, Accepted)
    assert await lease_until(admin) >= still_locked_at + dt.timedelta(seconds=5)
