"""Tenants on a cluster: spread over its nodes, kept apart, and served while another node is away."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.citus.cluster import Cluster
from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.conftest import SERVICE
from tests.service.running_service import serving
from threadline.bootstrap import open as open_threadline
from threadline.core.errors import NotFound, StoreFailed
from threadline.core.sealing import CleanText
from threadline.core.threads import NewThread, Scope, system_scope
from threadline.ports import Transaction
from threadline.settings import Settings
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history

pytestmark = pytest.mark.req("K-02")
TENANTS = 200


@pytest.fixture
async def cluster_store(cluster: Cluster) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(cluster.address())
    yield store
    await store.close()


async def tenants_on_each_worker(store: PostgresStore, cluster: Cluster) -> tuple[str, str]:
    """A tenant with the thread `t` on each worker, the first worker's first."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < 2:
        tenant_id = f"node-{number}"
        number += 1
        port = await cluster.port_of(tenant_id)
        if port in found:
            continue
        found[port] = tenant_id
        session = store.scoped(Scope(tenant_id, "ada"))
        if not [thread for thread in (await session.threads()).items if thread.title == "t"]:
            await create_thread_with(session, "hello", new=NewThread(title=CleanText("t")))
    return found[cluster.ports[1]], found[cluster.ports[2]]


async def thread_of(session: Transaction) -> str:
    return next(thread.id for thread in (await session.threads()).items if thread.title == "t")


async def test_every_table_and_function_of_a_tenant_is_distributed(cluster: Cluster) -> None:
    """A new table or function needs no line anywhere: `migrate` finds it in the catalogue. This proves that it does."""
    tables = await cluster.fetch("""
        SELECT c.oid::regclass::text AS name FROM pg_class c
        WHERE c.relnamespace = 'threadline'::regnamespace AND c.relkind IN ('r', 'p')
            AND c.relname NOT IN ('migrations', 'function_files')
            AND NOT EXISTS (SELECT FROM pg_dist_partition p WHERE p.logicalrelid = c.oid AND p.partmethod = 'h')
    """)
    assert [row["name"] for row in tables] == []
    functions = await cluster.fetch("""
        SELECT p.oid::regprocedure::text AS name FROM pg_proc p
        WHERE p.pronamespace = 'threadline'::regnamespace AND p.proargnames[1] = '_tenant' AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_dist_object o
            WHERE o.classid = 'pg_proc'::regclass AND o.objid = p.oid AND o.distribution_argument_index = 0
                AND o.force_delegation
        )
    """)
    assert [row["name"] for row in functions] == []


async def test_doctor_finds_nothing(cluster_store: PostgresStore) -> None:
    assert await cluster_store.check() == []


async def test_other_users_and_tenants_see_nothing(cluster_store: PostgresStore) -> None:
    mine = cluster_store.scoped(Scope("mine", "ada"))
    thread = await create_thread_with(mine, "hello")
    await mine.append(thread.id, exchange("question", "answer"))
    assert await history(mine, thread.id) == ["hello", "question", "answer"]
    for other in (Scope("mine", "bob"), Scope("theirs", "ada"), system_scope("theirs")):
        with pytest.raises(NotFound):
            await history(cluster_store.scoped(other), thread.id)
        with pytest.raises(NotFound):
            await cluster_store.scoped(other).append(thread.id, exchange("x"))


async def test_a_login_that_has_not_entered_a_scope_sees_nothing(
    cluster: Cluster, cluster_store: PostgresStore
) -> None:
    """On a cluster the login has the rights of both roles, so only the policies hide the rows."""
    await create_thread_with(cluster_store.scoped(Scope("mine", "ada")), "hello")
    connection = await asyncpg.connect(cluster.address())
    try:
        for table in ("threads", "messages", "users", "turns", "audit"):
            assert await connection.fetchval(f"SELECT count(*) FROM threadline.{table}") == 0
    finally:
        await connection.close()


async def test_a_transaction_changes_all_or_nothing(cluster_store: PostgresStore) -> None:
    scope = Scope("whole", "ada")

    async def fail(tx: Transaction) -> None:
        await create_thread_with(tx, "hello")
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await cluster_store.transact(scope, fail)
    assert not (await cluster_store.scoped(scope).threads()).items


async def test_the_service_answers_from_a_cluster(cluster: Cluster) -> None:
    settings = Settings(database=cluster.address(), agent="scripted", service=SERVICE)
    agents = {"scripted": make_agent(ScriptedAgent())}
    async with open_threadline(settings=settings, agents=agents) as threadline, serving(threadline) as client:
        chunks = await client.ask("Hi there", "cluster-key")
        assert chunks[-1]["type"] == "finish"
        found = await client.http.get("/api/v1/ai/search", params={"q": "there"})
        assert found.status_code == 200, found.text
        assert "there" in found.text


@pytest.mark.slow
async def test_tenants_are_spread_over_both_workers(cluster: Cluster, cluster_store: PostgresStore) -> None:
    for number in range(TENANTS):
        await create_thread_with(cluster_store.scoped(Scope(f"spread-{number}", "ada")), "hello")
    found = await cluster.fetch("""
        SELECT s.nodeport, count(*) FROM threadline.tenants t
        JOIN citus_shards s ON s.shardid = get_shard_id_for_distribution_column('threadline.tenants', t.tenant_id)
        WHERE t.tenant_id LIKE 'spread-%' GROUP BY 1
    """)
    assert len(found) == 2
    assert min(row["count"] for row in found) > TENANTS // 4


@pytest.mark.slow
async def test_tenants_of_the_other_nodes_are_served_while_one_is_away(
    cluster: Cluster, cluster_store: PostgresStore
) -> None:
    away, served = await tenants_on_each_worker(cluster_store, cluster)
    lost, kept = (cluster_store.scoped(Scope(tenant_id, "ada")) for tenant_id in (away, served))
    lost_thread, kept_thread = await thread_of(lost), await thread_of(kept)
    before = await history(lost, lost_thread)

    async def go_away(tx: Transaction) -> None:
        await tx.append(lost_thread, exchange("half", "written"))
        cluster.stop_node(1)

    try:
        with pytest.raises(StoreFailed) as refused:
            await cluster_store.transact(Scope(away, "ada"), go_away)
        assert refused.value.code in {"store_unavailable", "outcome_unknown"}
        with pytest.raises(StoreFailed) as unread:
            await history(lost, lost_thread)
        assert unread.value.code == "store_unavailable"
        await kept.append(kept_thread, exchange("still", "served"))
        assert (await history(kept, kept_thread))[-2:] == ["still", "served"]
    finally:
        cluster.start_node(1)
    assert await history(lost, lost_thread) == before
    await lost.append(lost_thread, exchange("served", "again"))
    assert (await history(lost, lost_thread))[-2:] == ["served", "again"]
