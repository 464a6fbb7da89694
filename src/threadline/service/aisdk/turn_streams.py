"""A turn's output as server-sent events for AI SDK clients: from its first chunk, or from where a reader stopped.

The turn belongs to the runner. Streams only read, so a reader that disconnects does not stop the turn, and a slow one
costs a position and nothing else. An event's id is `turn:number`, so that a reader that reconnects never gets the
chunks of another turn.

Encoded frames are shared. What a chunk looks like on the wire depends only on the chunks before it and on the client's
major version, so ten thousand readers of one turn cost one encoding. Frames are freed with their last reader.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from threadline.core import events
from threadline.core.errors import InvalidInput
from threadline.core.event_replay import replay_events
from threadline.core.events import Finish
from threadline.core.ids import is_state_key
from threadline.core.parts import Part
from threadline.core.threads import Scope, Thread
from threadline.core.turns import Turn, TurnStatus, reply_id
from threadline.ports import Store
from threadline.service.aisdk.chunk_writer import HEADERS, KEEP_ALIVE, OLDEST, ChunkWriter
from threadline.service.aisdk.event_writer import EVENTS, EventWriter
from threadline.service.http.requests import read_header
from threadline.turns.streams import StreamedEvent, Streams

_EVENT_ID = re.compile(r"(?:(?P<turn>[A-Za-z0-9._-]{1,128}):)?(?P<number>\d{1,15})", re.ASCII)
_USER_AGENT = re.compile(r"\bai-sdk/(\d{1,2})\.", re.ASCII)
AI_SDK_HEADER = "X-AI-SDK"
FORMAT_HEADER = "X-Stream-Format"
_DELETED = "the thread was deleted"
_NOTICE_SECONDS = 0.25


class Position(NamedTuple):
    """A reader has every chunk up to and including `number` of this turn (None: of the active turn)."""

    turn_id: str | None
    number: int


def read_position(last_event_id: str | None) -> Position | None:
    if not last_event_id:
        return None
    found = _EVENT_ID.fullmatch(last_event_id)
    if found is None:
        raise InvalidInput("Last-Event-ID is not an event id of this stream: send the `id:` of the last event")
    return Position(found["turn"], int(found["number"]))


def read_major(request: Request) -> int | None:
    """The major version of the AI SDK that reads the stream, None if the client does not say. The header decides; some
    releases also name themselves in the user agent, which not every browser sends."""
    given = read_header(request, AI_SDK_HEADER)
    if given is None:
        agent = _USER_AGENT.search(request.headers.get("user-agent", ""))
        return None if agent is None else int(agent[1])
    if not given.isdecimal() or not OLDEST <= int(given) <= 99:
        raise InvalidInput(f"{AI_SDK_HEADER} must be a major version of the AI SDK from {OLDEST}, got {given[:20]!r}")
    return int(given)


def read_format(request: Request) -> int | None:
    """EVENTS for a client that reads Threadline's own events, otherwise the major version of its AI SDK."""
    given, major = read_header(request, FORMAT_HEADER), read_major(request)
    if given is None:
        return major
    if given != "events":
        raise InvalidInput(f"{FORMAT_HEADER} must be `events`, got {given[:20]!r}")
    return EVENTS


class EventStream(StreamingResponse):
    """Frames, sent in the request's own task. Whether the client has disconnected is only checked when there is nothing
    to send: a second task that waits for it would add a third to the memory of an open stream."""

    def __init__(self, frames: AsyncGenerator[bytes, None], headers: Mapping[str, str], readers: set[Receive]) -> None:
        super().__init__(frames, headers=headers)
        self._frames = frames
        self._readers = readers

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        self._readers.add(receive)
        try:
            await self._send_frames(receive, send)
        finally:
            self._readers.discard(receive)

    async def _send_frames(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._frames) as frames:
            async for frame in frames:
                # By identity: only the constant itself means that there is nothing to send.
                if frame is KEEP_ALIVE and await _is_disconnected(receive):
                    return
                await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _is_disconnected(receive: Receive) -> bool:
    try:
        # A timeout of 0 polls: only a message that is already there is read.
        async with asyncio.timeout(0):
            return bool((await receive())["type"] == "http.disconnect")
    except TimeoutError:
        return False


async def _wait_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Frames:
    """The encoded chunks of one turn for one major version, and the connections that read them."""

    def __init__(self, turn_id: str, major: int | None) -> None:
        self._turn_id = turn_id
        message_id = reply_id(turn_id)
        self._writer = EventWriter(message_id, turn_id) if major == EVENTS else ChunkWriter(message_id, major)
        self._frames: list[bytes] = []
        self._restarts: list[int] = []
        self.readers: set[Receive] = set()
        self.start = self._writer.start(f"{turn_id}:0")

    def after(self, number: int, batch: list[StreamedEvent]) -> bytes:
        """The frames of those events in `batch` that come after `number`, joined. Events are numbered from 1 without a
        gap, and every reader starts with the first. A reader that has nothing (-1) does not get output from before
        the last restart."""
        first, last = batch[0].n, batch[-1].n
        for streamed in batch[len(self._frames) - first + 1 :] if last > len(self._frames) else ():
            self._encode(streamed)
        if number < 0 and first == 1:
            number = max((n for n in self._restarts if n <= last), default=number)
        frames = self._frames[max(first - 1, number) : last]
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def _encode(self, streamed: StreamedEvent) -> None:
        if isinstance(streamed.event, events.Restart):
            self._restarts.append(streamed.n)
        self._frames.append(self._writer.event(streamed.event, f"{self._turn_id}:{streamed.n}"))

    def end(self, status: TurnStatus, error: str | None) -> bytes:
        """For a reader that has every chunk. Uses a copy of the writer: other readers may not be at the end yet."""
        return copy.copy(self._writer).end(status, error)


class TurnStreams:
    """Stream responses of turns. `oldest_major` is the oldest version of the AI SDK among clients that do not say."""

    def __init__(self, streams: Streams, store: Store, heartbeat_seconds: float, oldest_major: int) -> None:
        self._streams = streams
        self._store = store
        self._heartbeat_seconds = heartbeat_seconds
        self._unstated_major = oldest_major if oldest_major == OLDEST else None
        self._frames: WeakValueDictionary[tuple[str, str, int | None], Frames] = WeakValueDictionary()

    def response(
        self,
        scope: Scope,
        thread: Thread,
        turn: Turn,
        position: Position | None = None,
        *,
        major: int | None = None,
        earlier_parts: Sequence[Part] = (),
        running: asyncio.Task[Turn | None] | None = None,
    ) -> EventStream:
        """`earlier_parts` is what the reply contained before this turn, for a reader without a position. `running` is
        the task of the turn if it runs in this process; its result says how the turn ended."""
        major = self.assume_major(major)
        frames = self._shared_frames(scope.tenant_id, turn, major)
        head = b"" if position is not None else frames.start + _encode_parts(earlier_parts, major)
        body = self._body(scope, turn, -1 if position is None else position.number, frames, head, running)
        # A key that the library chose may contain characters that a header cannot.
        key = thread.state_key if is_state_key(thread.state_key) else thread.id
        return EventStream(body, {**HEADERS, "X-State-Key": key}, frames.readers)

    async def is_read(self, scope: Scope, turn: Turn) -> bool:
        """Whether a client reads the turn in this process."""
        names = (scope.tenant_id, turn.id)
        readers = [each for key, frames in list(self._frames.items()) if key[:2] == names for each in frames.readers]
        waits = [asyncio.create_task(_wait_disconnected(receive)) for receive in readers]
        if not waits:
            return False
        # A client that disconnects and asks again uses two connections, and the end of the first may be noticed later.
        _, reading = await asyncio.wait(waits, timeout=_NOTICE_SECONDS)
        for wait in reading:
            wait.cancel()
        return bool(reading)

    def assume_major(self, major: int | None) -> int | None:
        return self._unstated_major if major is None else major

    def _shared_frames(self, tenant_id: str, turn: Turn, major: int | None) -> Frames:
        key = (tenant_id, turn.id, major)
        frames = self._frames.get(key)
        if frames is None:
            frames = self._frames[key] = Frames(turn.id, major)
        return frames

    async def _body(
        self,
        scope: Scope,
        turn: Turn,
        number: int,
        frames: Frames,
        head: bytes,
        running: asyncio.Task[Turn | None] | None,
    ) -> AsyncGenerator[bytes, None]:
        if head:
            yield head
        async with aclosing(self._streams.batches(scope, turn.id, quiet_seconds=self._heartbeat_seconds)) as batches:
            async for batch in batches:
                if not batch:
                    yield KEEP_ALIVE
                elif encoded := frames.after(number, batch):
                    yield encoded
        yield await self._end(scope, frames, await self._ended_turn(scope, turn, running) or turn)

    async def _ended_turn(self, scope: Scope, turn: Turn, running: asyncio.Task[Turn | None] | None) -> Turn | None:
        """The turn after its stream: it has ended, or is about to be stored as ended."""
        if running is not None:
            # `wait` does not cancel the turn if the reader disconnects, unlike awaiting the task.
            await asyncio.wait([running])
            ended = None if running.cancelled() or running.exception() is not None else running.result()
            if ended is not None:
                return ended
        return await self._store.scoped(scope).turn(turn.id)

    async def _end(self, scope: Scope, frames: Frames, turn: Turn) -> bytes:
        if turn.status == "stopped" and await self._store.scoped(scope).thread(turn.thread_id) is None:
            return frames.end("interrupted", _DELETED)
        return frames.end(turn.status, turn.error)


def _encode_parts(parts: Sequence[Part], major: int | None) -> bytes:
    """The chunks of a reply so far. They have no ids: a reader that reconnects with an id of this turn has them all."""
    writer = EventWriter("", "") if major == EVENTS else ChunkWriter("", major)
    return b"".join(writer.event(event) for event in (*replay_events(parts), Finish()))
