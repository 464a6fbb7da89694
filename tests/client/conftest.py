"""The gateway twice: the library on a database, and a client of a service that runs as a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.service.test_server import served
from threadline.client import Client, RetryPolicy, connect

# Before the suite is imported: afterwards a failing assert would not show its values.
pytest.register_assert_rewrite(
    "threadline.testing.gateway",
    "threadline.testing.gateway_filters",
    "threadline.testing.gateway_questions",
    "threadline.testing.gateway_summaries",
    "threadline.testing.gateway_values",
)

IMPATIENT = RetryPolicy(connect_seconds=30, read_seconds=30, retry_seconds=(0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a `threadline serve` that all tests of a module share."""
    with served(tmp_path_factory.mktemp("service") / "t.db") as (url, _):
        yield url


@pytest.fixture
async def client(service: str) -> AsyncIterator[Client]:
    async with connect(service, retry=IMPATIENT) as connected:
        yield connected
