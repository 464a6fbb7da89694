"""Migrations: from an empty database and every earlier version, concurrent, killed, refused, and without rights."""

from __future__ import annotations

import asyncio
import re
import signal
import sys

import asyncpg
import pytest

from threadline.core.errors import InvalidInput, SchemaMismatch
from threadline.core.threads import NewThread, Scope
from threadline.stores.migrations import Migration, migration_from
from threadline.stores.postgres import migrate
from threadline.stores.postgres.migrate import MIGRATIONS
from threadline.stores.postgres.store import PostgresStore
from threadline.stores.sql import load_queries
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history
from threadline.testing.postgres import PostgresServer

ALICE = Scope("a", "alice")
EVERYTHING = """
    SELECT 'table' AS kind, c.relname::text AS name, c.relrowsecurity::text AS detail
    FROM pg_class c WHERE c.relnamespace = 'threadline'::regnamespace
    UNION ALL
    SELECT 'column', a.attrelid::regclass || '.' || a.attname, format_type(a.atttypid, a.atttypmod) || a.attnotnull
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'threadline'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT 'function', p.oid::regprocedure::text, md5(p.prosrc) || p.prosecdef
    FROM pg_proc p WHERE p.pronamespace = 'threadline'::regnamespace
    UNION ALL
    SELECT 'policy', p.polrelid::regclass || '.' || p.polname, pg_get_expr(p.polqual, p.polrelid)
    FROM pg_policy p
    ORDER BY 1, 2
"""


async def schema(dsn: str) -> list[tuple[str, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(EVERYTHING)]
    finally:
        await connection.close()


async def run(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def numbers(dsn: str) -> list[int]:
    connection = await asyncpg.connect(dsn)
    try:
        return [row["number"] for row in await connection.fetch("SELECT number FROM threadline.migrations")]
    finally:
        await connection.close()


async def test_a_dry_run_writes_nothing(empty_dsn: str) -> None:
    plan = await migrate.plan(empty_dsn)
    assert (plan.current, plan.target) == (0, len(MIGRATIONS))
    assert plan.steps == MIGRATIONS
    connection = await asyncpg.connect(empty_dsn)
    assert await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'threadline'") == 0
    await connection.close()


async def test_a_second_run_finds_nothing_to_do(empty_dsn: str) -> None:
    told: list[tuple[int, int, int]] = []
    done = await migrate.apply(empty_dsn, progress=lambda step, n, of: told.append((step.number, n, of)))
    assert done.steps == MIGRATIONS
    assert told == [(n + 1, n, len(MIGRATIONS)) for n in range(len(MIGRATIONS))]
    before = await schema(empty_dsn)
    assert (await migrate.apply(empty_dsn)).steps == ()
    assert await schema(empty_dsn) == before


EARLIER = range(1, len(MIGRATIONS))
"""The first and the last cover every step; a slow run begins with each version."""


@pytest.mark.parametrize(
    "version",
    [
        version if version in (EARLIER[0], EARLIER[-1]) else pytest.param(version, marks=pytest.mark.slow)
        for version in EARLIER
    ],
)
async def test_every_earlier_version_migrates_to_the_same_schema_with_its_data(
    empty_dsn: str, server: PostgresServer, dsn: str, version: int
) -> None:
    await migrate.apply(empty_dsn, known=MIGRATIONS[:version])
    await run(empty_dsn, OLD_DATA)
    assert (await migrate.plan(empty_dsn)).current == version
    await migrate.apply(empty_dsn)
    assert await schema(empty_dsn) == await schema(server.admin_dsn(dsn))
    store = await PostgresStore.open(empty_dsn)
    tx = store.scoped(ALICE)
    assert await history(tx, "old") == ["an old zebra"]
    assert [hit.thread_id for hit in await tx.search("zebra")] == ["old"]
    assert await history(tx, (await tx.branch("old", NewThread())).id) == ["an old zebra"]
    await store.close()


OLD_DATA = """
    BEGIN;
    INSERT INTO threadline.tenants (tenant_id, created_at) VALUES ('a', now());
    INSERT INTO threadline.users (tenant_id, id, created_at) VALUES ('a', 'alice', now());
    INSERT INTO threadline.threads
        (tenant_id, id, owner_id, state_key, timeline_id, message_count, created_at, updated_at)
    VALUES ('a', 'old', 'alice', 'old', 'line', 1, now(), now());
    INSERT INTO threadline.timelines (tenant_id, id, owner_id, thread_id, created_at)
    VALUES ('a', 'line', 'alice', 'old', now());
    INSERT INTO threadline.messages (created_us, seq, role, tenant_id, timeline_id, owner_id, id, parts)
    VALUES (0, 0, 'u', 'a', 'line', 'alice', 'm', '[{"type":"text","text":"an old zebra"}]');
    COMMIT;
"""


async def test_concurrent_migrators_wait_for_each_other(empty_dsn: str) -> None:
    done = await asyncio.gather(*(migrate.apply(empty_dsn) for _ in range(4)))
    assert sorted(len(plan.steps) for plan in done) == [0, 0, 0, len(MIGRATIONS)]
    assert await numbers(empty_dsn) == [step.number for step in MIGRATIONS]


KILLED = """
import asyncio, sys
from threadline.stores.postgres import migrate

def block(step, done, total):
    if step.number == int(sys.argv[2]):
        print("here", flush=True)
        sys.stdin.read()

asyncio.run(migrate.apply(sys.argv[1], progress=block))
"""


@pytest.mark.parametrize("at", [1, 2, len(MIGRATIONS)])
async def test_the_next_migrator_continues_where_a_killed_one_stopped(
    empty_dsn: str, server: PostgresServer, dsn: str, at: int
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, empty_dsn, str(at), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"here\n"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert [step.number for step in (await migrate.apply(empty_dsn)).steps] == list(range(at, len(MIGRATIONS) + 1))
    assert await schema(empty_dsn) == await schema(server.admin_dsn(dsn))


async def test_a_failed_migration_is_rolled_back(empty_dsn: str) -> None:
    broken = with_sql(MIGRATIONS[1], MIGRATIONS[1].sql + "\nSELECT 1 / 0;")
    with pytest.raises(Exception, match="division by zero"):
        await migrate.apply(empty_dsn, known=[MIGRATIONS[0], broken])
    assert await numbers(empty_dsn) == [1]
    await migrate.apply(empty_dsn)
    assert await numbers(empty_dsn) == [step.number for step in MIGRATIONS]


def with_sql(step: Migration, sql: str) -> Migration:
    return migration_from(f"{step.number:03}_{step.name}.sql", sql)


async def test_a_database_with_an_older_schema_is_refused(empty_dsn: str) -> None:
    with pytest.raises(SchemaMismatch, match="run `threadline migrate`"):
        await PostgresStore.open(empty_dsn)
    await migrate.apply(empty_dsn, known=MIGRATIONS[:2])
    with pytest.raises(SchemaMismatch, match=r"version 2.*run `threadline migrate`"):
        await PostgresStore.open(empty_dsn)


@pytest.fixture
async def old_functions(empty_dsn: str) -> str:
    """A migrated database whose functions another program applied: one changed, one unknown."""
    await migrate.apply(empty_dsn)
    await run(
        empty_dsn,
        """
        UPDATE threadline.function_files SET checksum = 'other' WHERE subject = 'messages';
        INSERT INTO threadline.function_files (subject, checksum) VALUES ('removed', 'x');
        DROP FUNCTION threadline.find_message;
        CREATE FUNCTION threadline.find_message(_tenant text) RETURNS text LANGUAGE sql RETURN _tenant;
        CREATE FUNCTION threadline.removed(_tenant text) RETURNS text LANGUAGE sql RETURN _tenant;
        """,
    )
    return empty_dsn


async def test_a_database_with_other_functions_is_refused(old_functions: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"functions.*messages, removed.*run `threadline migrate`"):
        await PostgresStore.open(old_functions)


async def test_changed_functions_are_applied_again_and_unknown_ones_dropped(
    old_functions: str, server: PostgresServer, dsn: str
) -> None:
    assert (await migrate.plan(old_functions)).functions == ("messages", "removed")
    done = await migrate.apply(old_functions)
    assert (done.steps, done.functions) == ((), ("messages", "removed"))
    assert await schema(old_functions) == await schema(server.admin_dsn(dsn))
    assert (await migrate.apply(old_functions)).functions == ()
    await (await PostgresStore.open(old_functions)).close()


async def test_changed_types_are_replaced(empty_dsn: str, server: PostgresServer, dsn: str) -> None:
    await migrate.apply(empty_dsn)
    await run(
        empty_dsn,
        """
        UPDATE threadline.function_files SET checksum = 'other' WHERE subject = 'types';
        CREATE TYPE threadline.removed AS (id text);
        """,
    )
    assert (await migrate.apply(empty_dsn)).functions == ("types",)
    assert await schema(empty_dsn) == await schema(server.admin_dsn(dsn))


async def test_a_running_store_survives_reapplied_functions(
    own_store: PostgresStore, server: PostgresServer, dsn: str
) -> None:
    alice = own_store.scoped(ALICE)
    thread = await create_thread_with(alice, "before")
    await run(
        server.admin_dsn(dsn), "UPDATE threadline.function_files SET checksum = 'other' WHERE subject = 'messages'"
    )
    assert (await migrate.apply(server.admin_dsn(dsn))).functions == ("messages",)
    await alice.append(thread.id, exchange("after"))
    assert await history(alice, thread.id) == ["before", "after"]


async def test_functions_that_fail_to_apply_leave_the_old_ones(
    old_functions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await schema(old_functions)
    broken = migrate.FunctionFile("messages", "SELECT 1 / 0;", "broken")
    monkeypatch.setattr(migrate, "FUNCTION_FILES", (*migrate.FUNCTION_FILES, broken))
    with pytest.raises(Exception, match="division by zero"):
        await migrate.apply(old_functions)
    assert await schema(old_functions) == before


async def test_a_newer_databases_functions_are_used_and_not_replaced(old_functions: str) -> None:
    newest = len(MIGRATIONS) + 1
    await run(old_functions, f"INSERT INTO threadline.migrations VALUES ({newest}, 'add_more', 'x', 1)")
    before = await schema(old_functions)
    assert (await migrate.apply(old_functions)).functions == ()
    assert await schema(old_functions) == before
    await (await PostgresStore.open(old_functions)).close()


async def test_a_newer_schema_is_used_if_it_is_compatible(empty_dsn: str) -> None:
    await migrate.apply(empty_dsn)
    newest = len(MIGRATIONS) + 1
    await run(empty_dsn, f"INSERT INTO threadline.migrations VALUES ({newest}, 'add_more', 'x', 1)")
    await (await PostgresStore.open(empty_dsn)).close()
    await run(empty_dsn, f"UPDATE threadline.migrations SET oldest_compatible = {newest} WHERE number = {newest}")
    for refused in (PostgresStore.open(empty_dsn), migrate.apply(empty_dsn), migrate.plan(empty_dsn)):
        with pytest.raises(SchemaMismatch, match="install a newer threadline"):
            await refused


async def test_a_database_with_another_history_is_refused(empty_dsn: str) -> None:
    await migrate.apply(empty_dsn)
    await run(empty_dsn, "UPDATE threadline.migrations SET checksum = 'other' WHERE number = 2")
    with pytest.raises(SchemaMismatch, match="another build"):
        await migrate.apply(empty_dsn)


@pytest.fixture
async def owner_dsn(separate_server: PostgresServer) -> str:
    """For the owner of a database who may not create roles."""
    await run(separate_server.admin_dsn(), "CREATE ROLE ada LOGIN")
    await run(separate_server.admin_dsn(), "CREATE DATABASE theirs OWNER ada")
    return separate_server.dsn("theirs", user="ada")


async def test_missing_rights_are_reported_as_sql_to_run(separate_server: PostgresServer, owner_dsn: str) -> None:
    with pytest.raises(SchemaMismatch, match="administrator") as refused:
        await migrate.apply(owner_dsn)
    script = str(refused.value).partition(":\n")[2]
    assert re.findall(r"CREATE ROLE (\w+)", script) == list(migrate.ROLES)
    assert "GRANT threadline_migrator TO ada;" in script
    await run(separate_server.admin_dsn(owner_dsn), script)
    await migrate.apply(owner_dsn)
    with pytest.raises(SchemaMismatch, match="administrator") as unfit:
        await PostgresStore.open(owner_dsn)
    grant = str(unfit.value).partition("administrator: ")[2]
    assert grant == "GRANT threadline_app, threadline_worker TO ada;"
    await run(separate_server.admin_dsn(owner_dsn), grant)
    store = await PostgresStore.open(owner_dsn)
    thread = await create_thread_with(store.scoped(ALICE), "a")
    assert await history(store.scoped(ALICE), thread.id) == ["a"]
    assert await store.scoped(Scope("a", "bob")).thread(thread.id) is None
    assert await store.check() == []
    await store.close()


async def test_a_login_that_may_create_roles_needs_no_administrator(separate_server: PostgresServer) -> None:
    await run(separate_server.admin_dsn(), "CREATE ROLE maker LOGIN CREATEROLE")
    await run(separate_server.admin_dsn(), "CREATE DATABASE made OWNER maker")
    address = separate_server.dsn("made", user="maker")
    await migrate.apply(address)
    assert (await migrate.apply(address)).steps == ()


async def test_the_roles_own_nothing_and_have_no_other_rights(separate_server: PostgresServer) -> None:
    address = separate_server.admin_dsn()
    await migrate.apply(address)
    connection = await asyncpg.connect(address)
    roles = await connection.fetch("""
        SELECT rolname::text, rolsuper OR rolcanlogin OR rolcreaterole OR rolcreatedb OR rolbypassrls AS is_mighty,
            (SELECT count(*) FROM pg_class c WHERE c.relowner = r.oid) AS owned
        FROM pg_roles r WHERE rolname LIKE 'threadline%' AND rolname <> 'threadline_dump' ORDER BY 1
    """)
    await connection.close()
    assert [(row["rolname"], row["is_mighty"]) for row in roles] == [(role, False) for role in sorted(migrate.ROLES)]
    assert [row["rolname"] for row in roles if row["owned"]] == ["threadline_migrator"]


async def test_large_tables_can_be_split_by_tenant(empty_dsn: str) -> None:
    await migrate.apply(empty_dsn, partitions=4)
    store = await PostgresStore.open(empty_dsn)
    threads = {}
    for number in range(12):
        scope = Scope(f"t{number}", "alice")
        threads[scope] = await create_thread_with(store.scoped(scope), f"zebra {number}", "b")
    for scope, thread in threads.items():
        assert [hit.thread_id for hit in await store.scoped(scope).search("zebra")] == [thread.id]
        assert len(await history(store.scoped(scope), thread.id)) == 2
    assert await store.check() == []
    await store.close()
    connection = await asyncpg.connect(empty_dsn)
    filled = await connection.fetchval("SELECT count(DISTINCT tableoid) FROM threadline.messages")
    bare = await connection.fetch("""
        SELECT c.relname FROM pg_class c WHERE c.relispartition AND c.relkind = 'r'
            AND (NOT c.relrowsecurity OR NOT c.relforcerowsecurity OR c.relacl::text LIKE '%threadline_app%')
    """)
    await connection.close()
    assert filled > 1
    assert bare == []
    assert (await migrate.apply(empty_dsn, partitions=4)).steps == ()


async def test_the_number_of_partitions_cannot_be_changed(empty_dsn: str) -> None:
    for wrong in (0, -1, 100_000):
        with pytest.raises(InvalidInput, match="partitions"):
            await migrate.apply(empty_dsn, partitions=wrong)
    await migrate.apply(empty_dsn, partitions=2, known=MIGRATIONS[:1])
    for other in (3, 1):
        with pytest.raises(InvalidInput, match="create a new one and copy"):
            await migrate.apply(empty_dsn, partitions=other)
    await migrate.apply(empty_dsn)
    connection = await asyncpg.connect(empty_dsn)
    split = await connection.fetchval(
        "SELECT count(*) FROM pg_inherits WHERE inhparent = 'threadline.message_search'::regclass"
    )
    await connection.close()
    assert split == 2


async def test_distributing_needs_citus(empty_dsn: str) -> None:
    with pytest.raises(SchemaMismatch, match="CREATE EXTENSION citus"):
        await migrate.apply(empty_dsn, distribute=True)
    assert (await migrate.plan(empty_dsn)).current == 0


async def test_every_table_is_distributed_and_every_function_takes_the_tenant_first(admin: asyncpg.Connection) -> None:
    """What can be tested without a cluster."""
    queries = load_queries("threadline.stores.postgres", "queries/distribute.sql")
    spread = {row["tablename"].removeprefix("threadline.") for row in await admin.fetch(queries["list_tables"])}
    there = {
        row["relname"]
        for row in await admin.fetch(
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'threadline'::regnamespace AND relkind = 'r'"
        )
    }
    assert spread | {"tenants"} == there - {"migrations", "function_files"}
    led = await admin.fetch("""
        SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'threadline'::regnamespace
            AND '_tenant' = ANY (p.proargnames) AND p.proargnames[1] <> '_tenant'
    """)
    assert led == []
