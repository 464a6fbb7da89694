"""Row security of every table in the catalogue, including tables that are added later.

Each table gets one real row (of tenant `a`, owner `alice`), which is then read and written in other scopes: of another
tenant, of another owner, and without any scope. A new table fails these tests until it has policies and a row here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from threadline.core.threads import NewThread, Scope, system_scope
from threadline.stores.postgres import search_indexer
from threadline.stores.postgres.session import begin_statement
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import clean_text, create_thread_with
from threadline.testing.conformance.sample_data import populate
from threadline.testing.postgres import PostgresServer

ALICE = Scope("a", "alice")
SHARED = frozenset(("tenants", "agents"))
"""Rows of the whole tenant: another owner of it sees them."""
WRITTEN_ONCE = frozenset(("messages", "audit", "tenant_purges", "legal_holds"))
"""Rows that no role may update."""
SYSTEM_TABLES = frozenset(("permits", "audit", "credentials", "tenant_purges", "legal_holds"))
"""Rows that no user sees."""
OTHER_SCOPES = {
    "another tenant": Scope("b", "alice"),
    "the system scope of another tenant": Scope("b", "system", "system"),
    "another owner": Scope("a", "bob"),
}
TABLES = """
    SELECT c.oid, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'threadline' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND c.relname NOT IN ('migrations', 'function_files')
    ORDER BY c.relname
"""
KEYS = """
    SELECT i.indexrelid::regclass::text AS name, a.attname::text AS first
    FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = $1 AND i.indisunique
    UNION ALL
    SELECT c.conname::text, a.attname::text
    FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
    WHERE c.conrelid = $1 AND c.contype = 'f'
"""


async def tables(connection: asyncpg.Connection) -> list[str]:
    return [row["relname"] for row in await connection.fetch(TABLES)]


async def unprotected(connection: asyncpg.Connection) -> list[str]:
    """Tables without forced row security or without a policy."""
    return [
        row["relname"]
        for row in await connection.fetch("""
            SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'threadline' AND c.relkind IN ('r', 'p')
                AND c.relname NOT IN ('migrations', 'function_files') AND NOT (
                c.relrowsecurity AND c.relforcerowsecurity
                AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polcmd = '*'
                    AND p.polroles = ARRAY['threadline_app'::regrole::oid])
                AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polcmd = '*'
                    AND p.polroles = ARRAY['threadline_worker'::regrole::oid])
            )
        """)
    ]


@pytest.fixture
async def populated(own_store: PostgresStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    """Alice has a row in every table, and so has search."""
    # The background indexer must not empty the backlog, however slow the machine is.
    monkeypatch.setattr(search_indexer, "IDLE_SECONDS", 3_600)
    await own_store.scoped(system_scope(ALICE.tenant_id)).purge_tenant()
    await populate(own_store, ALICE, clock)
    await own_store.scoped(system_scope(ALICE.tenant_id)).add_hold("hold-1", clean_text("a case"), "root")
    alice = own_store.scoped(ALICE)
    await own_store.index_pending()
    left = await create_thread_with(alice, "not indexed yet", new=NewThread(metadata={"tags": ["green"]}))
    await alice.move(left.id, 0)
    return own_store


@pytest.fixture
async def login(dsn: str, populated: PostgresStore) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.mark.req("SX-04", "S0-14", "S1-06")
async def test_every_table_forces_row_security_and_has_both_policies(admin: asyncpg.Connection) -> None:
    assert await unprotected(admin) == []
    await admin.execute("CREATE TABLE threadline.notes (tenant_id text PRIMARY KEY)")
    assert await unprotected(admin) == ["notes"]


@pytest.mark.req("SX-04")
async def test_the_tenant_is_the_first_column_of_every_key(admin: asyncpg.Connection) -> None:
    wrong = [
        (table, key["name"])
        for oid, table in await admin.fetch(TABLES)
        for key in await admin.fetch(KEYS, oid)
        if key["first"] != "tenant_id"
    ]
    assert wrong == []


async def test_the_fixture_has_a_row_in_every_table(populated: PostgresStore, admin: asyncpg.Connection) -> None:
    empty = [
        table for table in await tables(admin) if not await admin.fetchval(f"SELECT count(*) FROM threadline.{table}")
    ]
    assert empty == []


async def deleted(login: asyncpg.Connection, rows: str) -> str:
    """What the server answers; the role of requests lacks the right to delete from some tables at all."""
    await login.execute("SAVEPOINT before")
    try:
        return await login.execute(f"DELETE FROM threadline.{rows}")
    except asyncpg.InsufficientPrivilegeError:
        await login.execute("ROLLBACK TO before")
        return "DELETE 0"


@pytest.mark.req("SX-04", "S0-14", "S1-06")
@pytest.mark.parametrize("who", OTHER_SCOPES)
async def test_another_scope_sees_and_changes_no_row(
    admin: asyncpg.Connection, login: asyncpg.Connection, who: str
) -> None:
    scope = OTHER_SCOPES[who]
    for table in await tables(admin):
        if table in SHARED and scope.tenant_id == ALICE.tenant_id:
            continue
        await login.execute(begin_statement(scope))
        where = "WHERE tenant_id = 'a'"
        assert await login.fetchval(f"SELECT count(*) FROM threadline.{table} {where}") == (
            # The system scope iterates over tenants, so it may read their names.
            1 if table == "tenants" and scope.role == "system" else 0
        ), table
        if table not in WRITTEN_ONCE:
            assert await login.execute(f"UPDATE threadline.{table} SET tenant_id = tenant_id {where}") == "UPDATE 0"
        assert await deleted(login, f"{table} {where}") == "DELETE 0", table
        await login.execute("ROLLBACK")


@pytest.mark.req("S1-06", "S0-14")
@pytest.mark.parametrize("role", ["threadline_app", "threadline_worker"])
async def test_without_a_scope_no_row_is_visible(
    admin: asyncpg.Connection, login: asyncpg.Connection, role: str
) -> None:
    for table in await tables(admin):
        await login.execute(f"BEGIN; SET LOCAL ROLE {role}")
        seen = await login.fetchval(f"SELECT count(*) FROM threadline.{table}")
        assert seen == (1 if (table, role) == ("tenants", "threadline_worker") else 0), table
        assert await deleted(login, table) == "DELETE 0", table
        await login.execute("ROLLBACK")


@pytest.mark.req("S1-06", "SX-04")
@pytest.mark.parametrize("who", [*OTHER_SCOPES, "no scope"])
async def test_a_row_for_another_owner_is_refused(
    admin: asyncpg.Connection, login: asyncpg.Connection, who: str
) -> None:
    """Each of alice's rows, inserted again by another scope."""
    for table in await tables(admin):
        scope = OTHER_SCOPES.get(who)
        if table in SHARED and scope is not None and scope.tenant_id == ALICE.tenant_id:
            continue
        columns = await admin.fetchval(
            "SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute "
            "WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped "
            "AND attidentity = '' AND attgenerated = ''",
            f"threadline.{table}",
        )
        await admin.execute(f"CREATE TABLE public.{table}_copy AS SELECT {columns} FROM threadline.{table}")
        await admin.execute(f"GRANT SELECT ON public.{table}_copy TO public")
        await login.execute("BEGIN; SET LOCAL ROLE threadline_app" if scope is None else begin_statement(scope))
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await login.execute(f"INSERT INTO threadline.{table} ({columns}) SELECT {columns} FROM public.{table}_copy")
        await login.execute("ROLLBACK")


@pytest.mark.req("SX-04")
async def test_a_row_cannot_be_moved_to_another_tenant_or_owner(
    admin: asyncpg.Connection, login: asyncpg.Connection
) -> None:
    for table in await tables(admin):
        has_owner = await admin.fetchval(
            "SELECT count(*) FROM pg_attribute WHERE attrelid = $1::text::regclass AND attname = 'owner_id'",
            f"threadline.{table}",
        )
        gifts = ["tenant_id = 'b'", *(["owner_id = 'bob'"] if has_owner else [])]
        for gift in gifts if table not in WRITTEN_ONCE | SYSTEM_TABLES else ():
            await login.execute(begin_statement(ALICE))
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await login.execute(f"UPDATE threadline.{table} SET {gift}")
            await login.execute("ROLLBACK")


@pytest.mark.req("S1-09")
@pytest.mark.parametrize("role", ["threadline_app", "threadline_worker"])
@pytest.mark.parametrize("change", ["messages SET parts = ''", "audit SET act = ''"])
async def test_no_role_may_update_a_message_or_an_audit_entry(
    login: asyncpg.Connection, role: str, change: str
) -> None:
    await login.execute(f"BEGIN; SET LOCAL ROLE {role}")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
        await login.execute(f"UPDATE threadline.{change}")
    await login.execute("ROLLBACK")


async def test_a_user_sees_no_row_of_system_tables(login: asyncpg.Connection) -> None:
    await login.execute(begin_statement(ALICE))
    for table in SYSTEM_TABLES:
        assert await login.fetchval(f"SELECT count(*) FROM threadline.{table}") == 0
        assert await deleted(login, table) == "DELETE 0"
    await login.execute("ROLLBACK")


@pytest.mark.req("S4-01")
async def test_a_message_without_a_timeline_is_refused(login: asyncpg.Connection) -> None:
    await login.execute(begin_statement(ALICE))
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await login.execute("""
            INSERT INTO threadline.messages (created_us, seq, role, tenant_id, timeline_id, owner_id, id, parts)
            VALUES (0, 0, 'u', 'a', 'nowhere', 'alice', 'm', '[]')
        """)
    await login.execute("ROLLBACK")


async def test_the_login_itself_has_no_rights(admin: asyncpg.Connection, login: asyncpg.Connection) -> None:
    for table in await tables(admin):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login.execute(f"SELECT FROM threadline.{table}")


@pytest.mark.req("SX-04")
async def test_a_superuser_is_isolated_as_well(server: PostgresServer, dsn: str, populated: PostgresStore) -> None:
    store = await PostgresStore.open(server.admin_dsn(dsn))
    try:
        for scope in OTHER_SCOPES.values():
            assert (await store.scoped(scope).threads(archived=None)).items == ()
        assert (await store.scoped(ALICE).threads(archived=None)).items != ()
    finally:
        await store.close()


async def test_the_role_of_requests_cannot_delete_audit_entries(admin: asyncpg.Connection) -> None:
    for role, may in (("threadline_app", False), ("threadline_worker", True)):
        assert await admin.fetchval("SELECT has_table_privilege($1, 'threadline.audit', 'DELETE')", role) is may
        assert not await admin.fetchval("SELECT has_table_privilege($1, 'threadline.audit', 'UPDATE')", role)
