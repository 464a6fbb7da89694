"""Streams: what a running turn shows, to any number of readers, from any offset, in any process.

The process that runs a turn keeps its chunks in memory and hands them to its own readers at once: no disk stands
between an event and a reader. A reader holds only a position, so a slow one costs nothing and slows nothing. Chunks
are also stored in small batches, so that readers in other processes, or after a restart, replay the same stream from
the store and follow it there. Of a turn that ended long ago only the reply is kept, and its stream is made from that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from threadline.core.errors import NotFound
from threadline.core.threads import Scope
from threadline.core.turns import Chunk
from threadline.ports import Store
from threadline.usecases.replaying import replayed

_POLL_SECONDS = 1.0
_PAGE = 1000


class LiveStream:
    """The chunks of one turn that runs in this process. Numbers count from 1."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._changed = asyncio.Event()
        self._stored = 0
        self.closed = False

    def take_up(self, stored: list[Chunk]) -> None:
        """Goes on after what an earlier run of the turn has stored."""
        self._chunks = list(stored)
        self._stored = len(stored)
        self._wake()

    def publish(self, json: bytes) -> None:
        self._chunks.append(Chunk(len(self._chunks) + 1, json))
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._wake()

    def unstored(self) -> list[Chunk]:
        return self._chunks[self._stored :]

    def mark_stored(self, chunks: list[Chunk]) -> None:
        self._stored = max(self._stored, chunks[-1].n)

    async def read(self, after: int, quiet_seconds: float | None) -> AsyncIterator[list[Chunk]]:
        position = max(after, 0)
        while True:
            # The event is taken before looking, so that a chunk published in between is not slept through.
            changed = self._changed
            while batch := self._chunks[position : position + _PAGE]:
                position += len(batch)
                yield batch
            if self.closed:
                return
            try:
                async with asyncio.timeout(quiet_seconds):
                    await changed.wait()
            except TimeoutError:
                yield []

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Streams:
    """Finds a turn's stream, wherever the turn runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._live: dict[tuple[str, str], LiveStream] = {}
        self.readers = 0

    def open(self, tenant_id: str, turn_id: str) -> LiveStream:
        return self._live.setdefault((tenant_id, turn_id), LiveStream())

    def forget(self, tenant_id: str, turn_id: str) -> None:
        """Once everything of it is stored: readers that come now read the store."""
        stream = self._live.pop((tenant_id, turn_id), None)
        if stream is not None:
            stream.close()

    async def read(self, scope: Scope, turn_id: str, *, after: int = 0) -> AsyncIterator[Chunk]:
        """The turn's chunks after number `after`, then what comes, until the turn has ended. NotFound for a turn
        that is not this scope's."""
        async for batch in self.batches(scope, turn_id, after=after):
            for chunk in batch:
                yield chunk

    async def batches(
        self, scope: Scope, turn_id: str, *, after: int = 0, quiet_seconds: float | None = None
    ) -> AsyncIterator[list[Chunk]]:
        """The same, as many at a time as are there; an empty list whenever nothing came for so long."""
        if await self._store.scoped(scope).turn(turn_id) is None:
            raise NotFound("turn", turn_id)
        live = self._live.get((scope.tenant_id, turn_id))
        if live is None:
            source = self._read_stored(scope, turn_id, after, quiet_seconds)
        else:
            source = live.read(after, quiet_seconds)
        self.readers += 1
        try:
            async for batch in source:
                yield batch
        finally:
            self.readers -= 1

    async def _read_stored(
        self, scope: Scope, turn_id: str, after: int, quiet_seconds: float | None
    ) -> AsyncIterator[list[Chunk]]:
        tx = self._store.scoped(scope)
        clock = asyncio.get_running_loop().time
        spoken, first = clock(), after == 0
        async with self._store.watch(scope, turn_id) as watch:
            while True:
                # The turn is read before its chunks: if it had ended by then, these chunks are all there will be.
                turn = await tx.turn(turn_id)
                page = await tx.chunks(turn_id, after=after, limit=_PAGE)
                if page or (quiet_seconds is not None and clock() - spoken >= quiet_seconds):
                    yield page
                    spoken = clock()
                if page:
                    after, first = page[-1].n, False
                if len(page) == _PAGE:
                    continue
                if turn is None or not turn.is_active:
                    if turn is not None and first:
                        yield await replayed(tx, turn)
                    return
                await watch.wait(_POLL_SECONDS if quiet_seconds is None else min(_POLL_SECONDS, quiet_seconds))
