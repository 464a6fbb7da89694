"""The lane in which turns of messaging platforms use the database before and after their agents run.

A burst of messages waits here, so that the database and the processor stay free to acknowledge the next ones. How long
the first of them has waited says whether the process can take more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ChannelLane:
    """Lets a few steps through at a time, in order of arrival."""

    def __init__(self, width: int) -> None:
        self._semaphore = asyncio.Semaphore(width)
        # By arrival, because a dict keeps its order: the first is the oldest.
        self._waiting: dict[object, float] = {}

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        mark = object()
        self._waiting[mark] = asyncio.get_running_loop().time()
        try:
            await self._semaphore.acquire()
        finally:
            del self._waiting[mark]
        try:
            yield
        finally:
            self._semaphore.release()

    @property
    def wait_seconds(self) -> float:
        """How long the oldest step has waited; 0 if none waits."""
        if not self._waiting:
            return 0.0
        return asyncio.get_running_loop().time() - next(iter(self._waiting.values()))
