"""The conformance suite on the system's PostgreSQL, where there is one beside the wheel's.

A quick run takes the classes whose verbs lean on the server most; `--slow` takes them all.
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

pytestmark = pytest.mark.skipif(not SECOND, reason="there is no second PostgreSQL: apt-get install postgresql")
_databases: dict[str, str] = {}

for _name in [name for name in vars(suite) if name.startswith("Test")]:
    # A class of its own: the suite's own classes also run on the wheel's server, and there they are not slow.
    _made = type(_name, (getattr(suite, _name),), {})
    globals()[_name] = _made if _name in QUICK else pytest.mark.slow(_made)


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[PostgresStore]:
    if SECOND not in _databases:
        _databases[SECOND] = await shared_server(SECOND).create_database()
    store = await PostgresStore.open(_databases[SECOND], clock=clock, limits=LIMITS)
    yield store
    await store.close()
