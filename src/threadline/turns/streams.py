"""Streams: what a running turn shows, to any number of readers, from any offset, in any process.

The process that runs a turn keeps its chunks in memory and hands them to its own readers at once: no disk stands
between an event and a reader. A reader holds only a position, so a slow one costs nothing and slows nothing. Chunks
are also stored in small batches, so that readers in other processes, or after a restart, replay the same stream from
the store and follow it there. Of a turn that ended long ago only the reply is kept, and its stream is made from that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from threadline.core.errors import NotFound
from threadline.core.threads import Scope
from threadline.core.turns import Chunk, Turn
from threadline.ports import Store
from threadline.turns.replay import replayed

_POLL_SECONDS = 1.0
_PAGE = 1000


class _Reader:
    """One who waits for what comes next. Its timer is not set anew for every chunk: when it fires, it looks how long
    ago the last one was. With ten thousand readers that is a fifth of the time a word takes to all of them."""

    def __init__(self, quiet_seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._quiet = quiet_seconds
        self._given_at = self._loop.time()
        self._waiting: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def given(self) -> None:
        self._given_at = self._loop.time()

    def wake(self, *, changed: bool = True) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(changed)

    async def wait(self) -> bool:
        """True once it is woken, False if nobody did for so long."""
        if self._timer is None and self._quiet is not None:
            self._timer = self._loop.call_at(self._given_at + self._quiet, self._look, self._quiet)
        self._waiting = self._loop.create_future()
        return await self._waiting

    def _look(self, quiet: float) -> None:
        due = self._given_at + quiet
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look, quiet)
        else:
            self._timer = None
            self.wake(changed=False)

    def leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class LiveStream:
    """The chunks of one turn that runs in this process. Numbers count from 1."""

    def __init__(self, owner_id: str) -> None:
        self.owner_id = owner_id
        self._chunks: list[Chunk] = []
        self._readers: dict[_Reader, None] = {}
        self._stored = 0
        self._has_unstored = asyncio.Event()
        self.closed = False
        self.is_whole = False
        """Whether the turn has ended: nothing more will come, here or elsewhere."""
        self.failure: BaseException | None = None
        """Why this process could not store the turn's end."""

    def take_up(self, stored: list[Chunk]) -> None:
        """Goes on after what an earlier run of the turn has stored."""
        self._chunks = list(stored)
        self._stored = len(stored)
        self._wake()

    def publish(self, json: bytes) -> None:
        self._chunks.append(Chunk(len(self._chunks) + 1, json))
        self._has_unstored.set()
        self._wake()

    def close(self, *, whole: bool, failure: BaseException | None) -> None:
        self.closed, self.is_whole, self.failure = True, whole, failure
        self._wake()

    def unstored(self) -> list[Chunk]:
        return self._chunks[self._stored :]

    async def until_unstored(self) -> None:
        """Returns when there is something to store."""
        await self._has_unstored.wait()

    def mark_stored(self, chunks: list[Chunk]) -> None:
        self._stored = max(self._stored, chunks[-1].n)
        if self._stored >= len(self._chunks):
            self._has_unstored.clear()

    async def read(self, after: int, quiet_seconds: float | None) -> AsyncGenerator[list[Chunk], None]:
        position = max(after, 0)
        reader = _Reader(quiet_seconds)
        self._readers[reader] = None
        try:
            while True:
                while batch := self._chunks[position : position + _PAGE]:
                    position += len(batch)
                    yield batch
                    reader.given()
                if self.closed:
                    return
                # From looking to waiting nobody else has a turn, so no chunk is slept through.
                if not await reader.wait():
                    yield []
                    reader.given()
        finally:
            del self._readers[reader]
            reader.leave()

    def _wake(self) -> None:
        for reader in self._readers:
            reader.wake()


class Streams:
    """Finds a turn's stream, wherever the turn runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._live: dict[tuple[str, str], LiveStream] = {}
        self.readers = 0

    def open(self, tenant_id: str, turn: Turn) -> LiveStream:
        place = (tenant_id, turn.id)
        live = self._live.get(place)
        if live is None:
            live = self._live[place] = LiveStream(turn.owner_id)
        return live

    def forget(self, tenant_id: str, turn_id: str, *, ended: bool, failure: BaseException | None = None) -> None:
        """Once this process is done with it: readers that come now read the store, and so do those that are here, if
        the turn has not ended. Those that do not stay are told of a failure to store its end."""
        stream = self._live.pop((tenant_id, turn_id), None)
        if stream is not None:
            stream.close(whole=ended, failure=failure)

    async def read(self, scope: Scope, turn_id: str, *, after: int = 0) -> AsyncIterator[Chunk]:
        """The turn's chunks after number `after`, then what comes, until the turn has ended, wherever it does. NotFound
        for a turn that is not this scope's; StoreFailed if its end could not be stored."""
        async for batch in self.batches(scope, turn_id, after=after, stays=False):
            for chunk in batch:
                yield chunk

    async def batches(
        self, scope: Scope, turn_id: str, *, after: int = 0, quiet_seconds: float | None = None, stays: bool = True
    ) -> AsyncGenerator[list[Chunk], None]:
        """The same, as many at a time as are there; an empty list whenever nothing came for so long. Who stays waits
        for whoever ends the turn instead, where its end could not be stored."""
        live = self._live.get((scope.tenant_id, turn_id))
        if live is None or live.owner_id != scope.user_id:
            # Whose it is, and whether it is at all, the store knows.
            if await self._store.scoped(scope).turn(turn_id) is None:
                raise NotFound("turn", turn_id)
            live = self._live.get((scope.tenant_id, turn_id))
        self.readers += 1
        try:
            if live is not None:
                async with aclosing(live.read(after, quiet_seconds)) as batches:
                    async for batch in batches:
                        after = batch[-1].n if batch else after
                        yield batch
                if live.failure is not None and not stays:
                    raise live.failure
            if live is None or not live.is_whole:
                # It runs, or will run, in another process.
                async with aclosing(self._read_stored(scope, turn_id, after, quiet_seconds)) as batches:
                    async for batch in batches:
                        yield batch
        finally:
            self.readers -= 1

    async def _read_stored(
        self, scope: Scope, turn_id: str, after: int, quiet_seconds: float | None
    ) -> AsyncGenerator[list[Chunk], None]:
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
