"""The search index: it follows appends, catches up when the store opens, and can be rebuilt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from tests.stores.sqlite.conftest import OpenSqlite
from threadline.core import parts
from threadline.core.messages import new_message
from threadline.core.threads import Scope
from threadline.stores.sqlite import search as indexing
from threadline.stores.sqlite.store import SqliteStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange, seal

BEHIND = "SELECT coalesce((SELECT max(no) FROM messages), 0) > indexed_no FROM search_progress"


async def until_indexed(path: Path) -> None:
    """Looks on from outside, asking the store for nothing."""
    looking = apsw.Connection(str(path))
    try:
        async with asyncio.timeout(30):
            while looking.execute(BEHIND).get:  # noqa: ASYNC110 another connection does not signal when it is done
                await asyncio.sleep(0.002)
    finally:
        looking.close()


async def test_the_index_follows_appends_by_itself(path: Path, store: SqliteStore) -> None:
    tx = store.scoped(Scope())
    thread = await create_thread_with(tx, *(f"word{n}" for n in range(100)))
    await until_indexed(path)
    for _ in range(5):
        await tx.append(thread.id, exchange("zebra"))
        await until_indexed(path)
    assert await store.index_pending() == 0
    assert len(await tx.search("zebra")) == 5


async def test_it_catches_up_when_the_file_is_opened(path: Path, open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()
    await create_thread_with(store.scoped(Scope()), *(f"word{n}" for n in range(500)))
    await store.close()
    await open_sqlite()
    await until_indexed(path)


async def test_two_stores_index_each_message_once(open_sqlite: OpenSqlite) -> None:
    one, two = await open_sqlite(), await open_sqlite()
    for store in (one, two, one):
        await create_thread_with(store.scoped(Scope()), *("zebra" for _ in range(100)))
    await asyncio.gather(one.index_pending(), two.index_pending())
    assert len(await two.scoped(Scope()).search("zebra", limit=1000)) == 300


async def test_another_recipe_rebuilds_the_index(
    path: Path, open_sqlite: OpenSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_sqlite()
    thread = await create_thread_with(store.scoped(Scope()), "a zebra", "a lion")
    await store.index_pending()
    await store.close()
    monkeypatch.setattr(indexing, "RECIPE", indexing.RECIPE + 1)
    monkeypatch.setattr(indexing, "_words", lambda parts: "giraffe")
    store = await open_sqlite()
    tx = store.scoped(Scope())
    assert await tx.search("zebra") == []
    assert len(await tx.search("giraffe")) == 2
    await tx.purge_thread(thread.id)
    assert await tx.search("giraffe") == []


async def test_a_message_without_text_has_no_words(store: SqliteStore) -> None:
    tx = store.scoped(Scope())
    thread = await create_thread_with(tx, "a zebra")
    silent = seal(new_message("assistant", [parts.tool_part("clock", "call-1", {}, output="noon")]))
    await tx.append(thread.id, [silent])
    await tx.append(thread.id, exchange("a lion"))
    assert len(await tx.search("lion")) == 1
    await tx.purge_thread(thread.id)
    assert await store.check() == []


async def test_more_hits_than_are_ranked_are_still_the_owners(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadline.stores.sqlite.search.RANKED", 5)
    alice, bob = store.scoped(Scope("local", "alice")), store.scoped(Scope("local", "bob"))
    for _ in range(3):
        await create_thread_with(alice, "zebra", "zebra zebra", "zebra")
        await create_thread_with(bob, "zebra", "zebra", "zebra")
    found = await alice.search("zebra", limit=50)
    assert len(found) == 5
    assert found[0].snippet == "zebra zebra"
    assert {hit.message_id for hit in found}.isdisjoint(hit.message_id for hit in await bob.search("zebra"))
