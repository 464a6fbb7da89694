"""What the checkpointer stores as values of a thread, and under which keys.

A checkpoint is a record without the values of its channels, except small plain ones. Other values are stored once for
each version of a channel. The writes of a task are one value for each checkpoint. Keys begin with a digest of the
graph's namespace, all of one length, so that the records of a namespace are a range in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from threadline.adapters.langgraph.list_blocks import Entry, Typed

CHECKPOINTS = "langgraph.checkpoint"
WRITES = "langgraph.writes"
CHANNELS = "langgraph.channel"
BLOCKS = "langgraph.block"
RUNS = "langgraph.run"
"""Of the user: in which threads a run stored checkpoints."""
NAMESPACES = (CHECKPOINTS, WRITES, CHANNELS, BLOCKS)

_INLINE_TEXT = 200
_LARGEST_INTEGER = 2**63


class CheckpointRecord(msgspec.Struct, array_like=True):
    """`checkpoint` has everything but the values of channels, `stored` names the channels whose values are apart."""

    namespace: str
    id: str
    parent_id: str | None
    checkpoint: Typed
    metadata: Typed
    inline: dict[str, Any]
    stored: list[str]


class ChannelRecord(msgspec.Struct, array_like=True):
    """The value of a channel: `whole`, or a list in blocks."""

    whole: Typed | None = None
    entries: list[Entry] | None = None


class TaskWrite(msgspec.Struct, array_like=True):
    index: int
    channel: str
    value: Typed


class WritesRecord(msgspec.Struct, array_like=True):
    task_id: str
    task_path: str
    writes: list[TaskWrite]


encode = msgspec.msgpack.Encoder().encode
decode_checkpoint = msgspec.msgpack.Decoder(CheckpointRecord).decode
decode_channel = msgspec.msgpack.Decoder(ChannelRecord).decode
decode_writes = msgspec.msgpack.Decoder(WritesRecord).decode


def namespace_key(namespace: str) -> str:
    return _digest(namespace) if namespace else "0" * 16


def checkpoint_key(namespace: str, checkpoint_id: str) -> str:
    return f"{namespace_key(namespace)}{checkpoint_id}"


def writes_prefix(namespace: str, checkpoint_id: str) -> str:
    return f"{checkpoint_key(namespace, checkpoint_id)}/"


def writes_key(namespace: str, checkpoint_id: str, task_id: str, index: int) -> str:
    """The usual writes of a task share a value; each special one (an error, an interrupt) has its own."""
    return f"{writes_prefix(namespace, checkpoint_id)}{_digest(task_id)}/{min(index, 0)}"


def is_write_of(key: str, prefix: str) -> bool:
    """False for a checkpoint whose id continues with a slash."""
    return key.startswith(prefix) and key.count("/", len(prefix)) == 1


def channel_key(namespace: str, channel: str, version: object) -> str:
    return f"{namespace_key(namespace)}{_digest(channel)}{version}"


def is_inline(value: object) -> bool:
    """Plain and small enough to be stored with each checkpoint."""
    if isinstance(value, str):
        return type(value) is str and len(value) <= _INLINE_TEXT and value.isascii()
    if isinstance(value, int):
        return type(value) in (int, bool) and -_LARGEST_INTEGER <= value < _LARGEST_INTEGER
    return value is None or type(value) is float


def channel_keys(record: CheckpointRecord, versions: Mapping[str, object]) -> dict[str, str]:
    """The keys of the values that are apart, by channel."""
    return {name: channel_key(record.namespace, name, versions[name]) for name in record.stored if name in versions}


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
