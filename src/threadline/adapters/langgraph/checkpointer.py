"""`ThreadlineSaver`: a LangGraph checkpointer that stores a graph's threads as threads of Threadline.

Each thread id of a graph is a thread with that state key. Checkpoints are values beside its log; the `messages` channel
of the graph is its log. Synchronous and asynchronous methods can be used together.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    SerializerProtocol,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)

from threadline.adapters.langgraph import retention
from threadline.adapters.langgraph.checkpoint_store import CheckpointStore, LoadedCheckpoint, Put, load
from threadline.adapters.langgraph.records import CheckpointRecord
from threadline.adapters.loop_bridge import LoopBridge
from threadline.core.errors import InvalidInput, NotFound
from threadline.ports import Gateway, GatewayThread
from threadline.sync_api import SyncGateway

# Versions of a channel are compared as texts.
_VERSION_DIGITS = 10


class ThreadlineSaver(BaseCheckpointSaver[str]):
    """`messages` is the channel whose messages are shown in the thread; None shows nothing."""

    def __init__(
        self,
        gateway: Gateway | SyncGateway,
        *,
        messages: str | None = "messages",
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._bridge = LoopBridge(gateway)
        self._store = CheckpointStore(self._bridge.gateway, messages)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._bridge.run(self._put(config, checkpoint, metadata, new_versions))

    async def _put(
        self, config: RunnableConfig, checkpoint: Any, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        thread_id, namespace = _place(config)
        stored = get_serializable_checkpoint_metadata(config, metadata)
        put = Put(namespace, get_checkpoint_id(config), checkpoint, stored, new_versions)
        await self._store.put(self.serde, thread_id, put)
        return _config(thread_id, namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._bridge.run(self._put_writes(config, writes, task_id, task_path))

    async def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        thread_id, namespace = _place(config)
        place = (namespace, str(config["configurable"]["checkpoint_id"]))
        await self._store.put_writes(self.serde, thread_id, place, writes, (task_id, task_path))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._bridge.run(self._get(config))

    async def _get(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await self._store.get(self.serde, *_place(config), get_checkpoint_id(config))
        return None if found is None else _tuple(found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self._list(config, filter or {}, before, limit)
        while True:
            try:
                yield await self._bridge.run(_next(found))
            except StopAsyncIteration:
                return

    async def _list(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any],
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncIterator[CheckpointTuple]:
        namespace = config["configurable"].get("checkpoint_ns") if config else None
        only = get_checkpoint_id(config) if config else None
        end = get_checkpoint_id(before) if before else None
        count = 0
        async for thread_id in self._thread_ids(config):
            thread = await self._store.find(thread_id)
            if thread is None:
                continue
            async for record in self._store.records(thread, namespace):
                if limit is not None and count >= limit:
                    return
                if self._matches(record, only, end, filter):
                    count += 1
                    yield _tuple(await load(self.serde, thread, thread_id, record))

    async def _thread_ids(self, config: RunnableConfig | None) -> AsyncIterator[str]:
        if config:
            yield _place(config)[0]
            return
        async for thread_id in self._store.thread_ids():
            yield thread_id

    def _matches(self, record: CheckpointRecord, only: str | None, end: str | None, filter: dict[str, Any]) -> bool:
        if (only and record.id != only) or (end and record.id >= end):
            return False
        if not filter:
            return True
        metadata = self.serde.loads_typed(record.metadata)
        return all(metadata.get(key) == value for key, value in filter.items())

    async def adelete_thread(self, thread_id: str) -> None:
        await self._bridge.run(self._delete_thread(str(thread_id)))

    async def _delete_thread(self, thread_id: str) -> None:
        async def work(thread: GatewayThread) -> None:
            await retention.delete_thread(self._store, self.serde, thread)

        await self._store.with_thread(thread_id, work)
        self._store.forget(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._bridge.run(retention.delete_runs(self._store, self.serde, run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """NotFound if there is no such thread, DuplicateId if there is one under the new id."""
        await self._bridge.run(self._copy_thread(str(source_thread_id), str(target_thread_id)))

    async def _copy_thread(self, source_id: str, target_id: str) -> None:
        source = await self._store.find(source_id)
        if source is None:
            raise NotFound("thread", source_id)
        await retention.copy_thread(self._store, source, target_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f"`strategy` must be keep_latest or delete, got {strategy!r}")
        for thread_id in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread_id)
            else:
                await self._bridge.run(self._keep_latest(str(thread_id)))

    async def _keep_latest(self, thread_id: str) -> None:
        async def work(thread: GatewayThread) -> None:
            await retention.keep_latest(self._store, self.serde, thread)

        await self._store.with_thread(thread_id, work)

    # The same without `await`.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._bridge.wait(self._put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._bridge.wait(self._put_writes(config, writes, task_id, task_path))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._bridge.wait(self._get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        found = self._list(config, filter or {}, before, limit)
        while True:
            try:
                yield self._bridge.wait(_next(found))
            except StopAsyncIteration:
                return

    def delete_thread(self, thread_id: str) -> None:
        self._bridge.wait(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._bridge.wait(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._bridge.wait(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._bridge.wait(self.aprune(thread_ids, strategy=strategy))

    def get_next_version(self, current: Any, channel: None) -> str:
        """Greater than the current one, and different from every other that follows it: a graph that continues from an
        earlier checkpoint writes other values after the same version."""
        number, width = 0, _VERSION_DIGITS
        if isinstance(current, str):
            digits = current.partition(".")[0]
            number, width = int(digits), len(digits)
        elif current is not None:
            number = int(current)
        return f"{number + 1:0{width}}.{random.getrandbits(32):08x}"


async def _next(found: AsyncIterator[CheckpointTuple]) -> CheckpointTuple:
    return await anext(found)


def _place(config: RunnableConfig) -> tuple[str, str]:
    configurable = config["configurable"]
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns") or ""


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def _tuple(found: LoadedCheckpoint) -> CheckpointTuple:
    return CheckpointTuple(
        config=_config(found.thread_id, found.namespace, found.id),
        checkpoint=found.checkpoint,
        metadata=found.metadata,
        parent_config=_config(found.thread_id, found.namespace, found.parent_id) if found.parent_id else None,
        pending_writes=found.writes,
    )
