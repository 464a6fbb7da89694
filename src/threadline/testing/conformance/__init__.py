"""The store conformance suite: what `threadline.ports.Store` promises, as plain pytest.

Whoever writes a store imports everything and says how theirs is opened:

    from threadline.testing.conformance.suite import *

    @pytest.fixture
    async def store(clock):
        store = await MyStore.open(clock=clock, limits=LIMITS)
        yield store
        await store.close()

The tests run in pytest-asyncio's auto mode, each in a tenant of its own, so one database may serve them all. Their
docstrings quote the port. Their `req` markers name the promises they prove: register that marker.
"""

import pkgutil

import pytest

# Before any of them is imported: afterwards, a failing assert would say nothing but that it failed.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
