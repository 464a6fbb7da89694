"""The `messages` channel of a graph as messages of the thread, so that people and other agents can read it.

Each message gets an id that is a digest of itself and of all before it. So the log shows how much of a list it holds:
a list that continues the one before is appended; a list that differs (a message was edited or removed, or the graph
continues from an earlier checkpoint) continues, on a new timeline, after the last message that is the same. The log is
what people read, masked and limited as every message is; the graph reads its own state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from langchain_core.messages import BaseMessage

from threadline.adapters.langchain_messages import Calls, to_parts
from threadline.core.errors import InvalidInput, LimitExceeded, ValueChanged
from threadline.core.messages import NewMessage
from threadline.core.parts import TextPart
from threadline.core.values import PutValue, ValueChange
from threadline.ports import GatewayThread

_NAMESPACE = "langgraph.log"
_KEY = "messages"
_PAGE = 500
_KNOWN_THREADS = 1_000
# Others write to the same thread. Each attempt reads how far they came; so many in a row do not happen.
_ATTEMPTS = 20


class LoggedList(NamedTuple):
    """The list that the log shows: its length and the id of its last message; `version` of the value that says so."""

    length: int
    last_id: str
    version: int


class Move(NamedTuple):
    """What makes the log show a list. `after` None: append at the end; otherwise continue after this message."""

    messages: list[NewMessage]
    after: int | str | None
    state: PutValue
    length: int
    last_id: str


class MessageLog:
    """Which lists the logs of threads show, as far as this process knows."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, LoggedList] = OrderedDict()

    async def store(
        self, thread: GatewayThread, messages: Sequence[BaseMessage], ids: Sequence[str], state: list[ValueChange]
    ) -> None:
        """Stores the state, and with it, in one transaction, what the log lacks. An id is a digest of its message and
        of all before it."""
        for _ in range(_ATTEMPTS):
            move = await self._plan(thread, messages, ids)
            try:
                versions = await self._write(thread, move, [move.state, *state])
            except ValueChanged:
                # Another process came first: what it stored is read again.
                self._known.pop(thread.id, None)
                continue
            self._remember(thread.id, LoggedList(move.length, move.last_id, versions[0]))
            return
        raise ValueChanged(_KEY, 0, 0)

    async def _plan(self, thread: GatewayThread, messages: Sequence[BaseMessage], ids: Sequence[str]) -> Move:
        logged = self._known.get(thread.id) or await self._read(thread)
        last_id = ids[-1] if ids else ""
        data = msgspec.msgpack.encode((len(ids), last_id))
        state = PutValue(_NAMESPACE, _KEY, data, expected_version=logged.version)
        shown, after = logged.length, None
        if shown > len(ids) or (shown and ids[shown - 1] != logged.last_id):
            shown, after = await _last_shared(thread, ids)
        return Move(_new_messages(messages, ids, shown), after, state, len(ids), last_id)

    async def _read(self, thread: GatewayThread) -> LoggedList:
        stored = await thread.values.get(_NAMESPACE, _KEY)
        if stored is None or stored.data is None:
            return LoggedList(0, "", 0)
        count, last_id = msgspec.msgpack.decode(stored.data, type=tuple[int, str])
        return LoggedList(count, last_id, stored.version)

    def _remember(self, thread_id: str, logged: LoggedList) -> None:
        self._known[thread_id] = logged
        self._known.move_to_end(thread_id)
        if len(self._known) > _KNOWN_THREADS:
            self._known.popitem(last=False)

    def forget(self, thread_id: str) -> None:
        self._known.pop(thread_id, None)

    async def _write(self, thread: GatewayThread, move: Move, values: list[ValueChange]) -> Sequence[int]:
        if not move.messages:
            if move.after is not None:
                # Before the state: after a crash in between, the next write finds that the log must move.
                await thread.rewind(move.after)
            return await thread.values.write(*values)
        try:
            return (await thread.append(*move.messages, after=move.after, values=values)).value_versions
        except (InvalidInput, LimitExceeded):
            # A message that a log cannot hold must not stop the graph. If the state is at fault, this fails again.
            shown = [_placeholder(message) for message in move.messages]
        try:
            return (await thread.append(*shown, after=move.after, values=values)).value_versions
        except LimitExceeded:
            # The log is full, or the state too large: then this fails too.
            return await thread.values.write(*values)


def _new_messages(messages: Sequence[BaseMessage], ids: Sequence[str], shown: int) -> list[NewMessage]:
    calls = Calls()
    if any(message.type == "tool" for message in messages[shown:]):
        for message in messages[:shown]:
            calls.add(message)
    found = []
    for message, message_id in zip(messages[shown:], ids[shown:], strict=True):
        calls.add(message)
        parts = to_parts(message, calls)
        if parts is not None:
            found.append(NewMessage(parts[0], parts[1], id=message_id))
    return found


def _placeholder(message: NewMessage) -> NewMessage:
    note = "[this message cannot be shown: the graph's state has it]"
    return msgspec.structs.replace(message, parts=(TextPart(note),))


async def _last_shared(thread: GatewayThread, ids: Sequence[str]) -> tuple[int, int | str]:
    """How many messages of the list the log holds, and the last of them; -1 if it holds none."""
    places = {message_id: place for place, message_id in enumerate(ids)}
    last = (await thread.refresh()).message_count - 1
    while last >= 0:
        first = max(0, last - _PAGE + 1)
        for message in reversed(await thread.messages(first=first, last=last)):
            if message.id in places:
                return places[message.id] + 1, message.seq
        last = first - 1
    return 0, -1
