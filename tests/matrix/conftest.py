"""A real homeserver, and bots for the tests: in the service's process, or over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.remote import IN_PROCESS, RemoteWorld
from tests.matrix.synapse import NoWheel, Synapse, shared_server


@pytest.fixture(scope="session")
def synapse() -> Synapse:
    try:
        return shared_server()
    except NoWheel as exc:
        pytest.skip(str(exc))


@pytest.fixture
async def world(request: pytest.FixtureRequest, synapse: Synapse, tmp_path: Path) -> AsyncIterator[World]:
    """In process, unless a test asks for another or for both."""
    kind = World if getattr(request, "param", IN_PROCESS) == IN_PROCESS else RemoteWorld
    async with AsyncExitStack() as stack:
        yield kind(synapse, tmp_path, stack)
