"""Change watches for turns and threads.

A commit of this process wakes only the watches on what it changed: with a thousand running turns or open pages, waking
all of them for every message would be most of the work. For commits of other processes SQLite keeps one number, which
is polled while a watch exists; a change wakes every watch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

WORK = ("", "")
"""What a watch for work watches. No tenant has this id."""
POLL_SECONDS = 0.05
"""Below what a reader of a stream notices; one poll is a read of one number, without a query."""


class SubjectWatch:
    """One watch. A wake between two waits is kept: the next wait returns immediately."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        try:
            # The caller reads the rows again after this time, so a notice that was missed delays it and loses nothing.
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    def wake(self) -> None:
        """Safe from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)


class WorkWatch:
    """SQLite does not tell in which tenant another process committed."""

    def __init__(self, watch: SubjectWatch) -> None:
        self._watch = watch

    async def wait(self, seconds: float) -> None:
        await self._watch.wait(seconds)


class WatchRegistry:
    """The open watches, by tenant and subject."""

    def __init__(self) -> None:
        # Each with its watches in the order in which they were added: a set would wake them in any order.
        self._watches: dict[tuple[str, str], dict[SubjectWatch, None]] = {}
        # The writer thread reads `_watches` after a commit while the event loop changes it.
        self._lock = threading.Lock()

    def add(self, key: tuple[str, str], watch: SubjectWatch) -> None:
        with self._lock:
            self._watches.setdefault(key, {})[watch] = None

    def remove(self, key: tuple[str, str], watch: SubjectWatch) -> None:
        with self._lock:
            self._watches[key].pop(watch, None)
            if not self._watches[key]:
                del self._watches[key]

    @property
    def is_empty(self) -> bool:
        return not self._watches

    def touched(self, subjects: set[tuple[str, str]]) -> None:
        """Wakes the watches on these subjects. Called after a commit, from the thread that committed."""
        # Without the lock: a watch that is added just now reads its subject after this commit.
        if not self._watches:
            return
        with self._lock:
            concerned = [watch for subject in subjects for watch in self._watches.get(subject, ())]
        for watch in concerned:
            watch.wake()

    def wake_all(self) -> None:
        with self._lock:
            everyone = [watch for watches in self._watches.values() for watch in watches]
        for watch in everyone:
            watch.wake()


class Watchers:
    def __init__(self, registry: WatchRegistry, others_version: Callable[[], int]) -> None:
        """`others_version` returns a number that changes when another process commits."""
        self._registry = registry
        self._others_version = others_version
        self._polling: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watch(self, tenant_id: str, subject: str) -> AsyncIterator[SubjectWatch]:
        watch, key = SubjectWatch(), (tenant_id, subject)
        self._registry.add(key, watch)
        if self._polling is None:
            # The version is read here, before the caller reads its subject: a later commit must count as a change.
            self._polling = asyncio.create_task(self._poll(self._others_version()), name="threadline-watch")
        try:
            yield watch
        finally:
            self._registry.remove(key, watch)
            if self._registry.is_empty:
                await self.close()

    @asynccontextmanager
    async def watch_work(self) -> AsyncIterator[WorkWatch]:
        async with self.watch(*WORK) as watch:
            yield WorkWatch(watch)

    def announce_work(self) -> None:
        # Other processes notice the commit that came before.
        self._registry.touched({WORK})

    async def _poll(self, seen: int) -> None:
        while True:
            # SQLite has no notices between processes: the file's data version is cheap to read.
            await asyncio.sleep(POLL_SECONDS)
            version = self._others_version()
            if version != seen:
                seen = version
                self._registry.wake_all()

    async def close(self) -> None:
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
