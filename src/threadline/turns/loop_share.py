"""The event loop's time, shared between turns and everything else that runs in this process.

An agent that yields without awaiting never lets the loop run another task, and a reader of a long stream does the same
while it encodes. Each of them calls `give_way` between two steps. In one pass of the loop all of them together get
`SLICE_SECONDS`; after that each waits in a queue, from which one is released per pass. So a request of another kind
waits for one slice per pass, however many turns are busy.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter

# A request needs about ten passes of the loop: with slices of 2 ms it is answered within 50 ms while agents flood.
SLICE_SECONDS = 0.002


class LoopShare:
    """One per event loop."""

    def __init__(self) -> None:
        self._slice_began: float | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._releases = False

    async def give_way(self) -> None:
        """Returns without a pause until the slice of this pass is used up; then waits for a later pass."""
        now = perf_counter()
        if self._slice_began is None:
            self._slice_began = now
            # Runs in the next pass, when every task of this pass has had its step.
            asyncio.get_running_loop().call_soon(self._end_slice)
        elif now - self._slice_began >= SLICE_SECONDS:
            released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(released)
            self._release_later()
            await released

    def _end_slice(self) -> None:
        self._slice_began = None

    def _release_later(self) -> None:
        if not self._releases:
            self._releases = True
            asyncio.get_running_loop().call_soon(self._release_one)

    def _release_one(self) -> None:
        self._releases = False
        while self._waiting:
            released = self._waiting.popleft()
            # A turn that was cancelled while it waited leaves its future behind.
            if not released.done():
                released.set_result(None)
                break
        if self._waiting:
            self._release_later()
