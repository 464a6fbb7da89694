"""A door for scripts that are not asynchronous: the same objects, their methods waited for.

`open_sync` runs an event loop in a thread of its own and wraps what the library gives: a coroutine method becomes
an ordinary one, an asynchronous iterator an ordinary one. `connect_sync` does so with a service's client. There is
no second implementation, so nothing here can differ from the library; there are no types here either.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, Self

from threadline import bootstrap
from threadline.library import ThreadHandle, UserView
from threadline.replies import Reply
from threadline.threads.contexts import Contexts

_WRAPPED = (bootstrap.Threadline, UserView, ThreadHandle, Reply, Contexts)


class Blocking:
    """One of the library's objects, to be used without `await`. `with` closes it. The first one ends the loop then;
    what came from it only closes itself."""

    def __init__(
        self,
        target: Any,
        loop: asyncio.AbstractEventLoop,
        wrapped: tuple[type, ...] = _WRAPPED,
        *,
        is_first: bool = True,
    ) -> None:
        self._target = target
        self._loop = loop
        self._wrapped = wrapped
        self._is_first = is_first

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if callable(found):
            return lambda *args, **kwargs: self._result(found(*args, **kwargs))
        return self._wrap(found)

    def __repr__(self) -> str:
        return repr(self._target)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return self._iterate(aiter(self._target))

    def wait(self) -> Any:
        """The end of something awaitable: the message of a reply."""
        return self._result(_await(self._target))

    def close(self) -> None:
        self._result(self._target.close())
        if self._is_first:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _result(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            return self._wrap(asyncio.run_coroutine_threadsafe(value, self._loop).result())
        if inspect.isasyncgen(value):
            return self._iterate(value)
        return self._wrap(value)

    def _iterate(self, source: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield asyncio.run_coroutine_threadsafe(_next(source), self._loop).result()
            except StopAsyncIteration:
                return

    def _wrap(self, value: Any) -> Any:
        if not isinstance(value, self._wrapped):
            return value
        return Blocking(value, self._loop, self._wrapped, is_first=False)


async def _next(source: AsyncIterator[Any]) -> Any:
    return await anext(source)


async def _await(target: Any) -> Any:
    return await target


def open_sync(database: str | Path | None = None, **options: Any) -> Blocking:
    """`threadline.open`, waited for. Use it with `with`."""
    loop = _started_loop()

    async def opening() -> bootstrap.Threadline:
        return await bootstrap.open(database, **options)

    work: Coroutine[Any, Any, bootstrap.Threadline] = opening()
    try:
        return Blocking(asyncio.run_coroutine_threadsafe(work, loop).result(), loop)
    except BaseException:
        loop.call_soon_threadsafe(loop.stop)
        raise


def connect_sync(url: str, **options: Any) -> Blocking:
    """`threadline.client.connect`, to be used without `await`, with `with`."""
    from threadline.client import Client, RemoteReply, RemoteThread, connect  # noqa: PLC0415 - an extra
    from threadline.client.view import RemoteContexts  # noqa: PLC0415

    client = connect(url, **options)
    return Blocking(client, _started_loop(), (Client, RemoteThread, RemoteReply, RemoteContexts))


def _started_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=_run, args=(loop,), name="threadline", daemon=True).start()
    return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
