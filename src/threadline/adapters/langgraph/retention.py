"""Deletion of checkpoints: of runs, of all but the latest, and of the values that no checkpoint refers to then."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.checkpoint.base import SerializerProtocol

from threadline.adapters.langgraph import list_blocks, records
from threadline.adapters.langgraph.checkpoint_store import BLOCK_SECONDS, CheckpointStore, list_all, read_all
from threadline.adapters.langgraph.records import CheckpointRecord
from threadline.core.errors import DuplicateId, NotFound
from threadline.core.values import DeleteValue, PutValue, ValueChange
from threadline.ports import GatewayThread

# Others may be about to refer to a block that they wrote: see `checkpoint_store.BLOCK_SECONDS`.
_BLOCK_AGE = dt.timedelta(seconds=2 * BLOCK_SECONDS)
_BATCH = 500
_COPY_BYTES = 4_194_304


async def keep_latest(store: CheckpointStore, serde: SerializerProtocol, thread: GatewayThread) -> None:
    """Keeps the latest checkpoint of each namespace, and those that its delta channels are computed from."""
    found = [record async for record in store.records(thread)]
    latest: dict[str, CheckpointRecord] = {}
    for record in found:
        latest.setdefault(record.namespace, record)
    by_id = {_key(record): record for record in found}
    kept: set[tuple[str, str]] = set()
    for record in latest.values():
        kept.update(_needed(record, by_id, serde))
    await _remove(thread, serde, found, set(by_id) - kept)


def _needed(
    record: CheckpointRecord, by_id: dict[tuple[str, str], CheckpointRecord], serde: SerializerProtocol
) -> Iterable[tuple[str, str]]:
    """The checkpoint and its ancestors down to those that hold the values of its delta channels."""
    metadata: dict[str, Any] = serde.loads_typed(record.metadata)
    missing = set(metadata.get("counters_since_delta_snapshot") or ())
    at: CheckpointRecord | None = record
    while at is not None:
        yield _key(at)
        missing -= {*at.stored, *at.inline}
        at = by_id.get((at.namespace, at.parent_id)) if missing and at.parent_id else None


async def delete_runs(store: CheckpointStore, serde: SerializerProtocol, run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        entries = [value.key async for value in list_all(store.gateway.values, records.RUNS, f"{run_id}/")]
        for entry in entries:
            try:
                thread = await store.gateway.thread(entry.rpartition("/")[2])
                found = [record async for record in store.records(thread)]
                await _remove(thread, serde, found, {_key(record) for record in found if _run(serde, record) == run_id})
            except NotFound:
                # The thread was deleted; only the entry is left.
                pass
            await store.gateway.values.delete(records.RUNS, entry)
    store.forget_runs(run_ids)


async def delete_thread(store: CheckpointStore, serde: SerializerProtocol, thread: GatewayThread) -> None:
    runs = {_run(serde, record) async for record in store.records(thread)}
    entries = [f"{run_id}/{thread.id}" for run_id in runs if run_id]
    await thread.delete()
    await thread.purge()
    for at in range(0, len(entries), _BATCH):
        await store.gateway.values.write(
            *[DeleteValue(records.RUNS, entry, scope="user") for entry in entries[at : at + _BATCH]]
        )
    store.forget_runs([str(run_id) for run_id in runs])


async def copy_thread(store: CheckpointStore, source: GatewayThread, target_id: str) -> None:
    """A branch of the source with all its checkpoints. DuplicateId if there is a thread under this id."""
    if await store.find(target_id) is not None:
        raise DuplicateId("thread", target_id)
    target = await source.branch(state_key=target_id)
    for namespace in (records.BLOCKS, records.CHANNELS, records.WRITES, records.CHECKPOINTS):
        # Checkpoints last: one that is found has everything it refers to.
        batch: list[ValueChange] = []
        size = 0
        async for value in list_all(source.values, namespace):
            data = value.data or b""
            if size + len(data) > _COPY_BYTES or len(batch) == _BATCH:
                await target.values.write(*batch)
                batch, size = [], 0
            batch.append(PutValue(namespace, value.key, data))
            size += len(data)
        if batch:
            await target.values.write(*batch)


def _key(record: CheckpointRecord) -> tuple[str, str]:
    return record.namespace, record.id


def _run(serde: SerializerProtocol, record: CheckpointRecord) -> str | None:
    metadata: dict[str, Any] = serde.loads_typed(record.metadata)
    run_id = metadata.get("run_id")
    return None if run_id is None else str(run_id)


async def _remove(
    thread: GatewayThread,
    serde: SerializerProtocol,
    found: Sequence[CheckpointRecord],
    keys: set[tuple[str, str]],
) -> None:
    removed = [record for record in found if _key(record) in keys]
    if not removed:
        return
    kept = [record for record in found if _key(record) not in keys]
    gone = {records.checkpoint_key(record.namespace, record.id) for record in removed}
    changes = [DeleteValue(records.CHECKPOINTS, key) for key in gone]
    changes += [
        DeleteValue(records.WRITES, value.key)
        async for value in list_all(thread.values, records.WRITES, with_data=False)
        if value.key.rsplit("/", 2)[0] in gone
    ]
    used = {key for record in kept for key in _channels(serde, record)}
    unused = {key for record in removed for key in _channels(serde, record)} - used
    changes += [DeleteValue(records.CHANNELS, key) for key in unused]
    for at in range(0, len(changes), _BATCH):
        await thread.values.write(*changes[at : at + _BATCH])
    await _remove_blocks(thread, sorted(used))


def _channels(serde: SerializerProtocol, record: CheckpointRecord) -> list[str]:
    checkpoint: dict[str, Any] = serde.loads_typed(record.checkpoint)
    return list(records.channel_keys(record, checkpoint["channel_versions"]).values())


async def _remove_blocks(thread: GatewayThread, used_channels: Sequence[str]) -> None:
    used: set[str] = set()
    for data in (await read_all(thread.values, records.CHANNELS, used_channels)).values():
        used.update(list_blocks.block_keys(records.decode_channel(data).entries or []))
    oldest = dt.datetime.now(dt.UTC) - _BLOCK_AGE
    unused = [
        DeleteValue(records.BLOCKS, value.key)
        async for value in list_all(thread.values, records.BLOCKS, with_data=False)
        if value.key not in used and value.updated_at < oldest
    ]
    for at in range(0, len(unused), _BATCH):
        await thread.values.write(*unused[at : at + _BATCH])
