"""The PostgreSQL store passes its conformance suite on a cluster: some tests of each part every time, all of them with
`--slow`. One store for all tests, because connections through two servers take long to open.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.citus.cluster import Cluster
from threadline.core.threads import Scope
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.sample_data import Ids, populate
from threadline.testing.conformance.suite import *  # noqa: F403 - this is how a store author collects the suite
from threadline.testing.conformance.suite import LIMITS

pytestmark = [
    pytest.mark.req("K-02"),
    pytest.mark.asyncio(loop_scope="module"),
    # The mark is for every test of the suite, and few of them are not asynchronous.
    pytest.mark.filterwarnings("ignore:The test .* is marked with:pytest.PytestWarning"),
]


QUICK = ("TestIsolation", "TestSearchingThePresent", "TestSessions")


@pytest.fixture(autouse=True)
def whole_suite_if_slow(request: pytest.FixtureRequest, *, slow: bool) -> None:
    if not slow and request.cls.__name__ not in QUICK:
        pytest.skip("slow: run with --slow")


class SwitchedClock:
    """The clock of the test that runs."""

    def __init__(self) -> None:
        self.present = ManualClock()

    def now(self) -> dt.datetime:
        return self.present.now()


@pytest.fixture(scope="module")
def switched_clock() -> SwitchedClock:
    return SwitchedClock()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster_store(cluster: Cluster, switched_clock: SwitchedClock) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(cluster.address(), clock=switched_clock, limits=LIMITS)
    yield store
    await store.close()


@pytest_asyncio.fixture(loop_scope="module")
async def store(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    cluster_store: PostgresStore,
    switched_clock: SwitchedClock,
    clock: ManualClock,
) -> AsyncIterator[PostgresStore]:
    if "clos" in request.node.name:
        # The test closes its store.
        yield await PostgresStore.open(cluster.address(), clock=clock, limits=LIMITS)
        return
    switched_clock.present = clock
    yield cluster_store


@pytest_asyncio.fixture(loop_scope="module")  # type: ignore[no-redef]
async def populated(store: PostgresStore, tenant_id: str, clock: ManualClock) -> Ids:
    """On the loop of the store."""
    return await populate(store, Scope(tenant_id, "alice"), clock)
