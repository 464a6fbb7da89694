"""`ThreadlineStore`: LangGraph's long-term memory as values of the user, beside all threads.

Items of a user are seen by this user only. A batch reads first and then makes all its changes or none, as LangGraph's
own stores do. Search by meaning compares vectors in this process, and only with an embedding function in `index`.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    ListNamespacesOp,
    Op,
    PutOp,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)

from threadline.adapters.langgraph import store_items
from threadline.adapters.langgraph.checkpoint_store import list_all, read_all
from threadline.adapters.langgraph.store_items import NAMESPACE, StoredItem
from threadline.adapters.loop_bridge import LoopBridge
from threadline.core.errors import InvalidInput, ValueChanged
from threadline.core.messages import to_us
from threadline.core.values import DeleteValue, PutValue, StoredValue, ValueChange
from threadline.ports import Gateway
from threadline.sync_api import SyncGateway


class _Found(NamedTuple):
    value_key: str
    version: int
    stored: StoredItem
    value: dict[str, Any]


class ThreadlineStore(BaseStore):
    """`index` has an embedding function (`embed`) and the fields to index; `ttl` are defaults for expiry."""

    supports_ttl = True

    def __init__(
        self,
        gateway: Gateway | SyncGateway,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        serde: SerializerProtocol | None = None,
    ) -> None:
        if index is not None and not index.get("embed"):
            raise InvalidInput("`index` must have an embedding function: give `embed`")
        self.ttl_config = ttl
        self.index_config = index
        self.embeddings = None if index is None else ensure_embeddings(index["embed"])
        self._fields: list[str] = list((index or {}).get("fields") or ["$"])
        self._bridge = LoopBridge(gateway)
        self._values = self._bridge.gateway.values
        self._serde = serde or JsonPlusSerializer()

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        return self._bridge.wait(self._run(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        return await self._bridge.run(self._run(list(ops)))

    async def _run(self, ops: list[Op]) -> list[Any]:
        for op in ops:
            validate_op_namespace(op)
        gets = await self._read([op for op in ops if isinstance(op, GetOp)])
        puts: dict[str, PutOp] = {}
        results: list[Any] = []
        for op in ops:
            match op:
                case GetOp():
                    found = gets.get(store_items.value_key(op.namespace, op.key))
                    results.append(None if found is None else store_items.to_item(found.stored, found.value))
                case SearchOp():
                    results.append(await self._search(op))
                case ListNamespacesOp():
                    results.append(await self._namespaces(op))
                case PutOp():
                    puts[store_items.value_key(op.namespace, op.key)] = op
                    results.append(None)
                case _:
                    raise InvalidInput(f"an operation of a store must be one of LangGraph's, got {type(op).__name__}")
        if puts:
            await self._write(puts)
        return results

    async def _read(self, ops: Sequence[GetOp]) -> dict[str, _Found]:
        keys = {store_items.value_key(op.namespace, op.key): op for op in ops}
        found: dict[str, _Found] = {}
        for at in range(0, len(keys), 500):
            read = await self._values.get_many(NAMESPACE, list(keys)[at : at + 500])
            found |= {key: self._decode(value) for key, value in read.items()}
        await self._refresh([each for key, each in found.items() if keys[key].refresh_ttl])
        return found

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        query = op.query if self.embeddings is not None else None
        found: list[_Found] = []
        async for each in self._below(op.namespace_prefix):
            if store_items.passes(each.value, op.filter):
                found.append(each)
                # Without a query the order is that of the keys: what follows the page is not needed.
                if not query and len(found) >= op.offset + op.limit:
                    break
        scores: dict[str, float | None] = {}
        if query and self.embeddings is not None:
            vector = await self.embeddings.aembed_query(query)
            # In a thread: comparing thousands of vectors would stop everything else on the loop.
            scores = await asyncio.to_thread(_score, vector, found)
            found.sort(key=lambda each: _rank(scores[each.value_key]))
        page = found[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            await self._refresh(page)
        return [
            SearchItem(**store_items.item_fields(each.stored, each.value), score=scores.get(each.value_key))
            for each in page
        ]

    async def _below(self, namespace: Sequence[str]) -> AsyncIterator[_Found]:
        async for value in list_all(self._values, NAMESPACE, store_items.prefix_of(namespace)):
            yield self._decode(value)

    async def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        prefix = store_items.prefix_of(store_items.common_prefix(conditions))
        found: set[tuple[str, ...]] = set()
        async for value in list_all(self._values, NAMESPACE, prefix, with_data=False):
            namespace = store_items.namespace_of(value.key)
            if all(store_items.is_match(condition, namespace) for condition in conditions):
                found.add(namespace[: op.max_depth])
        return sorted(found)[op.offset : op.offset + op.limit]

    async def _write(self, puts: dict[str, PutOp]) -> None:
        vectors = await self._embed(puts)
        stored = [key for key, op in puts.items() if op.value is not None]
        # When an item was created is kept, so those that exist are read.
        earlier = {
            key: store_items.decode(data) for key, data in (await read_all(self._values, NAMESPACE, stored)).items()
        }
        now = to_us(dt.datetime.now(dt.UTC))
        changes: list[ValueChange] = []
        for key, op in puts.items():
            if op.value is None:
                changes.append(DeleteValue(NAMESPACE, key, scope="user"))
                continue
            created = earlier[key].created_us if key in earlier else now
            value = self._serde.dumps_typed(dict(op.value))
            item = StoredItem(op.namespace, op.key, value, created, now, op.ttl, vectors.get(key, []))
            changes.append(_put(key, item, None))
        await self._values.write(*changes)

    async def _embed(self, puts: dict[str, PutOp]) -> dict[str, list[bytes]]:
        if self.embeddings is None:
            return {}
        texts: list[tuple[str, str]] = []
        for key, op in puts.items():
            if op.value is not None and op.index is not False:
                fields = self._fields if op.index is None else op.index
                paths = [field if field == "$" else tokenize_path(field) for field in fields]
                texts += [(key, text) for path in paths for text in get_text_at_path(op.value, path)]
        if not texts:
            return {}
        made = await self.embeddings.aembed_documents([text for _, text in texts])
        found: dict[str, list[bytes]] = {}
        for (key, _), numbers in zip(texts, made, strict=True):
            found.setdefault(key, []).append(store_items.pack_vector(numbers))
        return found

    async def _refresh(self, found: Sequence[_Found]) -> None:
        """Items with an expiry expire so long after they were last read."""
        for each in found:
            if each.stored.ttl is not None:
                try:
                    await self._values.write(_put(each.value_key, each.stored, each.version))
                except ValueChanged:
                    # It was stored again since, with an expiry of its own.
                    continue

    def _decode(self, value: StoredValue) -> _Found:
        assert value.data is not None, "values are read with their data"
        stored = store_items.decode(value.data)
        return _Found(value.key, value.version, stored, self._serde.loads_typed(stored.value))


def _put(key: str, item: StoredItem, expected_version: int | None) -> PutValue:
    ttl = None if item.ttl is None else dt.timedelta(minutes=item.ttl)
    data = store_items.encode(item)
    return PutValue(NAMESPACE, key, data, scope="user", expected_version=expected_version, ttl=ttl)


def _score(query: Sequence[float], found: Sequence[_Found]) -> dict[str, float | None]:
    return {each.value_key: store_items.similarity(query, each.stored.vectors) for each in found}


def _rank(score: float | None) -> tuple[bool, float]:
    """The best first, items without a vector last."""
    return (score is None, -(score or 0.0))
