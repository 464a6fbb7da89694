"""`ThreadlineSession`: a session of OpenAI's Agents SDK is a thread, its items are messages of the thread.

The items are read back equal to those that were added. What the assistant does between two messages of the user is one
message for each call of `add_items`, with a call and its output in one tool part. `pop_item`, `clear_session` and
compaction continue on a new timeline; the one before is kept. Several processes may use one session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from agents.memory.session import _CompactionSnapshot
from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit

from threadline.adapters.exact_log import ExactLog, Shown
from threadline.adapters.loop_bridge import LoopBridge
from threadline.adapters.openai_agents.shown_items import ShownItems
from threadline.core.errors import HeadMoved, InvalidInput, NotFound
from threadline.core.ids import check_thread_key
from threadline.core.messages import Message
from threadline.core.threads import Thread
from threadline.ports import Gateway, GatewayThread
from threadline.sync_api import SyncGateway

T = TypeVar("T")
Item = dict[str, Any]

# Others change the same session. Each attempt reads what they did; so many in a row do not happen.
_ATTEMPTS = 50
_READS = 5
# For an output whose call this object has not seen.
_RECENT_MESSAGES = 50


class ThreadlineSession:
    """`session_id` is the state key of a thread, or the id of one that exists; it is created with the first item."""

    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        gateway: Gateway | SyncGateway,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = check_thread_key(session_id)
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self._bridge = LoopBridge(gateway)
        self._thread: GatewayThread | None = None
        self._log = ExactLog("openai-agents.items")
        self._shown = ShownItems()

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """The newest `limit` items, oldest first; all by default."""
        most = resolve_session_limit(limit, self.session_settings)
        if most == 0:
            return []
        return await self._run(lambda thread: self._read(thread, most), [])

    async def add_items(self, items: Sequence[Item]) -> None:
        """Stores all the items or none. InvalidInput for what is no item."""
        for item in items:
            if not isinstance(item, dict):
                raise InvalidInput(f"an item of a session must be a dictionary, got {type(item).__name__}")
        if items:
            await self._change(lambda thread: self._append(thread, list(items)), create=True)

    async def pop_item(self) -> Item | None:
        """Removes and returns the last item; each item is returned to one caller only."""
        return await self._change(self._pop)

    async def clear_session(self) -> None:
        await self._change(lambda thread: self._replace_all(thread, []))

    # What the SDK looks for to compact a session without losing what others add at the same time.

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Item], bool] | None = None
    ) -> _CompactionSnapshot | None:
        if self._is_extended():
            return None
        return await self._run(lambda thread: self._snapshot(thread, limit, prune_prefix), None)

    async def _atomic_replace_items(self, items: Sequence[Item]) -> bool:
        if self._is_extended():
            return False
        await self._change(lambda thread: self._replace_all(thread, list(items)), create=True)
        return True

    def _is_extended(self) -> bool:
        """Whether a subclass has operations of its own, such as encryption: items must not bypass them."""
        own = ThreadlineSession
        return any(
            getattr(type(self), name) is not getattr(own, name)
            for name in ("get_items", "add_items", "pop_item", "clear_session")
        )

    async def _snapshot(
        self, thread: GatewayThread, limit: int, prune_prefix: Callable[[Item], bool] | None
    ) -> _CompactionSnapshot:
        head, items = await self._consistent(thread)
        tail = items[-limit:] if limit > 0 else []
        skipped = len(items) - len(tail)

        async def replace_suffix(start: int, output: list[Item]) -> bool:
            if start >= len(tail):
                return False
            kept = 0
            while prune_prefix is not None and kept < skipped + start and prune_prefix(items[kept]):
                kept += 1

            async def replace(thread: GatewayThread) -> bool:
                if kept:
                    return await self._replace_expected(thread, head, 0, [*items[kept : skipped + start], *output])
                return await self._replace_expected(thread, head, skipped + start, output)

            return bool(await self._change(replace))

        return _CompactionSnapshot(tail, skipped == 0, replace_suffix)  # type: ignore[arg-type,unused-ignore]  # items are plain dicts here

    # The work itself, on the loop of the gateway.

    async def _read(self, thread: GatewayThread, most: int | None) -> list[Item]:
        if most is None or most < 0:
            return _flat(await self._items(thread, await thread.messages()))
        # A message has at least one item, with few exceptions: then more messages are read.
        newest = most
        while True:
            messages = await _newest(thread, newest)
            items = _flat(await self._items(thread, messages))
            if len(items) >= most or len(messages) < newest:
                return items[-most:]
            newest *= 2

    async def _items(self, thread: GatewayThread, messages: Sequence[Message]) -> list[list[Item]]:
        return self._shown.fill_in(messages, await self._log.read(thread, messages))

    async def _append(self, thread: GatewayThread, items: list[Item]) -> None:
        batch = self._log.batch(await self._show(thread, items))
        await thread.append(*batch.messages, values=[batch.value])

    async def _show(self, thread: GatewayThread, items: list[Item]) -> list[Shown]:
        if self._shown.lacks_calls(items):
            self._shown.learn(_flat(await self._items(thread, await _newest(thread, _RECENT_MESSAGES))))
        return self._shown.show(items)

    async def _pop(self, thread: GatewayThread) -> Item | None:
        attempts = _ATTEMPTS
        while True:
            head = await thread.refresh()
            first, items = await self._last(thread)
            if not items:
                return None
            try:
                await self._continue_after(thread, head, first - 1, items[:-1])
            except HeadMoved:
                attempts -= 1
                if not attempts:
                    raise
                continue
            return items[-1]

    async def _last(self, thread: GatewayThread) -> tuple[int, list[Item]]:
        """The last messages that have an item: the seq of the first one, and their items."""
        newest = 1
        while True:
            messages = await _newest(thread, newest)
            items = _flat(await self._items(thread, messages))
            if items or len(messages) < newest:
                return (messages[0].seq if messages else 0), items
            newest *= 2

    async def _replace_all(self, thread: GatewayThread, items: list[Item]) -> None:
        # What others add before this is replaced, what they add afterwards is kept.
        if items:
            batch = self._log.batch(await self._show(thread, items))
            await thread.append(*batch.messages, values=[batch.value], after=-1)
        elif (await thread.refresh()).message_count:
            await thread.rewind(0, before=True)

    async def _replace_expected(self, thread: GatewayThread, head: Thread, start: int, items: list[Item]) -> bool:
        """Replaces all items from number `start` on, unless the thread has changed since `head`."""
        seq, kept = -1, items
        if start:
            messages = await thread.messages()
            count = 0
            for message, own in zip(messages, await self._items(thread, messages), strict=True):
                if count + len(own) > start:
                    kept = [*own[: start - count], *items]
                    break
                seq, count = message.seq, count + len(own)
        try:
            await self._continue_after(thread, head, seq, kept)
        except HeadMoved:
            return False
        return True

    async def _continue_after(self, thread: GatewayThread, head: Thread, seq: int, items: list[Item]) -> None:
        """Continues on a new timeline after the message `seq`, with these items, unless the thread has changed."""
        expected_count, expected_timeline = head.message_count, head.timeline_id
        if not items:
            await thread.rewind(
                seq + 1, before=True, expected_count=expected_count, expected_timeline=expected_timeline
            )
            return
        batch = self._log.batch(await self._show(thread, items))
        await thread.append(
            *batch.messages,
            values=[batch.value],
            after=seq,
            expected_count=expected_count,
            expected_timeline=expected_timeline,
        )

    async def _consistent(self, thread: GatewayThread) -> tuple[Thread, list[Item]]:
        """All items, and the head of the thread that they belong to."""
        while True:
            head = await thread.refresh()
            messages = await thread.messages()
            if (await thread.refresh()).head == head.head:
                return head, _flat(await self._items(thread, messages))

    # Threads and loops.

    async def _run(self, work: Callable[[GatewayThread], Awaitable[T]], otherwise: T) -> T:
        """`otherwise` if there is no such thread."""

        async def run() -> T:
            thread = await self._open(create=False)
            if thread is None:
                return otherwise
            try:
                return await work(thread)
            except NotFound:
                # It was deleted since.
                self._thread = None
                return otherwise

        return await self._bridge.run(run())

    async def _change(self, work: Callable[[GatewayThread], Awaitable[T]], *, create: bool = False) -> T | None:
        async def run() -> T | None:
            for _ in range(2):
                thread = await self._open(create=create)
                if thread is None:
                    return None
                try:
                    return await work(thread)
                except NotFound:
                    # It was deleted since: a new one takes its place.
                    self._thread = None
            raise NotFound("thread", self.session_id)

        return await _completed(self._bridge.run(run()))

    async def _open(self, *, create: bool) -> GatewayThread | None:
        if self._thread is None:
            gateway = self._bridge.gateway
            try:
                self._thread = await gateway.thread(self.session_id)
            except NotFound:
                if create:
                    self._thread = await gateway.open_thread(self.session_id)
        return self._thread


def _flat(items: Sequence[Sequence[Item]]) -> list[Item]:
    return [item for each in items for item in each]


async def _newest(thread: GatewayThread, count: int) -> list[Message]:
    """The newest messages. Fewer than `count` are all that there are: a read during which another process moved the
    thread back may miss some, and is repeated. Hidden messages are missing each time."""
    messages = await thread.messages(newest=count)
    for _ in range(_READS):
        if len(messages) == count or (messages and messages[0].seq == 0):
            break
        if not messages and not (await thread.refresh()).message_count:
            break
        messages = await thread.messages(newest=count)
    return messages


async def _completed(change: Coroutine[Any, Any, T]) -> T:
    """Waits for a change also when it is cancelled: a runner that was stopped reads afterwards what was stored."""
    task = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            # Cancelled once more, the change is still not interrupted.
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                continue
        raise
