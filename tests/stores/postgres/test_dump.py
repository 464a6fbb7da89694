"""`pg_dump` and `pg_restore` as the guide says, into a new cluster; and the repair of a restore without roles."""

from __future__ import annotations

import subprocess
from pathlib import Path

import asyncpg
import pytest

from threadline.core.errors import SchemaMismatch, StoreFailed
from threadline.core.threads import Scope, system_scope
from threadline.stores.postgres import migrate
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import create_thread_with, history
from threadline.testing.postgres import LOGIN, PostgresServer

ALICE, BOB = Scope("a", "alice"), Scope("b", "bob")


def run(server: PostgresServer, program: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(server.bin / program), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)


async def dump(server: PostgresServer, dsn: str, path: Path) -> str:
    """A dump by a login that has the role for dumps and no other right. The id of a thread in it."""
    store = await PostgresStore.open(dsn)
    thread = await create_thread_with(store.scoped(ALICE), "hello")
    await create_thread_with(store.scoped(BOB), "other tenant")
    await store.close()
    admin = await asyncpg.connect(server.admin_dsn(dsn))
    await admin.execute(
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dumper') THEN "
        "CREATE ROLE dumper LOGIN NOINHERIT; END IF; END $$; GRANT threadline_dump TO dumper"
    )
    await admin.close()
    address = dsn.replace(f"{LOGIN}@", "dumper@")
    made = run(
        server, "pg_dump", "--role", "threadline_dump", "--format", "custom", "--schema", "threadline",
        "--file", str(path), address,
    )  # fmt: skip
    assert (made.returncode, made.stderr) == (0, "")
    return thread.id


async def assert_works(dsn: str, thread_id: str) -> None:
    store = await PostgresStore.open(dsn)
    assert await store.check() == []
    assert await history(store.scoped(ALICE), thread_id) == ["hello"]
    assert await history(store.scoped(system_scope("a")), thread_id) == ["hello"]
    for other in (BOB, Scope("a", "bob"), system_scope("b")):
        with pytest.raises(Exception, match="not found"):
            await history(store.scoped(other), thread_id)
    assert len(await store.scoped(ALICE).search("hello")) == 1
    assert await store.scoped(BOB).search("hello") == []
    await store.close()


@pytest.mark.req("K-01")
async def test_a_dump_restores_into_a_new_cluster_after_its_roles(
    server: PostgresServer, dsn: str, separate_server: PostgresServer, tmp_path: Path
) -> None:
    thread_id = await dump(server, dsn, tmp_path / "threads.dump")
    roles = run(server, "pg_dumpall", "--roles-only", "--no-role-passwords", "--dbname", server.admin_dsn())
    assert roles.returncode == 0
    made = run(separate_server, "psql", separate_server.admin_dsn(), stdin=roles.stdout)
    assert [line for line in made.stderr.splitlines() if "ERROR" in line] == ['ERROR:  role "postgres" already exists']
    fresh = await separate_server.create_database(migrated=False)
    admin_dsn = separate_server.admin_dsn(fresh)
    restored = run(separate_server, "pg_restore", "--dbname", admin_dsn, str(tmp_path / "threads.dump"))
    assert (restored.returncode, restored.stderr) == (0, "")
    assert (await migrate.plan(admin_dsn)).repairs == ()
    await assert_works(fresh, thread_id)


@pytest.mark.req("K-01")
async def test_migrate_repairs_a_restore_without_roles(
    server: PostgresServer, dsn: str, separate_server: PostgresServer, tmp_path: Path
) -> None:
    thread_id = await dump(server, dsn, tmp_path / "threads.dump")
    fresh = await separate_server.create_database(migrated=False)
    admin_dsn = separate_server.admin_dsn(fresh)
    restored = run(separate_server, "pg_restore", "--dbname", admin_dsn, str(tmp_path / "threads.dump"))
    assert restored.returncode == 1
    with pytest.raises(StoreFailed, match="run `threadline migrate`"):
        await PostgresStore.open(admin_dsn)
    done = await migrate.apply(admin_dsn)
    assert done.steps == ()
    assert any("CREATE POLICY of_owner ON threadline.messages" in repair for repair in done.repairs)
    admin = await asyncpg.connect(admin_dsn)
    await admin.execute(f"CREATE ROLE {LOGIN} LOGIN NOINHERIT; GRANT threadline_app, threadline_worker TO {LOGIN}")
    await admin.close()
    assert (await migrate.apply(admin_dsn)).repairs == ()
    await assert_works(fresh, thread_id)


async def test_a_login_that_may_not_repair_gets_the_statements(dsn: str, admin: asyncpg.Connection) -> None:
    await admin.execute("DROP POLICY of_owner ON threadline.messages; ALTER TABLE threadline.users OWNER TO postgres")
    with pytest.raises(
        SchemaMismatch, match=r"as an administrator(?s:.*)CREATE POLICY of_owner ON threadline\.messages"
    ):
        await migrate.apply(dsn)


async def test_a_dump_without_the_role_for_it_fails(server: PostgresServer, dsn: str, tmp_path: Path) -> None:
    made = run(server, "pg_dump", "--schema", "threadline", "--file", str(tmp_path / "x"), dsn)
    assert made.returncode == 1


async def test_the_role_for_dumps_may_only_read(admin: asyncpg.Connection) -> None:
    await admin.execute("SET ROLE threadline_dump")
    assert await admin.fetchval("SELECT count(*) FROM threadline.messages") == 0
    for statement in ("DELETE FROM threadline.messages", "INSERT INTO threadline.tenants VALUES ('x', 'x', now())"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await admin.execute(statement)
