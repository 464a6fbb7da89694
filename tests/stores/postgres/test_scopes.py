"""A transaction has one scope, which does not remain on the connection, with pgbouncer or without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pgbouncer import start_pgbouncer
from threadline.core.errors import SettingsInvalid
from threadline.core.threads import NewThread, Scope
from threadline.ports import Transaction
from threadline.stores.postgres.pool import Address
from threadline.stores.postgres.session import begin_statement, quote_literal
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn, create_thread_with, exchange, history
from threadline.testing.postgres import LOGIN, shared_server

HOSTILE = ["o'brien", "back\\slash", "\\'; DROP TABLE x; --", "$$", "E'", '"', "{}", "é 🙂", "%s", "a\\"]
WHO = "SELECT current_user::text, current_setting('threadline.tenant', true), current_setting('threadline.owner', true)"


@given(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])))
def test_a_quoted_literal_cannot_be_escaped_from(text: str) -> None:
    quoted = quote_literal(text)
    inside = quoted[2:-1].replace("\\\\", "").replace("''", "")
    assert (quoted[:2], quoted[-1]) == ("E'", "'")
    assert "'" not in inside
    assert "\\" not in inside


async def test_a_quoted_literal_equals_its_text(admin: asyncpg.Connection) -> None:
    for conforming in ("on", "off"):
        await admin.execute(f"SET standard_conforming_strings = {conforming}; SET escape_string_warning = off")
        for user_id in HOSTILE:
            await admin.execute(begin_statement(Scope("a", user_id)))
            assert tuple(await admin.fetchrow(WHO) or ()) == ("threadline_app", "a", user_id)
            await admin.execute("ROLLBACK")


async def test_any_printable_user_id_works(own_store: PostgresStore) -> None:
    for user_id in HOSTILE:
        tx = own_store.scoped(Scope("a", user_id))
        thread = await create_thread_with(tx, "mine")
        assert (await tx.saved_points(), thread.owner_id) == ([], user_id)
        assert [user.id for user in await tx.users()] == [user_id]


async def test_settings_end_with_their_transaction(dsn: str, own_store: PostgresStore) -> None:
    login = await asyncpg.connect(dsn)
    for end in ("COMMIT", "ROLLBACK"):
        await login.execute(begin_statement(Scope("a", "alice")))
        await login.execute(end)
        assert tuple(await login.fetchrow(WHO) or ()) == (LOGIN, "", "")
    await login.fetch("SELECT * FROM threadline.find_thread('a', 'alice', 'threadline_app', 't', NULL, false)")
    assert tuple(await login.fetchrow(WHO) or ()) == (LOGIN, "", "")
    await login.close()


async def test_the_worker_role_ends_with_the_statement_that_needed_it(own_store: PostgresStore) -> None:
    """An administrator's list of users must not leave the transaction seeing everybody's threads."""
    await create_thread_with(own_store.scoped(Scope("a", "bob")), "bob's")

    async def work(tx: Transaction) -> tuple[int, int]:
        users, threads = await tx.users(), await tx.threads(archived=None)
        return len(users), len(threads.items)

    assert await own_store.transact(Scope("a", "ada", "admin"), work) == (1, 0)


@pytest.fixture
async def bounced(dsn: str) -> AsyncIterator[str]:
    """The same database, through pgbouncer in transaction mode."""
    pooler = await start_pgbouncer(shared_server().directory, size=3)
    yield pooler.address(dsn)
    pooler.stop()


@pytest.fixture
async def bounced_store(bounced: str, dsn: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(bounced, clock=clock, max_size=20, listen_dsn=dsn)
    yield store
    await store.close()


async def test_operations_work_through_pgbouncer(bounced_store: PostgresStore) -> None:
    tx = bounced_store.scoped(Scope("a", "alice"))
    thread = await create_thread_with(tx, "a zebra", "b")
    branch = await tx.branch(thread.id, NewThread(), at=0)

    async def work(inside: Transaction) -> None:
        await inside.append(branch.id, exchange("c"), key="k")
        await add_turn(inside, "turn", branch.id, "web")

    await bounced_store.transact(tx.scope, work)
    assert await history(tx, branch.id) == ["a zebra", "c", "Is it far?"]
    assert len(await tx.search("zebra")) == 1
    async with bounced_store.watch(tx.scope, "turn") as watch, asyncio.timeout(30):
        waiting = asyncio.create_task(watch.wait(60))
        await tx.request_stop("turn")
        await waiting


@pytest.mark.req("S1-06", "SX-04")
async def test_nothing_leaks_from_scope_to_scope_through_pgbouncer(bounced_store: PostgresStore, bounced: str) -> None:
    """Three server connections serve twenty clients of six scopes, whose transactions commit, fail and roll back."""
    scopes = [Scope(tenant, user) for tenant in ("a", "b") for user in ("alice", "bob", "eve")]
    for scope in scopes:
        await create_thread_with(bounced_store.scoped(scope), f"{scope.tenant_id} {scope.user_id}")

    async def look(number: int) -> None:
        scope = scopes[number % len(scopes)]

        async def fails(tx: Transaction) -> None:
            await tx.create_thread(NewThread(state_key=f"lost-{number}"))
            raise KeyError

        if number % 3 == 0:
            with pytest.raises(KeyError):
                await bounced_store.transact(scope, fails)
        found = (await bounced_store.scoped(scope).threads(archived=None)).items
        assert [(thread.owner_id, thread.message_count) for thread in found] == [(scope.user_id, 1)]

    await asyncio.gather(*(look(number) for number in range(120)))
    connection = await asyncpg.connect(bounced.partition("&pgbouncer")[0], statement_cache_size=0)
    for _ in range(10):
        assert tuple(await connection.fetchrow(WHO) or ()) in ((LOGIN, "", ""), (LOGIN, None, None))
    await connection.close()


def test_an_address_can_name_a_pgbouncer() -> None:
    dsn = "postgresql://ada@/threads?host=/run/postgresql"
    assert Address.parse(f"{dsn}&pgbouncer=true") == Address(dsn, pgbouncer=True)
    assert Address.parse(f"{dsn}&pgbouncer=false") == Address.parse(dsn) == Address(dsn)
    for wrong in (f"{dsn}&pgbouncer=yes", "mysql://x/y", "x"):
        with pytest.raises(SettingsInvalid):
            Address.parse(wrong)
