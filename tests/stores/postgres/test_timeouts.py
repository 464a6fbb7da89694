"""Waits on PostgreSQL are bounded: for a lock, a statement, a connection, a user's other transactions and a server that
does not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from threadline.core.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from threadline.core.threads import NewThread, Scope, system_scope
from threadline.core.timeouts import Timeouts
from threadline.ports import Transaction
from threadline.stores.postgres import pool as pool_module
from threadline.stores.postgres.errors import as_store_error, may_repeat
from threadline.stores.postgres.pool import Address
from threadline.stores.postgres.session import ScopedSession, transact
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history
from threadline.testing.postgres import shared_server

ALICE = Scope("a", "alice")
SHORT = Timeouts(pool_seconds=0.2, lock_seconds=0.2, statement_seconds=0.5)


@asynccontextmanager
async def opened(dsn: str, timeouts: Timeouts = SHORT, max_size: int = 4) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(dsn, timeouts=timeouts, max_size=max_size)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def locked(dsn: str, statement: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(shared_server().admin_dsn(dsn))
    try:
        async with connection.transaction():
            await connection.execute(statement)
            yield
    finally:
        await connection.close()


@pytest.mark.req("R-04")
async def test_an_append_to_a_locked_thread_is_busy_and_others_go_through(dsn: str) -> None:
    async with opened(dsn) as store:
        session = store.scoped(ALICE)
        stuck_id = (await create_thread_with(session, "a")).id
        free_id = (await create_thread_with(session, "a")).id
        async with locked(dsn, f"SELECT 1 FROM threadline.threads WHERE id = '{stuck_id}' FOR UPDATE"):
            results = await asyncio.gather(
                *(session.append(stuck_id, exchange("b")) for _ in range(4)),
                *(session.append(free_id, exchange("b")) for _ in range(4)),
                return_exceptions=True,
            )
        assert [type(result) for result in results[:4]] == [StoreBusy] * 4
        assert not any(isinstance(result, BaseException) for result in results[4:])
        assert await history(session, stuck_id) == ["a"]
        assert await history(session, free_id) == ["a"] + ["b"] * 4
        await session.append(stuck_id, exchange("b"))


@pytest.mark.req("R-04")
async def test_a_transaction_that_waits_for_a_lock_leaves_its_connection_usable(dsn: str) -> None:
    async with opened(dsn, max_size=1) as store:
        thread = await store.scoped(ALICE).create_thread(NewThread())

        async def rename(tx: Transaction) -> None:
            await tx.delete_thread(thread.id)

        async with locked(dsn, "LOCK TABLE threadline.threads IN ACCESS EXCLUSIVE MODE"):
            for _ in range(3):
                with pytest.raises(StoreBusy, match="nothing was stored"):
                    await store.transact(ALICE, rename)
                with pytest.raises(StoreBusy):
                    await store.check_writable()
        assert store.pool_stats().open == 1
        assert await store.scoped(ALICE).thread(thread.id) is not None
        await store.check_writable()


@pytest.mark.req("R-04")
async def test_a_statement_that_takes_too_long_is_ended(dsn: str) -> None:
    async with opened(dsn) as store:
        with pytest.raises(StoreBusy):
            await store._internals.runner.run("SELECT pg_sleep(60)", (), True)  # noqa: SLF001 - no operation is slow


@pytest.mark.req("R-04")
async def test_waiting_for_a_connection_ends(dsn: str) -> None:
    async with opened(dsn, Timeouts(pool_seconds=0.2, lock_seconds=30), max_size=2) as store:
        thread = await store.scoped(ALICE).create_thread(NewThread())
        async with locked(dsn, "LOCK TABLE threadline.threads IN ACCESS EXCLUSIVE MODE"):
            holding = [asyncio.create_task(store.scoped(ALICE).thread(thread.id)) for _ in range(2)]
            while store.pool_stats().in_use < 2:  # noqa: ASYNC110 - a number cannot be awaited
                await asyncio.sleep(0.01)
            with pytest.raises(StoreBusy, match=r"no connection to PostgreSQL was free for 0\.2 seconds"):
                await store.tenants()
        for task in holding:
            assert await task is not None
        assert store.pool_stats().waiting == 0


@pytest.mark.req("R-04")
async def test_waiting_for_other_transactions_of_the_user_ends(dsn: str) -> None:
    async with opened(dsn, Timeouts(pool_seconds=0.2)) as store:
        entered, leave = asyncio.Event(), asyncio.Event()

        async def hold(tx: Transaction) -> None:
            entered.set()
            await leave.wait()

        holding = asyncio.create_task(store.transact(ALICE, hold))
        await entered.wait()
        with pytest.raises(StoreBusy, match="other transactions of this user"):
            await store.transact(ALICE, hold)
        leave.set()
        await holding


@pytest.mark.req("R-04")
async def test_maintenance_may_take_longer_than_a_statement(dsn: str) -> None:
    async def work(session: ScopedSession) -> int:
        await session.allow_long_statements()
        return len(await session.rows_of_schema("SELECT pg_sleep(1)"))

    async with opened(dsn) as store:
        assert await transact(store._internals, system_scope("a"), work) == 1  # noqa: SLF001 - no operation is slow


@pytest.mark.req("R-04")
async def test_a_server_that_does_not_answer_is_given_up(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own limit does not hold here, as behind a network that lost the connection."""
    monkeypatch.setattr(pool_module, "limit_statement", lambda timeouts, extent: "SELECT 1")
    monkeypatch.setattr(pool_module, "_ANSWER_SECONDS", 0.1)
    async with opened(dsn, Timeouts(statement_seconds=0.2), max_size=1) as store:
        runner = store._internals.runner  # noqa: SLF001 - no operation is slow
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            await runner.run("SELECT pg_sleep(60)", (), True)
        with pytest.raises(OutcomeUnknown):
            await runner.run("SELECT pg_sleep(60)", (), False)
        assert store.pool_stats().open == 0
        assert await store.tenants() == []


async def test_connecting_is_bounded() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        dsn = f"postgresql://nobody@127.0.0.1:{port}/none?sslmode=disable"
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            await PostgresStore.open(dsn, timeouts=Timeouts(connect_seconds=0.2))


def test_the_error_of_a_pgbouncer_names_the_setting() -> None:
    for error in (
        asyncpg.InvalidSQLStatementNameError('prepared statement "__asyncpg_stmt_1__" does not exist'),
        asyncpg.DuplicatePreparedStatementError('prepared statement "__asyncpg_stmt_1__" already exists'),
    ):
        found = as_store_error(error)
        assert "?pgbouncer=true" in str(found)
        assert not may_repeat(found)


async def test_behind_a_pgbouncer_each_transaction_has_its_limits(dsn: str) -> None:
    address = Address.parse(f"{dsn}&pgbouncer=true" if "?" in dsn else f"{dsn}?pgbouncer=true")
    assert address.pgbouncer
    store = await PostgresStore.open(f"{dsn}{'&' if '?' in dsn else '?'}pgbouncer=true", timeouts=SHORT)
    thread = await store.scoped(ALICE).create_thread(NewThread())

    async def delete(tx: Transaction) -> None:
        await tx.delete_thread(thread.id)

    async with locked(dsn, "LOCK TABLE threadline.threads IN ACCESS EXCLUSIVE MODE"):
        with pytest.raises(StoreBusy):
            await store.transact(ALICE, delete)
    await store.close()
