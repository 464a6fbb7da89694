"""A turn's stream as server-sent events: from its first chunk, or from where a reader left off.

The turn belongs to the runner. What is here only reads, so a reader that goes away takes nothing with it, and a slow
one holds a position and nothing else. An event's id is `turn:number`, so that a reader that comes back is never given
the chunks of another turn.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from threadline.bootstrap import Threadline
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.event_replay import events_of
from threadline.core.events import Finish
from threadline.core.parts import Part
from threadline.core.threads import Scope, Thread
from threadline.core.turns import Turn
from threadline.service.aisdk.chunks import HEADERS, KEEP_ALIVE, LATEST, OLDEST, ChunkWriter
from threadline.service.frames import Frames, SharedFrames
from threadline.service.requests import header

_SEEN = re.compile(r"(?:(?P<turn>[A-Za-z0-9._-]{1,128}):)?(?P<number>\d{1,15})", re.ASCII)
MAJOR = "X-AI-SDK"
_DELETED = "the thread was deleted"


class Seen(NamedTuple):
    """What a reader says it has: everything up to and with `number` of a turn (None: whichever is active)."""

    turn_id: str | None
    number: int


def read_seen(last_event_id: str | None) -> Seen | None:
    if not last_event_id:
        return None
    found = _SEEN.fullmatch(last_event_id)
    if found is None:
        raise InvalidInput("Last-Event-ID is the id of an event of this stream")
    return Seen(found["turn"], int(found["number"]))


def read_major(request: Request) -> int:
    """Which major of the AI SDK reads the stream, where the client says so."""
    given = header(request, MAJOR)
    if given is None:
        return LATEST
    if not given.isdecimal() or not OLDEST <= int(given) <= 99:
        raise InvalidInput(f"{MAJOR} is a major version of the AI SDK, {OLDEST} or later")
    return int(given)


class EventStream(StreamingResponse):
    """Frames as they come, in the request's own task. Whether the reader has left is looked at whenever there is
    nothing to tell: a second task that waits for it would add a third to what an open stream takes, and a reader that
    is gone costs a position until then."""

    def __init__(self, frames: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> None:
        super().__init__(frames, headers=headers)
        self._frames = frames

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._frames) as frames:
            async for frame in frames:
                if frame is KEEP_ALIVE and await _has_left(receive):
                    return
                await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _has_left(receive: Receive) -> bool:
    try:
        async with asyncio.timeout(0):
            return bool((await receive())["type"] == "http.disconnect")
    except TimeoutError:
        return False


class TurnStreams:
    """Streams of turns for AI SDK clients."""

    def __init__(self, threadline: Threadline, heartbeat_seconds: float) -> None:
        self._streams = threadline.streams
        self._store = threadline.store
        self._heartbeat = heartbeat_seconds
        self._frames = SharedFrames()

    def stream_response(
        self,
        scope: Scope,
        thread: Thread,
        turn: Turn,
        seen: Seen | None = None,
        *,
        major: int = LATEST,
        begun: Sequence[Part] = (),
        running: asyncio.Task[Turn | None] | None = None,
    ) -> EventStream:
        """`begun` is what the reply held before this turn, for a reader that does not have it. `running` is the turn,
        where it runs here: its result is how it ended."""
        frames = self._frames.of(scope.tenant_id, turn, major)
        head = b"" if seen is not None else frames.start + _said_before(begun, major)
        body = self._body(scope, turn, -1 if seen is None else seen.number, frames, head, running)
        return EventStream(body, {**HEADERS, "X-State-Key": thread.state_key})

    async def _body(
        self,
        scope: Scope,
        turn: Turn,
        seen: int,
        frames: Frames,
        head: bytes,
        running: asyncio.Task[Turn | None] | None,
    ) -> AsyncGenerator[bytes, None]:
        if head:
            yield head
        async with aclosing(self._streams.batches(scope, turn.id, quiet_seconds=self._heartbeat)) as batches:
            async for batch in batches:
                if not batch:
                    yield KEEP_ALIVE
                elif written := frames.written(batch, seen):
                    yield written
        yield await self._end(scope, frames, await self._standing(scope, turn, running) or turn)

    async def _standing(self, scope: Scope, turn: Turn, running: asyncio.Task[Turn | None] | None) -> Turn | None:
        """The turn after its stream: its run is over, or about to be."""
        if running is not None:
            await asyncio.wait([running])
            ended = None if running.cancelled() or running.exception() is not None else running.result()
            if ended is not None:
                return ended
        return await self._store.scoped(scope).turn(turn.id)

    async def _end(self, scope: Scope, frames: Frames, turn: Turn) -> bytes:
        if turn.status == "stopped" and await self._store.scoped(scope).thread(turn.thread_id) is None:
            return frames.end("interrupted", _DELETED)
        return frames.end(turn.status, turn.error)


def _said_before(parts: Sequence[Part], major: int) -> bytes:
    """The chunks of a reply so far. They have no ids: whoever comes back after one of the turn's own has them all."""
    writer = ChunkWriter("", major)
    return b"".join(writer.event(event) for event in (*events_of(parts), Finish()))


async def find_turn(threadline: Threadline, scope: Scope, thread: Thread, seen: Seen | None) -> Turn | None:
    """The turn whose stream is asked for: the one that was being read, else the active one. NotFound for a turn that is
    not of this thread."""
    tx = threadline.store.scoped(scope)
    if seen is not None and seen.turn_id is not None:
        turn = await tx.turn(seen.turn_id)
        if turn is None or turn.thread_id != thread.id:
            raise NotFound("turn", seen.turn_id)
        return turn
    active = await tx.active_turns(thread.id)
    if active:
        return active[0]
    latest = await tx.turns(thread.id, limit=1) if seen is not None else []
    return latest[0] if latest else None
