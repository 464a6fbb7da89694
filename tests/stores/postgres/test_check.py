"""Faults that `threadline doctor` must find in PostgreSQL."""

from __future__ import annotations

import asyncpg
import pytest

from threadline.core.threads import Scope
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import create_thread_with
from threadline.testing.postgres import PostgresServer

ALICE = Scope("a", "alice")
BROKEN = {
    "ALTER TABLE threadline.messages NO FORCE ROW LEVEL SECURITY": "row security is not forced on table messages",
    "ALTER TABLE threadline.users DISABLE ROW LEVEL SECURITY": "row security is not forced on table users",
    "CREATE TABLE threadline.notes (tenant_id text)": "table notes has no policy",
    "GRANT SELECT ON threadline.messages TO public": "public has rights on table messages",
    "ALTER TABLE threadline.links OWNER TO threadline_app": "table links is owned by threadline_app",
    "UPDATE threadline.threads SET message_count = 7": "the message count of thread",
    "UPDATE threadline.timelines SET thread_id = 'gone'": "has no thread",
    "INSERT INTO threadline.saved_points SELECT tenant_id, owner_id, 'here', 'gone', id, 0, now() "
    "FROM threadline.timelines": "saved point here of tenant a has no thread",
}


@pytest.mark.parametrize("statement", BROKEN)
async def test_each_fault_is_found_with_a_remedy(
    own_store: PostgresStore, admin: asyncpg.Connection, statement: str
) -> None:
    await create_thread_with(own_store.scoped(ALICE), "a")
    assert await own_store.check() == []
    await admin.execute(statement)
    found = await own_store.check()
    assert any(BROKEN[statement] in finding.what for finding in found)
    assert all(finding.remedy for finding in found)


async def test_a_role_with_too_many_rights_is_found(separate_server: PostgresServer) -> None:
    dsn = await separate_server.create_database()
    admin, store = await asyncpg.connect(separate_server.admin_dsn(dsn)), await PostgresStore.open(dsn)
    await admin.execute("ALTER ROLE threadline_worker BYPASSRLS")
    (found,) = await store.check()
    assert found.what == "role threadline_worker has more rights than it needs"
    await admin.execute(found.remedy)
    assert await store.check() == []
    await store.close()
    await admin.close()


async def test_a_remedy_can_be_run_as_given(own_store: PostgresStore, admin: asyncpg.Connection) -> None:
    await admin.execute("ALTER TABLE threadline.messages NO FORCE ROW LEVEL SECURITY")
    (found,) = await own_store.check()
    await admin.execute(found.remedy)
    assert await own_store.check() == []
