"""Reading and writing of checkpoints as values of threads. A graph's thread id is the state key of a thread."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from threadline.adapters.langgraph import list_blocks, records
from threadline.adapters.langgraph.known_lists import KnownList, KnownLists
from threadline.adapters.langgraph.list_blocks import Place, Typed
from threadline.adapters.langgraph.message_log import MessageLog
from threadline.adapters.langgraph.records import ChannelRecord, CheckpointRecord, TaskWrite, WritesRecord
from threadline.core.errors import NotFound, StoreCorrupt, ValueChanged
from threadline.core.values import PutValue, StoredValue, ValueChange
from threadline.ports import Gateway, GatewayThread, GatewayValues

T = TypeVar("T")

# Blocks that this process wrote so recently are not written again. `retention.collect` never removes a block that was
# written in twice this time, so a block that is not written again exists.
BLOCK_SECONDS = 1_800.0
_KNOWN_THREADS = 1_000
_PAGE = 200
# Others write to the same value. Each attempt reads what they wrote; so many in a row do not happen.
_ATTEMPTS = 20
_PLAIN_SERIALIZER = JsonPlusSerializer()


class LoadedCheckpoint(NamedTuple):
    """`writes` are (task id, channel, value), in the order in which a graph applies them."""

    thread_id: str
    namespace: str
    id: str
    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: list[tuple[str, str, Any]]


class Put(NamedTuple):
    """A checkpoint to store. `changed` are the channels that have a new version."""

    namespace: str
    parent_id: str | None
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    changed: Mapping[str, Any]


class CheckpointStore:
    def __init__(self, gateway: Gateway, messages_channel: str | None) -> None:
        self.gateway = gateway
        self._messages_channel = messages_channel
        self._log = MessageLog()
        self._lists = KnownLists()
        self._threads: OrderedDict[str, GatewayThread] = OrderedDict()
        self._blocks: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._runs: OrderedDict[str, None] = OrderedDict()

    # Threads

    async def find(self, thread_id: str) -> GatewayThread | None:
        known = self._threads.get(thread_id)
        if known is None:
            try:
                known = await self.gateway.thread(thread_id)
            except NotFound:
                return None
            self._remember(thread_id, known)
        return known

    def _remember(self, thread_id: str, thread: GatewayThread) -> None:
        self._threads[thread_id] = thread
        if len(self._threads) > _KNOWN_THREADS:
            self._threads.popitem(last=False)

    def forget(self, thread_id: str) -> None:
        thread = self._threads.pop(thread_id, None)
        if thread is not None:
            self._log.forget(thread.id)

    async def with_thread(self, thread_id: str, work: Callable[[GatewayThread], Awaitable[T]]) -> T | None:
        """None if there is no such thread."""
        for _ in range(2):
            thread = await self.find(thread_id)
            if thread is None:
                return None
            try:
                return await work(thread)
            except NotFound:
                # It was deleted since; another thread may have its key now.
                self.forget(thread_id)
        return None

    async def _in_new_thread(self, thread_id: str, work: Callable[[GatewayThread], Awaitable[None]]) -> None:
        """Creates the thread if there is none."""
        for attempt in range(_ATTEMPTS):
            thread = await self.find(thread_id)
            if thread is None:
                thread = await self.gateway.open_thread(thread_id)
                self._remember(thread_id, thread)
            try:
                await work(thread)
            except NotFound:
                self.forget(thread_id)
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    # Writing

    async def put(self, serde: SerializerProtocol, thread_id: str, put: Put) -> None:
        async def work(thread: GatewayThread) -> None:
            changes, blocks, messages = self._changes(serde, thread, put)
            if messages is None:
                await thread.values.write(*changes)
            else:
                await self._log.store(thread, *messages, changes)
            self._remember_blocks(thread, blocks)

        await self._in_new_thread(thread_id, work)

    def _changes(
        self, serde: SerializerProtocol, thread: GatewayThread, put: Put
    ) -> tuple[list[ValueChange], list[str], tuple[list[BaseMessage], list[str]] | None]:
        values: Mapping[str, Any] = put.checkpoint["channel_values"]
        inline = {name: value for name, value in values.items() if records.is_inline(value)}
        stored = [name for name in values if name not in inline]
        rest = {key: value for key, value in put.checkpoint.items() if key != "channel_values"}
        record = CheckpointRecord(
            put.namespace,
            put.checkpoint["id"],
            put.parent_id,
            serde.dumps_typed(rest),
            serde.dumps_typed(put.metadata),
            inline,
            stored,
        )
        key = records.checkpoint_key(put.namespace, record.id)
        changes: list[ValueChange] = [PutValue(records.CHECKPOINTS, key, records.encode(record))]
        blocks: dict[str, bytes] = {}
        messages = None
        for name in stored:
            if name not in put.changed:
                continue
            value = values[name]
            is_shown = not put.namespace and name == self._messages_channel and _are_messages(value)
            known = None
            if is_shown or _is_divided(serde, value):
                known = self._lists.update((thread.id, put.namespace, name), value, _plain_serialiser(serde))
            if is_shown and known is not None:
                messages = (value, known.ids())
            channel, places = _channel_record(serde, value, known)
            if known is not None:
                new = [block for block in places if not self._is_known_block(thread, block)]
                blocks |= {block: list_blocks.block_data(known.typed, places[block]) for block in new}
            channel_key = records.channel_key(put.namespace, name, put.changed[name])
            changes.append(PutValue(records.CHANNELS, channel_key, records.encode(channel)))
        changes += [PutValue(records.BLOCKS, block, data) for block, data in blocks.items()]
        changes += self._run_entry(thread, put.metadata.get("run_id"))
        return changes, list(blocks), messages

    def _is_known_block(self, thread: GatewayThread, block: str) -> bool:
        written = self._blocks.get((thread.id, block))
        return written is not None and time.monotonic() - written < BLOCK_SECONDS

    def _remember_blocks(self, thread: GatewayThread, blocks: Sequence[str]) -> None:
        for block in blocks:
            self._blocks[thread.id, block] = time.monotonic()
        while len(self._blocks) > 100_000:
            self._blocks.popitem(last=False)

    def _run_entry(self, thread: GatewayThread, run_id: object) -> list[ValueChange]:
        """In which thread a run is, so that it can be deleted. Stored with the run's first checkpoint here."""
        key = f"{run_id}/{thread.id}"
        if not run_id or key in self._runs:
            return []
        self._runs[key] = None
        if len(self._runs) > _KNOWN_THREADS:
            self._runs.popitem(last=False)
        return [PutValue(records.RUNS, key, b"", scope="user")]

    def forget_runs(self, run_ids: Sequence[str]) -> None:
        for key in [key for key in self._runs if key.rpartition("/")[0] in run_ids]:
            del self._runs[key]

    async def put_writes(
        self,
        serde: SerializerProtocol,
        thread_id: str,
        place: tuple[str, str],
        writes: Sequence[tuple[str, Any]],
        task: tuple[str, str],
    ) -> None:
        """`place` is the namespace and the checkpoint, `task` the id and path of the task. Of two usual writes with the
        same index the first stays; of two errors or interrupts the last."""
        by_key: dict[str, WritesRecord] = {}
        for number, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, number)
            key = records.writes_key(*place, task[0], index)
            record = by_key.setdefault(key, WritesRecord(*task, []))
            record.writes.append(TaskWrite(index, channel, serde.dumps_typed(value)))
        usual_key = records.writes_key(*place, task[0], 0)
        usual = by_key.pop(usual_key, None)
        special = [PutValue(records.WRITES, key, records.encode(record)) for key, record in by_key.items()]

        async def work(thread: GatewayThread) -> None:
            if usual is None:
                await thread.values.write(*special)
            else:
                await _add_writes(thread.values, usual_key, usual, special)

        if by_key or usual:
            await self._in_new_thread(thread_id, work)

    # Reading

    async def get(
        self, serde: SerializerProtocol, thread_id: str, namespace: str, checkpoint_id: str | None
    ) -> LoadedCheckpoint | None:
        async def work(thread: GatewayThread) -> LoadedCheckpoint | None:
            if checkpoint_id is None:
                prefix = records.namespace_key(namespace)
                page = await thread.values.list(
                    records.CHECKPOINTS, prefix=prefix, limit=1, descending=True, with_data=True
                )
                found = page.items[0] if page.items else None
            else:
                found = await thread.values.get(records.CHECKPOINTS, records.checkpoint_key(namespace, checkpoint_id))
            return None if found is None else await load(serde, thread, thread_id, _record(found))

        return await self.with_thread(thread_id, work)

    async def records(self, thread: GatewayThread, namespace: str | None = None) -> AsyncIterator[CheckpointRecord]:
        """Newest first in each namespace."""
        prefix = "" if namespace is None else records.namespace_key(namespace)
        async for value in list_all(thread.values, records.CHECKPOINTS, prefix, descending=True):
            yield _record(value)

    async def thread_ids(self) -> AsyncIterator[str]:
        """The state keys of all threads of the user."""
        cursor: str | None = None
        while True:
            page = await self.gateway.threads(limit=100, cursor=cursor, archived=None)
            for thread in page.items:
                yield thread.state_key
            cursor = page.next_cursor
            if cursor is None:
                return


async def load(
    serde: SerializerProtocol, thread: GatewayThread, thread_id: str, record: CheckpointRecord
) -> LoadedCheckpoint:
    checkpoint = dict(serde.loads_typed(record.checkpoint))
    keys = records.channel_keys(record, checkpoint["channel_versions"])
    channels, writes = await asyncio.gather(
        _read_channels(serde, thread.values, keys),
        _read_writes(serde, thread.values, records.writes_prefix(record.namespace, record.id)),
    )
    checkpoint["channel_values"] = {**record.inline, **channels}
    metadata = serde.loads_typed(record.metadata)
    return LoadedCheckpoint(thread_id, record.namespace, record.id, record.parent_id, checkpoint, metadata, writes)


async def _read_channels(serde: SerializerProtocol, values: GatewayValues, keys: Mapping[str, str]) -> dict[str, Any]:
    if not keys:
        return {}
    found = await values.get_many(records.CHANNELS, list(keys.values()))
    channels = {name: records.decode_channel(_data(found[key])) for name, key in keys.items() if key in found}
    wanted = [key for channel in channels.values() for key in list_blocks.block_keys(channel.entries or [])]
    blocks = await read_all(values, records.BLOCKS, wanted)
    return {name: _load_channel(serde, channel, blocks) for name, channel in channels.items()}


def _load_channel(serde: SerializerProtocol, channel: ChannelRecord, blocks: Mapping[str, bytes]) -> Any:
    if channel.whole is not None:
        return serde.loads_typed(channel.whole)
    try:
        elements = list_blocks.join(channel.entries or [], blocks)
    except KeyError as exc:
        raise StoreCorrupt(f"block {exc} of a checkpoint is missing: restore it from a backup") from exc
    joined = list_blocks.joined(elements)
    return [serde.loads_typed(each) for each in elements] if joined is None else serde.loads_typed(joined)


async def _read_writes(serde: SerializerProtocol, values: GatewayValues, prefix: str) -> list[tuple[str, str, Any]]:
    found = [
        records.decode_writes(_data(value))
        async for value in list_all(values, records.WRITES, prefix)
        if records.is_write_of(value.key, prefix)
    ]
    flat = [(each.task_path, each.task_id, write.index, write) for each in found for write in each.writes]
    # The order in which a run applies the writes of a step.
    flat.sort(key=lambda item: item[:3])
    return [(task_id, write.channel, serde.loads_typed(write.value)) for _, task_id, _, write in flat]


async def read_all(values: GatewayValues, namespace: str, keys: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for at in range(0, len(keys), 500):
        read = await values.get_many(namespace, keys[at : at + 500])
        found.update((key, _data(value)) for key, value in read.items())
    return found


async def list_all(
    values: GatewayValues, namespace: str, prefix: str = "", *, descending: bool = False, with_data: bool = True
) -> AsyncIterator[StoredValue]:
    cursor: str | None = None
    while True:
        page = await values.list(
            namespace, prefix=prefix, limit=_PAGE, cursor=cursor, descending=descending, with_data=with_data
        )
        for value in page.items:
            yield value
        cursor = page.next_cursor
        if cursor is None:
            return


async def _add_writes(values: GatewayValues, key: str, usual: WritesRecord, special: Sequence[PutValue]) -> None:
    version, record = 0, usual
    for _ in range(_ATTEMPTS):
        put = PutValue(records.WRITES, key, records.encode(record), expected_version=version)
        try:
            await values.write(put, *special)
        except ValueChanged:
            stored = await values.get(records.WRITES, key)
            if stored is None:
                version, record = 0, usual
                continue
            earlier = records.decode_writes(_data(stored))
            kept = {write.index for write in earlier.writes}
            new = [write for write in usual.writes if write.index not in kept]
            version = stored.version
            record = WritesRecord(earlier.task_id, earlier.task_path, earlier.writes + new)
        else:
            return
    raise ValueChanged(key, version, version)


def _is_divided(serde: SerializerProtocol, value: Any) -> bool:
    # Blocks are found by their content, and only LangGraph's own serialiser gives equal values equal bytes.
    return type(value) is list and len(value) >= list_blocks.SHORTEST and type(serde) is JsonPlusSerializer


def _channel_record(
    serde: SerializerProtocol, value: Any, known: KnownList | None
) -> tuple[ChannelRecord, dict[str, Place]]:
    """The record, and where the blocks are that it names."""
    if known is None or not _is_divided(serde, value):
        return ChannelRecord(whole=serde.dumps_typed(value)), {}
    entries, blocks = list_blocks.split(known.typed, known.digests)
    return ChannelRecord(entries=entries), blocks


def _plain_serialiser(serde: SerializerProtocol) -> Callable[[Any], Typed]:
    serialise: Callable[[Any], Typed] = (serde if type(serde) is JsonPlusSerializer else _PLAIN_SERIALIZER).dumps_typed
    return serialise


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, BaseMessage) for each in value)


def _record(value: StoredValue) -> CheckpointRecord:
    return records.decode_checkpoint(_data(value))


def _data(value: StoredValue) -> bytes:
    assert value.data is not None, "values are read with their data"
    return value.data
