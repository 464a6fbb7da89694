"""Runs in the environment of the frameworks: what LangGraph's own tests of stores do not ask of a store here, on the
database that FRAMEWORK_TEST_DATABASE names."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore, PutOp

import threadline
from threadline.adapters.langgraph import ThreadlineSaver, ThreadlineStore
from threadline.adapters.langgraph.store_items import NAMESPACE

DATABASE = os.environ["FRAMEWORK_TEST_DATABASE"]


@pytest.fixture
def tl() -> Iterator[Any]:
    with threadline.open_sync(DATABASE) as opened:
        yield opened


@pytest.fixture
def gateway(tl: Any) -> threadline.SyncGateway:
    user: threadline.SyncGateway = tl.as_user(uuid.uuid4().hex)
    return user


def test_a_store_in_another_process_reads_what_was_stored_and_other_users_do_not(tl: Any, gateway: Any) -> None:
    moment = dt.datetime(2026, 11, 18, tzinfo=dt.UTC)
    value = {"likes": ["tea", "rain"], "since": moment, "count": 2**60, "secret": "sk-proj-" + "Ab3dE5fG7hJ9kL1m" * 3}
    ThreadlineStore(gateway).put(("ada", "facts"), "f1", value)
    item = ThreadlineStore(gateway).get(("ada", "facts"), "f1")
    assert item is not None
    assert (item.value, item.namespace, item.key) == (value, ("ada", "facts"), "f1")
    assert ThreadlineStore(tl.as_user("somebody else")).search(()) == []


def test_an_item_that_is_stored_again_keeps_when_it_was_created(gateway: Any) -> None:
    store = ThreadlineStore(gateway)
    store.put(("a",), "k", {"n": 1})
    first = store.get(("a",), "k")
    store.put(("a",), "k", {"n": 2})
    second = store.get(("a",), "k")
    assert first is not None
    assert second is not None
    assert second.created_at == first.created_at
    assert second.updated_at >= first.updated_at
    assert second.value == {"n": 2}


@pytest.mark.parametrize("key", ["", "x" * 3_000, "a..b", "\uf8ff", "Grüße / 日本\n", "%_'\""])
def test_any_key_is_read_as_it_was_stored(gateway: Any, key: str) -> None:
    store = ThreadlineStore(gateway)
    store.put(("a",), key, {"n": 1})
    store.put(("a",), f"{key}!", {"n": 2})
    found = store.get(("a",), key)
    assert found is not None
    assert (found.key, found.value) == (key, {"n": 1})
    assert {item.key for item in store.search(("a",))} == {key, f"{key}!"}
    assert store.list_namespaces() == [("a",)]
    store.delete(("a",), key)
    assert [item.key for item in store.search(("a",))] == [f"{key}!"]


def expiry(gateway: Any) -> dt.datetime | None:
    (value,) = gateway.values.list(NAMESPACE).items
    found: dt.datetime | None = value.expires_at
    return found


def test_an_item_expires_and_reading_it_delays_that(gateway: Any) -> None:
    store = ThreadlineStore(gateway, ttl={"default_ttl": 60.0, "refresh_on_read": True})
    store.put(("a",), "k", {"n": 1})
    stored = expiry(gateway)
    created = store.get(("a",), "k", refresh_ttl=False)
    assert stored is not None
    assert created is not None
    assert stored - created.updated_at < dt.timedelta(minutes=61)
    assert expiry(gateway) == stored
    store.get(("a",), "k")
    read = expiry(gateway)
    assert read is not None
    assert read > stored
    (found,) = store.search(("a",))
    searched = expiry(gateway)
    assert searched is not None
    assert searched > read
    assert found.updated_at == created.updated_at
    store.put(("a",), "k", {"n": 1}, ttl=None)
    assert expiry(gateway) is None


def test_an_expired_item_does_not_exist(gateway: Any) -> None:
    store = ThreadlineStore(gateway)
    store.put(("a",), "k", {"n": 1}, ttl=0.000_001)
    assert store.get(("a",), "k") is None
    assert store.search(("a",)) == []
    assert store.list_namespaces() == []


def test_a_batch_is_stored_whole_or_not_at_all(gateway: Any) -> None:
    store = ThreadlineStore(gateway)
    with pytest.raises(threadline.LimitExceeded):
        store.batch([PutOp(("a",), "small", {"n": 1}), PutOp(("a",), "large", {"n": b"x" * 68_000_000})])
    assert store.search(()) == []


def test_a_page_of_a_search_and_many_items(gateway: Any) -> None:
    store = ThreadlineStore(gateway)
    store.batch([PutOp(("a", str(n % 3)), f"{n:04}", {"n": n}) for n in range(1_200)])
    page = store.search(("a", "1"), filter={"n": {"$gte": 600}}, limit=5, offset=10)
    assert [item.value["n"] for item in page] == [631, 634, 637, 640, 643]
    assert store.list_namespaces(prefix=("a",)) == [("a", "0"), ("a", "1"), ("a", "2")]


def test_meaning_is_searched_only_with_an_embedding_function(gateway: Any) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[float(text.count("tea")), float(text.count("rain")), 1.0] for text in texts]

    ThreadlineStore(gateway).put(("a",), "old", {"text": "tea"})
    store = ThreadlineStore(gateway, index={"dims": 3, "embed": embed, "fields": ["text"]})
    store.put(("a",), "rain", {"text": "rain rain"})
    store.put(("a",), "tea", {"text": "tea tea"})
    found = store.search(("a",), query="tea")
    assert [item.key for item in found] == ["tea", "rain", "old"]
    assert [item.score is None for item in found] == [False, False, True]
    assert [item.score for item in ThreadlineStore(gateway).search(("a",), query="tea")] == [None, None, None]
    with pytest.raises(threadline.InvalidInput, match="`index` must have an embedding function"):
        ThreadlineStore(gateway, index={"dims": 3})


async def test_a_graph_remembers_across_its_threads() -> None:
    async def remember(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        count = len(await store.asearch(("seen",)))
        await store.aput(("seen",), f"{count}", {"text": state["messages"][-1].content})
        return {"messages": [("assistant", f"I know {count} before.")]}

    async with threadline.open(DATABASE) as tl:
        me = tl.as_user(uuid.uuid4().hex)
        builder = StateGraph(MessagesState).add_node("remember", remember).add_edge(START, "remember")
        graph = builder.compile(checkpointer=ThreadlineSaver(me), store=ThreadlineStore(me))
        for number in range(3):
            config = {"configurable": {"thread_id": f"t{number}"}}
            state = await graph.ainvoke({"messages": [("user", f"fact {number}")]}, config)
            assert state["messages"][-1].content == f"I know {number} before."
        both = await asyncio.gather(*(ThreadlineStore(me).asearch(("seen",), limit=n) for n in (2, 10)))
        assert [len(found) for found in both] == [2, 3]
