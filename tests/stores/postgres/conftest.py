"""Each of these tests has its own database, because it inspects and breaks roles, settings and connections."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from threadline.stores.postgres.store import PostgresStore
from threadline.testing.clock import ManualClock
from threadline.testing.postgres import PostgresServer, installations, shared_server


@pytest.fixture
def server() -> PostgresServer:
    return shared_server()


@pytest.fixture
async def dsn(server: PostgresServer) -> AsyncIterator[str]:
    """A migrated database, for the application's login."""
    async with server.database() as address:
        yield address


@pytest.fixture
async def empty_dsn(server: PostgresServer) -> AsyncIterator[str]:
    """A database without the schema, for the superuser."""
    async with server.database(migrated=False) as address:
        yield server.admin_dsn(address)


@pytest.fixture
async def own_store(dsn: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(dsn, clock=clock, max_size=4)
    yield store
    await store.close()


@pytest.fixture
async def admin(server: PostgresServer, dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """The superuser, in the same database."""
    connection = await asyncpg.connect(server.admin_dsn(dsn))
    yield connection
    await connection.close()


@pytest.fixture
def separate_server() -> Iterator[PostgresServer]:
    """A separate server without our roles, which all databases of a server share."""
    server = PostgresServer(installations()["embedded"], Path(tempfile.mkdtemp(prefix="tl-")))
    server.ensure_started()
    yield server
    server.discard()
