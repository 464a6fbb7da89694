"""A file of its own for each test of the SQLite store, opened as often as the test likes and closed after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.stores.sqlite.disk import Disk, a_disk
from threadline.stores.sqlite.store import SqliteStore
from threadline.testing.clock import ManualClock


class OpenSqlite(Protocol):
    def __call__(self, **given: Any) -> Awaitable[SqliteStore]: ...


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "threadline.db"


@pytest.fixture
def disk() -> Iterator[Disk]:
    """Comes before the stores that are to live on it."""
    with a_disk() as disk:
        yield disk


@pytest.fixture
async def open_sqlite(path: Path, clock: ManualClock) -> AsyncIterator[OpenSqlite]:
    opened: list[SqliteStore] = []

    async def open_file(**given: Any) -> SqliteStore:
        opened.append(await SqliteStore.open(path, **{"clock": clock, **given}))
        return opened[-1]

    yield open_file
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_sqlite: OpenSqlite) -> SqliteStore:
    return await open_sqlite()
