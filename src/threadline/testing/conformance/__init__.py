"""The store conformance suite: what `threadline.ports.Store` promises, as plain pytest.

The author of a store imports everything and supplies a fixture that opens the store:

    from threadline.testing.conformance.suite import *

    @pytest.fixture
    async def store(clock):
        store = await MyStore.open(clock=clock, limits=LIMITS)
        yield store
        await store.close()

The tests need pytest-asyncio's auto mode. Each uses a tenant of its own, so one database can serve all of them. Their
docstrings quote the port. Register the marker `req`, which names requirements.
"""

import pkgutil

import pytest

# Must run before the modules are imported: otherwise pytest does not explain their failing asserts.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
