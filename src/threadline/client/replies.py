"""A reply over HTTP: ask, and then await the whole message or watch it being written.

Each request has one idempotency key for all its attempts, so a lost answer never doubles a message. A stream that
breaks is taken up after the last event that came; whoever stops reading stops nothing, `stop` does. Where an approver
is given, it is asked as soon as the turn waits, and the reply goes on as if it never had.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, TypeAlias

import httpx2

from threadline.api_types import StopResponse
from threadline.client.chunks import STOPPED, Frame, FrameReader, to_event
from threadline.client.transport import Transport
from threadline.client.values import UiMessage, read
from threadline.core.approvals import ApprovalDecision
from threadline.core.errors import AgentFailed, ServiceUnavailable
from threadline.core.events import ApprovalRequest, Event, Failure, Finish, Restart, TextDelta, ToolCall
from threadline.core.ids import check_id, new_id
from threadline.core.turns import TurnStatus
from threadline.ports import Approver

CHAT = "/api/v1/ai/chat"
_REPLY = "-reply"

Body: TypeAlias = Mapping[str, Any]
Prepare: TypeAlias = Callable[[], Awaitable[Body]]
Lookup: TypeAlias = Callable[[str], Awaitable[UiMessage | None]]
"""Finds a stored message by its id."""


class Ended(NamedTuple):
    """How a turn ended, as its stream told."""

    status: TurnStatus
    error: str | None = None


class RemoteReply:
    """`await reply` for the stored message; `async for event in reply` for every event; `reply.text()` for words."""

    def __init__(
        self,
        transport: Transport,
        state_key: str,
        prepare: Prepare,
        lookup: Lookup,
        *,
        key: str | None = None,
        approver: Approver | None = None,
        seen: str | None = None,
    ) -> None:
        """With `seen`, an event of a turn that was accepted already: only what comes after it is read."""
        self._transport = transport
        self._state_key = state_key
        self._prepare = prepare
        self._lookup = lookup
        self._key = key or new_id()
        self._approver = approver
        self._body: Body = {}
        self._is_accepted = seen is not None
        self._seen = seen
        """The last event that came: where to go on."""
        self._frames: AsyncGenerator[Frame, None] | None = None
        self._ended: Ended | None = None
        self._calls: dict[str, ToolCall] = {}
        self._waiting: list[ApprovalRequest] = []
        self.message_id: str | None = None
        """The id under which the reply is stored, once the service has said so."""

    @property
    def turn_id(self) -> str | None:
        """The turn that began the reply, once the service has said so."""
        return None if self.message_id is None else self.message_id.removesuffix(_REPLY)

    def __await__(self) -> Generator[Any, None, UiMessage]:
        return self._whole().__await__()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The events that were not read yet: each is read once."""
        try:
            while self._ended is None:
                async for event in self._one_turn():
                    yield event
                await self._go_on()
        finally:
            await self.close()

    async def text(self) -> AsyncIterator[str]:
        async for event in self:
            if isinstance(event, TextDelta):
                yield event.text

    async def accept(self) -> None:
        """Sends the request, once; returns as soon as the service has stored it."""
        if self._is_accepted:
            return
        self._body = await self._prepare()
        self._frames = self._read()
        first = await anext(self._frames, None)
        if first is None or first.chunk is None:
            raise ServiceUnavailable("the service sent a stream that does not begin")
        self._is_accepted, self.message_id = True, first.chunk.get("messageId")

    async def ended(self) -> Ended:
        """How the turn ended."""
        async for _ in self:
            pass
        assert self._ended is not None
        return self._ended

    async def stop(self) -> bool:
        """Ends the turn; what was shown is kept. False if it had ended."""
        # An event's id begins with its turn's: the turns of others on this thread go on.
        turn_id = None if self._seen is None else self._seen.rpartition(":")[0]
        return await stop(self._transport, self._state_key, turn_id)

    async def close(self) -> None:
        """Hangs up; the turn goes on, and reading goes on where it was."""
        if self._frames is not None:
            await self._frames.aclose()
            self._frames = None

    async def _whole(self) -> UiMessage:
        ended = await self.ended()
        found = None if self.message_id is None else await self._lookup(self.message_id)
        if ended.status == "dispatch_failed" or found is None:
            raise AgentFailed(ended.error or f"the turn ended {ended.status} before anything was said")
        return found

    async def _one_turn(self) -> AsyncIterator[Event]:
        await self.accept()
        if self._frames is None:
            self._frames = self._read()
        async for frame in self._frames:
            event = None if frame.chunk is None else to_event(frame.chunk)
            if event is not None and not self._keeps_to_itself(event):
                yield event

    def _keeps_to_itself(self, event: Event) -> bool:
        """Notes what the event says of the turn; True for what an approver deals with before anyone sees it."""
        match event:
            case ToolCall():
                self._calls[event.call_id] = event
            case Restart():
                self._calls, self._waiting = {}, []
            case ApprovalRequest():
                self._waiting.append(event)
                return self._approver is not None
            case Finish():
                if self._waiting and self._approver is not None:
                    return True
                self._ended = Ended("executed")
            case Failure():
                self._ended = Ended("stopped" if event.error == STOPPED else "dispatch_failed", event.error)
        return False

    async def _go_on(self) -> None:
        """After a turn that did not end the reply: only one that waits for the approver is such a turn."""
        if self._ended is not None:
            return
        if not self._waiting or self._approver is None:
            raise ServiceUnavailable("the service sent a stream that does not say how it ended")
        await self._respond(self._approver)

    async def _respond(self, approver: Approver) -> None:
        answers: dict[str, ApprovalDecision] = {}
        for request in self._waiting:
            verdict = await approver.decide(self._calls[request.call_id])
            if verdict.answer == "defer":
                self._ended = Ended("executed")
                return
            answers[request.approval_id] = ApprovalDecision(verdict.answer == "allow", verdict.reason)
        assert self.message_id is not None
        calls = [(request.approval_id, self._calls[request.call_id]) for request in self._waiting]
        self._body, self._key = answer_body(self._state_key, self.message_id, calls, answers), new_id()
        self._frames, self._seen, self._waiting = None, None, []

    async def _read(self) -> AsyncGenerator[Frame, None]:
        """The stream's frames to its end, however often the connection breaks on the way."""
        failures = 0
        while True:
            try:
                async with self._open() as answer:
                    async for frame in _frames(answer):
                        if frame.chunk is None:
                            return
                        self._seen, failures = frame.id or self._seen, 0
                        yield frame
            except httpx2.TransportError:
                pass
            if failures == len(self._transport.patience.retry_seconds):
                raise ServiceUnavailable("the service breaks off again and again")
            await asyncio.sleep(self._transport.patience.retry_seconds[failures])
            failures += 1

    def _open(self) -> AbstractAsyncContextManager[httpx2.Response]:
        if self._seen is None:
            return self._transport.open("POST", CHAT, self._body, headers={"idempotency-key": self._key})
        headers = {"last-event-id": self._seen}
        return self._transport.open("GET", f"{CHAT}/{self._state_key}/stream", headers=headers)


def replay(transport: Transport, state_key: str, turn_id: str, lookup: Lookup) -> RemoteReply:
    """The reply of a turn that was accepted some time ago, from its first event."""

    async def prepare() -> Body:
        raise AssertionError("it was asked before")

    return RemoteReply(transport, state_key, prepare, lookup, seen=f"{check_id('turn', turn_id)}:0")


async def stop(transport: Transport, state_key: str, turn_id: str | None = None) -> bool:
    asked = None if turn_id is None else {"turnId": turn_id}
    return read(await transport.call("POST", f"{CHAT}/{state_key}/stop", asked), StopResponse).stopped > 0


async def _frames(answer: httpx2.Response) -> AsyncIterator[Frame]:
    reader = FrameReader()
    async for piece in answer.aiter_bytes():
        for frame in reader.feed(piece):
            yield frame


def answer_body(
    state_key: str, message_id: str, calls: list[tuple[str, ToolCall]], answers: Mapping[str, ApprovalDecision]
) -> dict[str, Any]:
    """The reply as it goes back with its approvals answered."""
    parts = []
    for approval_id, call in calls:
        said = answers[approval_id]
        reason = {} if said.reason is None else {"reason": said.reason}
        parts.append(
            {
                "type": f"tool-{call.name}",
                "toolCallId": call.call_id,
                "state": "approval-responded",
                "input": call.input,
                "approval": {"id": approval_id, "approved": said.approved, **reason},
            }
        )
    return {"id": state_key, "message": {"id": message_id, "role": "assistant", "parts": parts}}
