"""Broken connections and servers that refuse: a typed error or a retry, and never half a transaction."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from threadline.core.errors import (
    OutcomeUnknown,
    SchemaMismatch,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from threadline.core.threads import NewThread, Scope, system_scope
from threadline.ports import Transaction
from threadline.stores.postgres import statement_runner
from threadline.stores.postgres.errors import as_store_error, may_repeat
from threadline.stores.postgres.pool import Address, Pool
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history
from threadline.testing.postgres import PostgresServer, installations

ALICE = Scope("a", "alice")
TERMINATE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


class Wire:
    """A socket between a store and its server, which a test can cut before or after a message has passed."""

    def __init__(self, server: PostgresServer, directory: Path) -> None:
        self._target = str(server.directory / ".s.PGSQL.5432")
        self.directory = directory
        self.cut_at: bytes | None = None
        """Cut when the client sends this: it reaches the server, and the response is lost."""
        self.cuts = 0
        self._listening: asyncio.Server | None = None

    async def open(self) -> None:
        self._listening = await asyncio.start_unix_server(self._pass_on, str(self.directory / ".s.PGSQL.5432"))

    async def close(self) -> None:
        assert self._listening is not None
        self._listening.close()

    async def _pass_on(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_unix_connection(self._target)
        is_cut = asyncio.Event()
        answering = asyncio.create_task(self._answer(server, to_client, is_cut))
        try:
            while not is_cut.is_set() and (data := await client.read(65_536)):
                if self.cut_at is not None and self.cut_at in data:
                    self.cut_at, self.cuts = None, self.cuts + 1
                    is_cut.set()
                to_server.write(data)
            if not is_cut.is_set():
                to_server.close()
            await answering
        finally:
            for end in (to_server, to_client):
                end.close()

    @staticmethod
    async def _answer(server: asyncio.StreamReader, to_client: asyncio.StreamWriter, is_cut: asyncio.Event) -> None:
        """Until the server has responded to what was sent before the cut; the response is lost."""
        while (data := await server.read(65_536)) and not is_cut.is_set():
            to_client.write(data)
        to_client.close()


@pytest.fixture
async def wire(server: PostgresServer, tmp_path: Path) -> AsyncIterator[Wire]:
    wire = Wire(server, tmp_path)
    await wire.open()
    yield wire
    await wire.close()


@pytest.fixture
async def wired(wire: Wire, dsn: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(f"{dsn.partition('?')[0]}?host={wire.directory}", max_size=2)
    yield store
    await store.close()


async def test_work_is_retried_after_its_backend_was_terminated(
    own_store: PostgresStore, admin: asyncpg.Connection
) -> None:
    thread = await create_thread_with(own_store.scoped(ALICE), "a")
    tries = 0

    async def work(tx: Transaction) -> None:
        nonlocal tries
        tries += 1
        await tx.append(thread.id, exchange("b"))
        if tries == 1:
            await admin.execute(TERMINATE)
        await tx.append(thread.id, exchange("c"))

    await own_store.transact(ALICE, work)
    assert tries == 2
    assert await history(own_store.scoped(ALICE), thread.id) == ["a", "b", "c"]


async def test_closed_idle_connections_are_replaced(own_store: PostgresStore, admin: asyncpg.Connection) -> None:
    tx = own_store.scoped(ALICE)
    thread = await create_thread_with(tx, "a")
    await asyncio.gather(*(tx.thread(thread.id) for _ in range(8)))
    await admin.execute(TERMINATE)
    assert await asyncio.gather(*(history(tx, thread.id) for _ in range(8))) == [["a"]] * 8


async def test_a_commit_without_an_answer_is_an_unknown_outcome(wire: Wire, wired: PostgresStore) -> None:
    tx = wired.scoped(ALICE)
    thread = await create_thread_with(tx, "a")

    async def work(inside: Transaction) -> None:
        await inside.append(thread.id, exchange("b"), key="k")

    wire.cut_at = b"COMMIT"
    with pytest.raises(OutcomeUnknown, match="same key"):
        await wired.transact(ALICE, work)
    assert (await tx.append(thread.id, exchange("b"), key="k")).replayed
    assert await history(tx, thread.id) == ["a", "b"]


async def test_a_write_without_an_answer_is_an_unknown_outcome(wire: Wire, wired: PostgresStore) -> None:
    tx = wired.scoped(ALICE)
    thread = await create_thread_with(tx, "a")
    said = exchange("the answer to this is lost")
    wire.cut_at = b"the answer to this is lost"
    with pytest.raises(OutcomeUnknown):
        await tx.append(thread.id, said)
    assert (await tx.append(thread.id, said)).replayed
    assert await history(tx, thread.id) == ["a", "the answer to this is lost"]


async def test_a_read_without_an_answer_is_repeated(wire: Wire, wired: PostgresStore) -> None:
    tx = wired.scoped(ALICE)
    thread = await create_thread_with(tx, "a", new=NewThread(id="findme"))
    wire.cut_at = b"findme"
    assert await history(tx, thread.id) == ["a"]
    assert wire.cuts == 1


async def test_a_transaction_that_breaks_before_its_commit_is_repeated(wire: Wire, wired: PostgresStore) -> None:
    thread = await create_thread_with(wired.scoped(ALICE), "a")

    async def work(tx: Transaction) -> None:
        await tx.append(thread.id, exchange("once"))

    wire.cut_at = b"once"
    await wired.transact(ALICE, work)
    assert wire.cuts == 1
    assert await history(wired.scoped(ALICE), thread.id) == ["a", "once"]


async def test_a_missing_server_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="check that it runs"):
        await PostgresStore.open(f"postgresql://ada@/nowhere?host={tmp_path}")


async def test_an_unknown_database_and_an_unknown_login_are_unavailable(server: PostgresServer, dsn: str) -> None:
    for address in (server.dsn("nowhere"), server.dsn("postgres", user="nobody_known")):
        with pytest.raises(StoreUnavailable):
            await PostgresStore.open(address)


async def test_a_stopped_server_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_runner, "_FIRST_PAUSE_SECONDS", 0.0)
    server = PostgresServer(installations()["embedded"], Path(tempfile.mkdtemp(prefix="tl-")))
    server.ensure_started()
    try:
        store = await PostgresStore.open(await server.create_database())
        thread = await create_thread_with(store.scoped(ALICE), "a")
    finally:
        server.stop()
    verbs: list[Callable[[], Awaitable[object]]] = [
        lambda: store.scoped(ALICE).messages(thread.id),
        lambda: store.scoped(ALICE).append(thread.id, exchange("b")),
        lambda: store.scoped(ALICE).saved_points(),
        store.tenants,
    ]
    for verb in verbs:
        with pytest.raises(StoreUnavailable):
            await verb()
    await store.close()
    server.discard()


async def test_a_read_only_server_has_its_own_error(
    own_store: PostgresStore, admin: asyncpg.Connection, dsn: str
) -> None:
    thread = await create_thread_with(own_store.scoped(ALICE), "a")
    name = await admin.fetchval("SELECT current_database()")
    await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    store = await PostgresStore.open(dsn)
    try:
        assert await history(store.scoped(ALICE), thread.id) == ["a"]
        for verb in (
            store.scoped(ALICE).append(thread.id, exchange("b")),
            store.scoped(ALICE).delete_thread(thread.id),
        ):
            with pytest.raises(StoreReadOnly, match="primary"):
                await verb
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("error", "kind", "repeatable"),
    [
        (asyncpg.DiskFullError("no space left"), StoreFull, False),
        (asyncpg.ReadOnlySQLTransactionError("reason"), StoreReadOnly, False),
        (asyncpg.TooManyConnectionsError("reason"), StoreUnavailable, False),
        (asyncpg.AdminShutdownError("reason"), StoreUnavailable, True),
        (asyncpg.ConnectionDoesNotExistError("reason"), StoreUnavailable, True),
        (ConnectionRefusedError("refused"), StoreUnavailable, True),
        (asyncpg.InvalidPasswordError("reason"), StoreUnavailable, False),
        (asyncpg.UndefinedTableError("reason"), SchemaMismatch, False),
        (asyncpg.SerializationError("reason"), StoreFailed, True),
        (asyncpg.DeadlockDetectedError("reason"), StoreFailed, True),
        (asyncpg.DivisionByZeroError("division by zero"), StoreFailed, False),
    ],
)
def test_each_driver_error_has_its_kind(error: Exception, kind: type[StoreFailed], repeatable: bool) -> None:
    translated = as_store_error(error)
    translated.__cause__ = error
    assert type(translated) is kind
    assert may_repeat(translated) is repeatable


async def test_deadlocked_transactions_both_succeed(own_store: PostgresStore) -> None:
    """Transactions of the system scope are not serialized. PostgreSQL aborts one of two that are deadlocked, and it is
    repeated."""
    tx = own_store.scoped(ALICE)
    one, two = await create_thread_with(tx, "a"), await create_thread_with(tx, "b")
    both_hold = asyncio.Barrier(2)

    async def cross(first: str, second: str) -> None:
        met = False

        async def work(inside: Transaction) -> None:
            nonlocal met
            await inside.append(first, exchange("first"))
            if not met:
                met = True
                await both_hold.wait()
            await inside.append(second, exchange("second"))

        await own_store.transact(system_scope("a"), work)

    async with asyncio.timeout(30):
        await asyncio.gather(cross(one.id, two.id), cross(two.id, one.id))
    for thread in (one, two):
        assert sorted((await history(tx, thread.id))[1:]) == ["first", "second"]


async def test_transactions_of_one_user_are_serialized_across_processes(own_store: PostgresStore, dsn: str) -> None:
    """Two stores simulate two processes. Each transaction counts the rows and adds one."""
    other = await PostgresStore.open(dsn)
    thread = await create_thread_with(own_store.scoped(ALICE), "0")

    async def work(tx: Transaction) -> None:
        found = await tx.thread(thread.id)
        assert found is not None
        await tx.append(thread.id, exchange(str(found.message_count)))

    await asyncio.gather(*(store.transact(ALICE, work) for store in (own_store, other) for _ in range(10)))
    assert await history(own_store.scoped(ALICE), thread.id) == [str(n) for n in range(21)]
    await other.close()


async def test_a_pool_lends_up_to_its_maximum_and_in_order(server: PostgresServer, dsn: str) -> None:
    pool = Pool(Address.parse(dsn), max_size=2)
    await pool.open(min_size=1)
    lent, most, served = 0, 0, []

    async def borrow(number: int) -> None:
        nonlocal lent, most
        async with pool.borrow() as connection:
            lent += 1
            most = max(most, lent)
            await connection.fetchval("SELECT pg_sleep(0.001)")
            served.append(number)
            lent -= 1

    await asyncio.gather(*(borrow(number) for number in range(20)))
    assert most == 2
    assert sorted(served) == list(range(20))
    cancelled = [asyncio.create_task(borrow(number)) for number in range(6)]
    await asyncio.sleep(0)
    for task in cancelled[2:5]:
        task.cancel()
    await asyncio.wait(cancelled)
    await borrow(99)
    assert served[-1] == 99
    await pool.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await borrow(100)


async def test_a_connection_left_in_a_transaction_is_closed(dsn: str) -> None:
    pool = Pool(Address.parse(dsn), max_size=1)
    await pool.open(min_size=1)
    async with pool.borrow() as connection:
        await connection.execute("BEGIN")
    async with pool.borrow() as another:
        assert another is not connection
        assert not another.is_in_transaction()
    await pool.close()


async def test_a_cancelled_borrower_passes_its_connection_on(dsn: str) -> None:
    pool = Pool(Address.parse(dsn), max_size=1)
    await pool.open(min_size=1)

    async def borrow() -> None:
        async with pool.borrow():
            pass

    async with pool.borrow():
        cancelled, waiting = (asyncio.create_task(borrow()) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel()
    # The connection was released after the cancellation and before the cancelled task ran.
    async with asyncio.timeout(30):
        await asyncio.wait([cancelled, waiting])
        assert cancelled.cancelled()
        await pool.close()


async def test_writes_after_a_cancelled_transaction_are_committed(dsn: str) -> None:
    one, other = [await PostgresStore.open(dsn, max_size=1) for _ in range(2)]
    thread = await one.scoped(ALICE).create_thread(NewThread())

    async def nothing(tx: Transaction) -> None:
        return None

    for expected in (2, 4, 6):
        cancelled = asyncio.create_task(one.transact(ALICE, nothing))
        # One step: it has sent its BEGIN, and no answer can have come yet.
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await one.scoped(ALICE).append(thread.id, exchange("asked", "answered"))
        assert len(await history(other.scoped(ALICE), thread.id)) == expected
    await one.close()
    await other.close()
