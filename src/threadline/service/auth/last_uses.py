"""When tokens and sessions were last used, written in tasks that no request waits for.

The time is accurate to the minute: a busy token costs one write a minute instead of one per request.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable

from threadline.core.errors import StoreFailed

log = logging.getLogger("threadline.service")

_WRITE_INTERVAL = dt.timedelta(minutes=1)
# Bounds the memory; forgetting one costs one extra write.
_MAX_REMEMBERED = 10_000


class LastUses:
    def __init__(self) -> None:
        self._written: dict[str, dt.datetime] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def record(
        self, id: str, last_used_at: dt.datetime | None, now: dt.datetime, write: Callable[[], Awaitable[None]]
    ) -> None:
        written = self._written.get(id) or last_used_at
        if written is not None and now - written < _WRITE_INTERVAL:
            return
        if len(self._written) >= _MAX_REMEMBERED:
            self._written.clear()
        self._written[id] = now
        task = asyncio.create_task(self._write(id, write), name=f"last use of {id}")
        # The loop holds tasks weakly: without this reference one could be collected before it has run.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, id: str, write: Callable[[], Awaitable[None]]) -> None:
        try:
            await write()
        except StoreFailed:
            # The request itself succeeded, and the next use writes again.
            log.warning("last use not stored", extra={"token_id": id})

    async def close(self) -> None:
        # The store closes next, and its own limits bound these writes.
        if self._tasks:
            await asyncio.wait(list(self._tasks))
