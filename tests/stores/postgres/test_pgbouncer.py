"""The store passes its conformance suite through Debian's pgbouncer in transaction mode, with fewer server connections
than clients. The parts that depend on transactions, roles and notifications run each time, all of them with `--slow`.
"""

from __future__ import annotations

import atexit
from collections.abc import AsyncIterator

import pytest

from tests.conftest import postgres_database
from tests.pgbouncer import Pgbouncer, start_pgbouncer
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.suite import *  # noqa: F403 - this is how a store author collects the suite
from threadline.testing.conformance.suite import LIMITS
from threadline.testing.postgres import shared_server

QUICK = (
    "TestAcceptTurn",
    "TestAppending",
    "TestIsolation",
    "TestSessions",
    "TestTheStore",
    "TestTransacting",
    "TestWatching",
)
pytestmark = pytest.mark.req("K-03")
_pooler: list[Pgbouncer] = []


@pytest.fixture(autouse=True)
def whole_suite_if_slow(request: pytest.FixtureRequest, *, slow: bool) -> None:
    if not slow and request.cls.__name__ not in QUICK:
        pytest.skip("slow: run with --slow")


@pytest.fixture
async def pooler() -> Pgbouncer:
    """One for all tests of this process."""
    if not _pooler:
        _pooler.append(await start_pgbouncer(shared_server().directory))
        atexit.register(_pooler[0].stop)
    return _pooler[0]


@pytest.fixture
async def store(pooler: Pgbouncer, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    dsn = await postgres_database()
    store = await PostgresStore.open(pooler.address(dsn), clock=clock, limits=LIMITS, listen_dsn=dsn)
    yield store
    await store.close()
