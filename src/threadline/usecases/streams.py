"""Streams: what a running turn shows, to any number of readers, from any offset, in any process.

The process that runs a turn keeps its chunks in memory and hands them to its own readers at once: no disk stands
between an event and a reader. A reader holds only a position, so a slow one costs nothing and slows nothing. Chunks
are also stored in small batches, so that readers in other processes, or after a restart, replay the same stream from
the store and follow it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from threadline.core.errors import NotFound
from threadline.core.threads import Scope
from threadline.core.turns import Chunk
from threadline.ports import Store

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
        self._stored += len(chunks)

    async def read(self, after: int = 0) -> AsyncIterator[Chunk]:
        position = max(after, 0)
        while True:
            # The event is taken before looking, so that a chunk published in between is not slept through.
            changed = self._changed
            while position < len(self._chunks):
                yield self._chunks[position]
                position += 1
            if self.closed:
                return
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Streams:
    """Finds a turn's stream, wherever the turn runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._live: dict[tuple[str, str], LiveStream] = {}

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
        if await self._store.scoped(scope).turn(turn_id) is None:
            raise NotFound("turn", turn_id)
        live = self._live.get((scope.tenant_id, turn_id))
        source = self._read_stored(scope, turn_id, after) if live is None else live.read(after)
        async for chunk in source:
            yield chunk

    async def _read_stored(self, scope: Scope, turn_id: str, after: int) -> AsyncIterator[Chunk]:
        tx = self._store.scoped(scope)
        async with self._store.watch(scope, turn_id) as watch:
            while True:
                # The turn is read before its chunks: if it had ended by then, these chunks are all there will be.
                turn = await tx.turn(turn_id)
                page = await tx.chunks(turn_id, after=after, limit=_PAGE)
                for chunk in page:
                    yield chunk
                    after = chunk.n
                if len(page) == _PAGE:
                    continue
                if turn is None or not turn.is_active:
                    return
                await watch.wait(_POLL_SECONDS)
