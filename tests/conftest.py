"""Fixtures and options of the whole suite: slow tests, Hypothesis profiles, and the stores.

Quick runs draw the same Hypothesis examples each time, so a red suite is red for everyone. `--slow` draws new ones,
more of them, and runs the tests marked `slow`. A test with the fixture `store` runs on each database; all tests of a
process share one PostgreSQL database, and each uses a tenant of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import settings

from threadline.core.sealing import Limits
from threadline.ports import Clock, Store
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.fixtures import LIMITS
from threadline.testing.conformance.fixtures import alice as alice
from threadline.testing.conformance.fixtures import bob as bob
from threadline.testing.conformance.fixtures import clock as clock
from threadline.testing.conformance.fixtures import other_tenant as other_tenant
from threadline.testing.conformance.fixtures import system as system
from threadline.testing.conformance.fixtures import tenant_id as tenant_id

settings.register_profile("quick", derandomize=True, deadline=None, database=None)
settings.register_profile("slow", deadline=None, max_examples=2_000, print_blob=True)

_shared: dict[str, str] = {}


class OpenStore(Protocol):
    """Opens the test's database again. Every store it opens is closed after the test."""

    def __call__(self, *, limits: Limits = ...) -> Awaitable[Store]: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, and search harder in the rest")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("slow" if config.getoption("--slow") else "quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture
def slow(request: pytest.FixtureRequest) -> bool:
    """Whether there is time to search harder."""
    return bool(request.config.getoption("--slow"))


@pytest.fixture(params=["memory", "file", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database: `:memory:`, a path, or an address of PostgreSQL."""
    if request.param == "memory":
        return ":memory:"
    if request.param == "file":
        return str(tmp_path / "threadline.db")
    return await postgres_database()


async def postgres_database() -> str:
    """The PostgreSQL database that the tests of this process share."""
    # Imported here, so that tests that need no PostgreSQL run without it.
    from threadline.testing.postgres import shared_server

    if "postgres" not in _shared:
        _shared["postgres"] = await shared_server().create_database()
    return _shared["postgres"]


async def open_database(database: str, *, clock: Clock, limits: Limits = LIMITS) -> Store:
    if database.startswith("postgresql://"):
        from threadline.stores.postgres.store import PostgresStore

        return await PostgresStore.open(database, clock=clock, limits=limits)
    from threadline.stores.sqlite.store import SqliteStore

    return await SqliteStore.open(database, clock=clock, limits=limits)


@pytest.fixture
async def open_store(database: str, clock: ManualClock) -> AsyncIterator[OpenStore]:
    opened: list[Store] = []

    async def open_once_more(*, limits: Limits = LIMITS) -> Store:
        opened.append(await open_database(database, clock=clock, limits=limits))
        return opened[-1]

    yield open_once_more
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return await open_store()
