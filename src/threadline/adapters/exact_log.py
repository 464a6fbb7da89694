"""Messages of a framework in a thread: shown in the log, and stored exactly in values beside it.

The log decides what the history is: others may add to it, undo, or switch to another timeline. The values only say what
a framework's message was before it was masked and turned into parts. Messages that are added together share a value,
which is stored in the transaction of their append, and their ids name it. A message without one, such as a reply from
the page or a message of a branch, is converted from its parts.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from threadline.core.ids import new_id
from threadline.core.messages import Message, NewMessage, Role
from threadline.core.parts import Part, TextPart
from threadline.core.values import PutValue
from threadline.ports import GatewayThread

_KEYS_PER_READ = 1_000
_CACHED_BYTES = 16_777_216
# What msgspec would not read as `json` does: large integers, NaN and infinities. Such JSON is read by `json`.
_UNUSUAL = re.compile(rb"\d{16}|NaN|Infinity")
_FAST, _SLOW = b"1", b"2"


class Shown(NamedTuple):
    """One message: what the log shows of it, and the framework's own messages that it consists of, as JSON data."""

    role: Role
    parts: Sequence[Part]
    exact: Sequence[Any]


class Batch(NamedTuple):
    messages: list[NewMessage]
    value: PutValue


class ExactLog:
    """`namespace` is that of the values. Values never change, so those that were read are remembered."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._known_bytes = 0

    def batch(self, shown: Sequence[Shown], key: str | None = None) -> Batch:
        """What to append: messages, and the value to store with them. `key` makes their ids those of a repetition."""
        key = key or new_id()
        messages = [
            NewMessage(each.role, tuple(each.parts) or _nothing(each.role), id=f"{key}.{number}")
            for number, each in enumerate(shown)
        ]
        return Batch(messages, PutValue(self._namespace, key, dump([list(each.exact) for each in shown])))

    async def read(self, thread: GatewayThread, messages: Sequence[Message]) -> list[list[Any] | None]:
        """The messages that each message consists of; None for one without a value or with hidden parts."""
        keys = dict.fromkeys(key for message in messages if not message.hidden and (key := _place(message.id)[0]))
        batches = await self._batches(thread, list(keys))
        # Of a message with hidden parts only the other parts may be read: the exact form has all of them.
        return [None if message.hidden else _exact(message.id, batches) for message in messages]

    async def _batches(self, thread: GatewayThread, keys: Sequence[str]) -> dict[str, list[Any]]:
        found = {key: data for key in keys if (data := self._known.get((thread.id, key))) is not None}
        missing = [key for key in keys if key not in found]
        for at in range(0, len(missing), _KEYS_PER_READ):
            values = await thread.values.get_many(self._namespace, missing[at : at + _KEYS_PER_READ])
            for key, value in values.items():
                found[key] = value.data or b""
                self._remember((thread.id, key), found[key])
        return {key: load(data) for key, data in found.items()}

    def _remember(self, place: tuple[str, str], data: bytes) -> None:
        self._known_bytes += len(data) - len(self._known.get(place, b""))
        self._known[place] = data
        while self._known_bytes > _CACHED_BYTES:
            self._known_bytes -= len(self._known.popitem(last=False)[1])


def _nothing(role: Role) -> tuple[Part, ...]:
    """Only a message of the assistant may be empty."""
    return () if role == "assistant" else (TextPart(""),)


def _place(message_id: str) -> tuple[str, int]:
    """The key of the value and the message's number in it; an empty key if the id is not one of a batch."""
    key, _, number = message_id.rpartition(".")
    return (key, int(number)) if key and number.isascii() and number.isdecimal() and len(number) < 6 else ("", 0)


def _exact(message_id: str, batches: dict[str, list[Any]]) -> list[Any] | None:
    key, number = _place(message_id)
    batch = batches.get(key)
    return batch[number] if batch is not None and number < len(batch) else None


def dump(value: Any) -> bytes:
    """JSON as the standard library writes it, so that every value which it can write is read back as it would be."""
    try:
        raw = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # Half a character can only be written as an escape.
        return _SLOW + json.dumps(value).encode()
    return (_SLOW if _UNUSUAL.search(raw) else _FAST) + raw


def load(data: bytes) -> Any:
    return msgspec.json.decode(memoryview(data)[1:]) if data[:1] == _FAST else json.loads(data[1:])
