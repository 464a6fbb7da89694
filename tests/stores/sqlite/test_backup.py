"""Backups made while the store is in use: one moment, whole, under its name only when it is done."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.stores.sqlite.conftest import OpenSqlite
from threadline.core.errors import InvalidInput
from threadline.core.threads import Scope
from threadline.stores.sqlite.store import SqliteStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history


def files_beside(path: Path) -> set[str]:
    return {file.name for file in path.parent.iterdir()}


async def test_a_backup_is_one_moment_of_a_busy_store(path: Path, open_sqlite: OpenSqlite, tmp_path: Path) -> None:
    store = await open_sqlite()
    tx = store.scoped(Scope())
    thread = await create_thread_with(tx, *("word " * 200 for _ in range(100)))
    told: list[tuple[int, int]] = []
    target = tmp_path / "backup" / "copy.db"
    target.parent.mkdir()
    copying = asyncio.create_task(store.backup(target, progress=lambda done, of: told.append((done, of))))
    said = 0
    while not copying.done():
        await tx.append(thread.id, exchange("a", "b"))
        said += 1
    await copying
    assert said > 0
    assert told[-1][0] == told[-1][1] > 0
    copy = await SqliteStore.open(target)
    kept = await history(copy.scoped(Scope()), thread.id)
    everything = await history(tx, thread.id)
    assert kept == everything[: len(kept)]
    assert len(kept) >= 100
    assert len(kept) % 2 == 0
    assert await copy.check() == []
    await copy.scoped(Scope()).append(thread.id, exchange("the copy's own"))
    await copy.close()
    assert files_beside(target) == {"copy.db"}


async def test_a_backup_never_takes_the_place_of_a_file(path: Path, store: SqliteStore, tmp_path: Path) -> None:
    for taken in (path, ":memory:"):
        with pytest.raises(InvalidInput, match="does not exist"):
            await store.backup(taken)
    assert await store.check() == []


async def test_a_backup_that_fails_leaves_nothing(path: Path, store: SqliteStore, tmp_path: Path) -> None:
    def fail(done: int, of: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await store.backup(tmp_path / "copy.db", progress=fail)
    assert {name for name in files_beside(path) if name.startswith("copy")} == set()


async def test_memory_can_be_kept(tmp_path: Path) -> None:
    store = await SqliteStore.open(":memory:")
    thread = await create_thread_with(store.scoped(Scope()), "hello")
    await store.backup(tmp_path / "kept.db")
    await store.close()
    kept = await SqliteStore.open(tmp_path / "kept.db")
    assert await history(kept.scoped(Scope()), thread.id) == ["hello"]
    await kept.close()
