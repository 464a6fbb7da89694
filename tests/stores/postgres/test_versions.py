"""The conformance suite on a second version of PostgreSQL, if the system has one beside the wheel's.

Without a second version this file has no tests. A quick run takes the classes whose operations depend most on the
server; `--slow` takes all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from threadline.stores.postgres.store import PostgresStore
from threadline.testing.clock import ManualClock
from threadline.testing.conformance import suite
from threadline.testing.conformance.suite import *  # noqa: F403 - the fixtures that the classes need
from threadline.testing.conformance.suite import LIMITS
from threadline.testing.postgres import installations, shared_server

SECOND = next((label for label in installations() if label != "embedded"), "")
QUICK = {"TestAppending", "TestLoading", "TestUndoing", "TestIsolation", "TestSearchingThePresent"}

_databases: dict[str, str] = {}

for _name in [name for name in vars(suite) if name.startswith("Test")]:
    del globals()[_name]
    if SECOND:
        # A new class, because a mark on the suite's own class would apply where other tests run it as well.
        _copy = type(_name, (getattr(suite, _name),), {})
        globals()[_name] = _copy if _name in QUICK else pytest.mark.slow(_copy)


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[PostgresStore]:
    if SECOND not in _databases:
        _databases[SECOND] = await shared_server(SECOND).create_database()
    store = await PostgresStore.open(_databases[SECOND], clock=clock, limits=LIMITS)
    yield store
    await store.close()
