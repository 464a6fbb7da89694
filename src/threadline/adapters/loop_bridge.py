"""Calls from other threads and event loops to the loop that a gateway was opened on.

Frameworks call one object from plain threads and from event loops of their own, but the connections of a gateway belong
to one loop. Calls on that loop run directly; all others are sent to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from threadline.core.errors import InvalidInput
from threadline.ports import Gateway
from threadline.sync_api import SyncGateway

T = TypeVar("T")


class LoopBridge:
    """`gateway` is the asynchronous one, whichever kind was given."""

    def __init__(self, given: Gateway | SyncGateway) -> None:
        self._loop: asyncio.AbstractEventLoop | None
        if isinstance(given, SyncGateway):
            self.gateway, self._loop = given.asynchronous()
        else:
            self.gateway, self._loop = given, _running_loop()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        here = _running_loop()
        if self._loop is None:
            # A gateway that was passed on before a loop ran belongs to the first loop that uses it.
            self._loop = here
        if here is self._loop or self._loop is None:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """InvalidInput where waiting could never end: on the loop itself, or without a loop that runs."""
        if self._loop is None or not self._loop.is_running():
            work.close()
            raise InvalidInput("no event loop runs for this synchronous call: open the database with open_sync")
        if _running_loop() is self._loop:
            work.close()
            raise InvalidInput("a synchronous call would block its own event loop: use the asynchronous method")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
