"""What changed about threads, told after the commit: here at once, and to other processes a moment later.

A NOTIFY inside the transaction would hold a lock that all of the server's notifying commits share until the disk has
answered. This way an append or a move waits for nothing, and the changes of a moment are told in one statement. A
process that dies within that moment leaves the others to their next look: a watch is a hint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from threadline.core.errors import StoreFailed
from threadline.stores.postgres.append_batcher import Statement
from threadline.stores.postgres.change_watch import ChangeListener
from threadline.stores.postgres.pool import CONNECT_SECONDS
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/notices.sql")
GATHER_SECONDS = 0.05


class ChangeNotifier:
    def __init__(self, listener: ChangeListener, once: Statement) -> None:
        """`once` runs one statement in a transaction of its own."""
        self._listener = listener
        self._once = once
        self._untold: set[str] = set()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def tell(self, tenant_id: str, subjects: Iterable[str]) -> None:
        for subject in subjects:
            watched = f"{tenant_id} {subject}"
            self._listener.ring(watched)
            self._untold.add(watched)
        if self._task is None:
            self._task = asyncio.create_task(self._tell_others(), name="threadline notices")

    async def _tell_others(self) -> None:
        try:
            while self._untold:
                with suppress(TimeoutError):
                    async with asyncio.timeout(GATHER_SECONDS):
                        await self._closing.wait()
                untold, self._untold = self._untold, set()
                # Where the server cannot be reached, those who watch have lost it too, and look when it is back.
                with suppress(StoreFailed):
                    await self._once(_SQL["tell"], ([f"{each}@{self._listener.name}" for each in untold],), False)
        finally:
            self._task = None

    async def close(self) -> None:
        """Tells the rest, but waits for a server that does not answer no longer than others do."""
        self._closing.set()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=CONNECT_SECONDS)
            for task in late:
                task.cancel()
                await asyncio.wait([task])
