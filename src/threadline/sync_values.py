"""Replies and values without `await`, and the event loop in a thread that everything synchronous runs on."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from threadline.core.events import Event
from threadline.core.messages import Message
from threadline.core.threads import Page
from threadline.core.turns import TurnInfo
from threadline.core.values import StoredValue, ValueChange
from threadline.ports import GatewayReply, GatewayValues

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread. Everything that was made on it is used through it."""

    def __init__(self) -> None:
        self.event_loop = self._loop = asyncio.new_event_loop()
        # A daemon: a script that forgets to close must still be able to end.
        threading.Thread(target=self._run, name="threadline", daemon=True).start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def iterate(self, source: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        iterator = source()
        while True:
            try:
                yield self.wait(_next(iterator))
            except StopAsyncIteration:
                return

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _next(iterator: AsyncIterator[T]) -> T:
    return await anext(iterator)


async def _await(target: Awaitable[T]) -> T:
    return await target


class SyncReply:
    """The answer to one question. `message()` waits for all of it, iteration gives its events."""

    def __init__(self, loop: LoopThread, reply: GatewayReply) -> None:
        self._loop = loop
        self._reply = reply

    def message(self) -> Message:
        """What `await reply` gives: the stored message. AgentFailed."""
        return self._loop.wait(_await(self._reply))

    def __iter__(self) -> Iterator[Event]:
        return self._loop.iterate(lambda: aiter(self._reply))

    def text(self) -> Iterator[str]:
        return self._loop.iterate(self._reply.text)

    def accept(self) -> TurnInfo:
        return self._loop.wait(self._reply.accept())

    def turn(self) -> TurnInfo:
        return self._loop.wait(self._reply.turn())

    def ended(self) -> TurnInfo:
        return self._loop.wait(self._reply.ended())

    def stop(self) -> bool:
        return self._loop.wait(self._reply.stop())


class SyncValues:
    """State beside the log. See `threadline.ports.GatewayValues`."""

    def __init__(self, loop: LoopThread, values: GatewayValues) -> None:
        self._loop = loop
        self._values = values

    def get(self, namespace: str, key: str) -> StoredValue | None:
        return self._loop.wait(self._values.get(namespace, key))

    def get_many(self, namespace: str, keys: Sequence[str]) -> dict[str, StoredValue]:
        return self._loop.wait(self._values.get_many(namespace, keys))

    def put(
        self,
        namespace: str,
        key: str,
        data: bytes,
        *,
        expected_version: int | None = None,
        ttl: dt.timedelta | None = None,
    ) -> int:
        return self._loop.wait(self._values.put(namespace, key, data, expected_version=expected_version, ttl=ttl))

    def delete(self, namespace: str, key: str, *, expected_version: int | None = None) -> bool:
        return self._loop.wait(self._values.delete(namespace, key, expected_version=expected_version))

    def write(self, *changes: ValueChange) -> list[int]:
        return self._loop.wait(self._values.write(*changes))

    def list(
        self,
        namespace: str,
        *,
        prefix: str = "",
        limit: int = 100,
        cursor: str | None = None,
        descending: bool = False,
        with_data: bool = False,
    ) -> Page[StoredValue]:
        return self._loop.wait(
            self._values.list(
                namespace, prefix=prefix, limit=limit, cursor=cursor, descending=descending, with_data=with_data
            )
        )
