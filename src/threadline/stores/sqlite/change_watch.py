"""Watches on turns and threads: an event for what this process commits, and a look at the file for what others do.

SQLite keeps a number that changes whenever another connection commits. While anybody watches, it is read every 50 ms
and a change wakes everyone; a commit of our own writer wakes those it concerns at once, and nobody else: with a
thousand turns that run, or as many pages open, to wake them all for each message would be most of the work there is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

POLL_SECONDS = 0.05


class SubjectWatch:
    """One watcher's bell. It may ring between two waits; the next one then returns at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()

    def ring(self) -> None:
        """From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)


class Watchers:
    def __init__(self, others_version: Callable[[], int]) -> None:
        self.others_version = others_version
        self._watches: dict[tuple[str, str], set[SubjectWatch]] = {}
        self._lock = threading.Lock()
        self._polling: asyncio.Task[None] | None = None

    def touched(self, subjects: set[tuple[str, str]]) -> None:
        """Called by the writer's thread after a commit."""
        if not self._watches:
            return
        with self._lock:
            bells = [watch for subject in subjects for watch in self._watches.get(subject, ())]
        for watch in bells:
            watch.ring()

    @asynccontextmanager
    async def watch(self, tenant_id: str, subject: str) -> AsyncIterator[SubjectWatch]:
        watch, key = SubjectWatch(), (tenant_id, subject)
        with self._lock:
            self._watches.setdefault(key, set()).add(watch)
        if self._polling is None:
            # Looked at before anybody reads what they watch: a commit that follows their reading is one they must hear.
            self._polling = asyncio.create_task(self._poll(self.others_version()), name="threadline-watch")
        try:
            yield watch
        finally:
            with self._lock:
                self._watches[key].discard(watch)
                if not self._watches[key]:
                    del self._watches[key]
            if not self._watches:
                await self.close()

    async def _poll(self, seen: int) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            version = self.others_version()
            if version != seen:
                seen = version
                with self._lock:
                    everyone = [watch for watches in self._watches.values() for watch in watches]
                for watch in everyone:
                    watch.ring()

    async def close(self) -> None:
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
