"""Streams: the events of a turn, for any number of readers, from any offset, in any process.

The process that runs a turn keeps its events in memory and gives them to its own readers at once, without encoding
them. A reader holds only a position, so a slow one costs nothing and slows nothing. Events are also stored as JSON
chunks in small batches, so that readers in other processes, or after a restart, replay the same stream from the store.
A reader whose turn is abandoned has it continued in its own process, so that no reader waits for ever. Chunks of a turn
that ended long ago are dropped; its stream is then made from the stored reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeAlias

import msgspec

from threadline.core import events
from threadline.core.errors import NotFound
from threadline.core.event_fold import agent_metadata
from threadline.core.event_replay import replay_events
from threadline.core.events import Event
from threadline.core.messages import Message
from threadline.core.parts import ToolPart
from threadline.core.steered_messages import after_marker
from threadline.core.threads import Scope
from threadline.core.turns import BEGUN, CHANNELS, Chunk, Turn, reply_id
from threadline.ports import Approver, Store, Transaction
from threadline.turns.loop_share import LoopShare

# For readers of turns in other processes: where a notification was lost, or the process has ended.
_POLL_SECONDS = 1.0
_PAGE = 1000
# Events that a reader encodes before it gives way to the loop: about a millisecond's work.
_BATCH = 200

ContinueTurn: TypeAlias = Callable[[Scope, Turn, Approver | None], Awaitable[None]]
"""Runs the turn in this process if no process runs it. The approver decides for its tools, if one is given."""


# Not known to the garbage collector, which would visit every event of every running turn: hundreds of milliseconds when
# there are a million. Events are plain data without cycles.
class StreamedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a turn's stream. Numbers count from 1, without a gap."""

    n: int
    event: Event


class _Reader:
    """A reader that waits for the next event. Its timer is not set again for each event: when it fires, it compares the
    time of the last one. With ten thousand readers that saves a fifth of the time that an event takes to reach all."""

    def __init__(self, quiet_seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._quiet = quiet_seconds
        self._given_at = self._loop.time()
        self._waiting: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def mark_given(self) -> None:
        self._given_at = self._loop.time()

    def wake(self, *, has_events: bool = True) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(has_events)

    async def wait(self) -> bool:
        """True when there is something to read, False if there was nothing for `quiet_seconds`."""
        if self._timer is None and self._quiet is not None:
            self._timer = self._loop.call_at(self._given_at + self._quiet, self._check_quiet, self._quiet)
        self._waiting = self._loop.create_future()
        return await self._waiting

    def _check_quiet(self, quiet: float) -> None:
        due = self._given_at + quiet
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._check_quiet, quiet)
        else:
            self._timer = None
            self.wake(has_events=False)

    def leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class LiveStream:
    """The events of one turn that runs in this process."""

    def __init__(self, owner_id: str, loop_share: LoopShare) -> None:
        self.owner_id = owner_id
        self._loop_share = loop_share
        self._events: list[StreamedEvent] = []
        self._readers: dict[_Reader, None] = {}
        self._stored = 0
        self._has_unstored = asyncio.Event()
        self.is_closed = False
        self.has_ended = False
        """Whether the turn has ended: no more events follow, in this process or another."""
        self.failure: BaseException | None = None
        """Why this process could not store the turn's end."""

    def restore(self, stored: list[Chunk]) -> None:
        """Begins with what an earlier run of the turn has stored."""
        self._events = [_decode(chunk) for chunk in stored]
        self._stored = len(stored)
        self._wake()

    def publish(self, event: Event) -> None:
        self._events.append(StreamedEvent(len(self._events) + 1, event))
        self._has_unstored.set()
        self._wake()

    def close(self, *, has_ended: bool, failure: BaseException | None) -> None:
        self.is_closed, self.has_ended, self.failure = True, has_ended, failure
        self._wake()

    def unstored(self, most: int | None = None) -> list[Chunk]:
        """The first `most` events that are not stored yet, or all of them."""
        end = None if most is None else self._stored + most
        return [_encode(streamed) for streamed in self._events[self._stored : end]]

    async def wait_unstored(self) -> None:
        """Returns when there is something to store."""
        await self._has_unstored.wait()

    def mark_stored(self, chunks: list[Chunk]) -> None:
        self._stored = max(self._stored, chunks[-1].n)
        if self._stored >= len(self._events):
            self._has_unstored.clear()

    async def read(self, after: int, quiet_seconds: float | None) -> AsyncGenerator[list[StreamedEvent], None]:
        position = max(after, 0)
        reader = _Reader(quiet_seconds)
        self._readers[reader] = None
        try:
            while True:
                while batch := self._events[position : position + _BATCH]:
                    position += len(batch)
                    yield batch
                    reader.mark_given()
                    if len(batch) == _BATCH:
                        await self._loop_share.give_way()
                if self.is_closed:
                    return
                # No other task runs between the read above and this wait, so no event is missed.
                if not await reader.wait():
                    yield []
                    reader.mark_given()
        finally:
            del self._readers[reader]
            reader.leave()

    def _wake(self) -> None:
        for reader in self._readers:
            reader.wake()


class _End:
    """Whether all events of a turn that has ended were read."""

    is_reached = False


class Streams:
    """Finds a turn's stream, wherever the turn runs."""

    def __init__(self, store: Store, continue_turn: ContinueTurn) -> None:
        self._store = store
        self._continue_turn = continue_turn
        self.loop_share = LoopShare()
        """Shared by the readers and the agents of this process."""
        self._live: dict[tuple[str, str], LiveStream] = {}
        self.readers = 0

    def open(self, tenant_id: str, turn: Turn) -> LiveStream:
        place = (tenant_id, turn.id)
        live = self._live.get(place)
        if live is None:
            live = self._live[place] = LiveStream(turn.owner_id, self.loop_share)
        return live

    def close(self, tenant_id: str, turn_id: str, *, has_ended: bool, failure: BaseException | None = None) -> None:
        """Called when this process is done with the turn. If the turn has not ended, its readers follow it in the
        store; those that do not wait for another process get the failure to store its end."""
        stream = self._live.pop((tenant_id, turn_id), None)
        if stream is not None:
            stream.close(has_ended=has_ended, failure=failure)

    async def read(
        self, scope: Scope, turn_id: str, *, after: int = 0, approver: Approver | None = None
    ) -> AsyncIterator[StreamedEvent]:
        """The turn's events after number `after`, then those that follow, until the turn has ended in any process.
        `approver` decides if the turn is abandoned and continued here. NotFound for a turn that is not this scope's;
        StoreFailed if its end could not be stored."""
        async for batch in self.batches(scope, turn_id, after=after, waits_for_end=False, approver=approver):
            for streamed in batch:
                yield streamed

    async def events(self, scope: Scope, turn_id: str) -> AsyncIterator[Event]:
        """The events of `read` without their numbers."""
        async for streamed in self.read(scope, turn_id):
            yield streamed.event

    async def batches(
        self,
        scope: Scope,
        turn_id: str,
        *,
        after: int = 0,
        quiet_seconds: float | None = None,
        waits_for_end: bool = True,
        approver: Approver | None = None,
    ) -> AsyncGenerator[list[StreamedEvent], None]:
        """The same, as many at a time as there are; an empty list after each `quiet_seconds` without an event. With
        `waits_for_end`, a turn whose end could not be stored is followed until another process ends it."""
        live = self._live.get((scope.tenant_id, turn_id))
        if live is None or live.owner_id != scope.user_id:
            # Only the store knows whether the turn exists and whose it is.
            if await self._store.scoped(scope).turn(turn_id) is None:
                raise NotFound("turn", turn_id)
            live = self._live.get((scope.tenant_id, turn_id))
        self.readers += 1
        was_live = False
        try:
            while True:
                end = _End()
                if live is None:
                    reading = self._read_stored(scope, turn_id, after, quiet_seconds, approver, end, was_live=was_live)
                else:
                    reading = live.read(after, quiet_seconds)
                async with aclosing(reading) as batches:
                    async for batch in batches:
                        after = batch[-1].n if batch else after
                        yield batch
                if end.is_reached or (live is not None and live.has_ended):
                    return
                if live is not None and live.failure is not None and not waits_for_end:
                    raise live.failure
                # Also if it ran here only for a moment: the turn is still active, and the store is read again.
                was_live, live = True, self._live.get((scope.tenant_id, turn_id))
        finally:
            self.readers -= 1

    async def _read_stored(
        self,
        scope: Scope,
        turn_id: str,
        after: int,
        quiet_seconds: float | None,
        approver: Approver | None,
        end: _End,
        *,
        was_live: bool,
    ) -> AsyncGenerator[list[StreamedEvent], None]:
        """The stream of a turn that runs, or will run, in another process, until it has ended or runs here; `end` tells
        which. With `was_live` this process has just given it up, and does not try again at once."""
        session = self._store.scoped(scope)
        clock = asyncio.get_running_loop().time
        given_at, is_first = clock(), after == 0
        async with self._store.watch(scope, turn_id) as watch:
            while True:
                # The turn is read before its chunks: if it had ended by then, these chunks are all there will be.
                turn = await session.turn(turn_id)
                page = await session.chunks(turn_id, after=after, limit=_PAGE)
                for first in range(0, len(page), _BATCH):
                    yield [_decode(chunk) for chunk in page[first : first + _BATCH]]
                    given_at = clock()
                    await self.loop_share.give_way()
                if not page and quiet_seconds is not None and clock() - given_at >= quiet_seconds:
                    yield []
                    given_at = clock()
                if page:
                    after, is_first = page[-1].n, False
                if len(page) == _PAGE:
                    continue
                if turn is None or not turn.is_active:
                    if turn is not None and is_first:
                        yield await _replay(session, turn)
                    end.is_reached = True
                    return
                if not page and not was_live:
                    await self._continue_turn(scope, turn, approver)
                    if (scope.tenant_id, turn_id) in self._live:
                        return
                was_live = False
                await watch.wait(_POLL_SECONDS if quiet_seconds is None else min(_POLL_SECONDS, quiet_seconds))


def _encode(streamed: StreamedEvent) -> Chunk:
    return Chunk(streamed.n, events.to_json(streamed.event))


def _decode(chunk: Chunk) -> StreamedEvent:
    return StreamedEvent(chunk.n, events.from_json(chunk.json))


async def _replay(tx: Transaction, turn: Turn) -> list[StreamedEvent]:
    """The stream of an ended turn whose chunks were dropped, made from its reply and its end."""
    reply = await find_reply(tx, turn)
    begun = turn.seen.get(BEGUN, {})
    parts = () if reply is None else reply.parts
    if turn.taken_by is not None:
        # In a chat the reply is shown where both messages were sent.
        parts = () if turn.surface in CHANNELS else tuple(after_marker(parts, turn.id))
    said = replay_events(parts, known=begun.get("parts", 0), still_open=begun.get("open", ()))
    if reply is not None and (metadata := agent_metadata(reply.metadata)):
        said.append(events.MessageMetadata(metadata))
    waits = any(isinstance(part, ToolPart) and not part.is_answered for part in parts)
    if turn.status == "executed":
        said.append(events.Finish("tool-calls" if waits else "stop"))
    else:
        said.append(events.Failure(turn.error or turn.status))
    return [StreamedEvent(n, event) for n, event in enumerate(said, start=1)]


async def find_reply(tx: Transaction, turn: Turn) -> Message | None:
    """The reply as this turn left it, or the one that took it in, on whichever timeline that is."""
    answering = turn.taken_by or turn.id
    if turn.reply_seq is None or await tx.thread(turn.thread_id) is None:
        return None
    present = await tx.message(turn.thread_id, reply_id(answering))
    if present is not None and present.turn_id == answering and present.seq == turn.reply_seq:
        return present
    for timeline in reversed(await tx.timelines(turn.thread_id)):
        found = await tx.messages(turn.thread_id, first=turn.reply_seq, last=turn.reply_seq, timeline_id=timeline.id)
        if found and found[0].turn_id == answering:
            return found[0]
    return None
