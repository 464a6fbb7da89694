"""The same door twice: the library on a database, and a client of a service that runs as a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import threadline
from tests.service.test_server import served
from threadline.client import Client, RetryPolicy, connect
from threadline.replies import Defer
from threadline.settings import Settings

IMPATIENT = RetryPolicy(connect_seconds=30, read_seconds=30, retry_seconds=(0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a `threadline serve` that all tests of a module share."""
    with served(tmp_path_factory.mktemp("service") / "t.db") as (url, _):
        yield url


@pytest.fixture
async def client(service: str) -> AsyncIterator[Client]:
    async with connect(service, patience=IMPATIENT) as connected:
        yield connected


class Door:
    """What both have in common, spelled alike where beginnings differ: a library's thread is made before it is used."""

    def __init__(self, view: Any, *, is_remote: bool) -> None:
        self.view = view
        self.is_remote = is_remote

    async def thread(self) -> Any:
        return self.view.create_thread() if self.is_remote else await self.view.create_thread()

    @property
    def later(self) -> dict[str, Any]:
        """How to ask so that approvals wait: over HTTP they do anyway."""
        return {} if self.is_remote else {"approver": Defer()}


@pytest.fixture(params=["library", "client"])
async def door(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Door]:
    if request.param == "client":
        service: str = request.getfixturevalue("service")
        async with connect(service, patience=IMPATIENT) as connected:
            yield Door(connected, is_remote=True)
        return
    async with threadline.open(settings=Settings(database=str(tmp_path / "t.db"))) as tl:
        yield Door(tl.as_user(), is_remote=False)
