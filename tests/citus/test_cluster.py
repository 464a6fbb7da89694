"""Tenants on a cluster: spread over its nodes, kept apart, served in one call."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.citus.cluster import Cluster
from threadline.core.errors import NotFound
from threadline.core.threads import Scope, system_scope
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history

pytestmark = pytest.mark.slow
TENANTS = 200


@pytest.fixture
async def cluster_store(cluster: Cluster) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(cluster.address())
    yield store
    await store.close()


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
