"""The reply to a question, over HTTP: await the whole message, or iterate over its events while it is written.

Each request has one idempotency key for all its attempts, so a lost response never stores a message twice. A stream
that breaks is resumed after the last event that arrived. Where an approver is given, it decides as soon as the turn
waits, and its decisions are sent as the next turn of the same reply; the reader sees one reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Any, NamedTuple, TypeAlias, get_args

import httpx2
import msgspec

from threadline import api_types as api
from threadline.client.transport import Transport
from threadline.client.values import read, to_message, to_turn
from threadline.core.approvals import Answer, ApprovalDecision, ToolOutput
from threadline.core.errors import AgentFailed, NotFound, ServiceUnavailable
from threadline.core.events import (
    ApprovalRequest,
    Event,
    Failure,
    Finish,
    Restart,
    TextDelta,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolResult,
)
from threadline.core.ids import check_id, new_id
from threadline.core.messages import Message
from threadline.core.turns import TurnInfo, TurnStatus, reply_id
from threadline.ports import Approver, GatewayReply

CHAT = "/api/v1/ai/chat"
_EVENTS = {"x-stream-format": "events"}
_DONE = b"[DONE]"

Body: TypeAlias = Mapping[str, Any]
Prepare: TypeAlias = Callable[[], Awaitable["Request"]]


class Start(msgspec.Struct, frozen=True, tag="start", rename="camel"):
    """The first frame: where the reply will be stored, and the turn that writes it."""

    message_id: str
    turn_id: str


class End(msgspec.Struct, frozen=True, tag="end"):
    """The last frame: how the turn ended."""

    status: TurnStatus
    error: str | None = None


Frame: TypeAlias = Start | Event | End
_KNOWN = frozenset(kind.__struct_config__.tag for kind in get_args(Frame))


class _Tagged(msgspec.Struct):
    type: str


_decode: Callable[[bytes], Frame] = msgspec.json.Decoder(Frame).decode


class Request:
    """One turn of a reply. Without a turn id it has not been sent yet."""

    def __init__(self, thread_id: str, body: Body, key: str, turn_id: str | None = None) -> None:
        self.thread_id = thread_id
        self.body = body
        self.key = key
        self.turn_id = turn_id
        self.message_id: str | None = None


class RemoteReply(GatewayReply):
    def __init__(self, transport: Transport, prepare: Prepare, approver: Approver | None = None) -> None:
        self._transport = transport
        self._prepare = prepare
        self._approver = approver
        self._requests: list[Request] = []
        """The turns of this reply: the first, and one for each time the approver decided."""
        self._has_ended = False

    def __await__(self) -> Generator[Any, None, Message]:
        return self._message().__await__()

    async def __aiter__(self) -> AsyncIterator[Event]:
        number = 0
        while True:
            request = await self._request(number)
            turn = _Turn()
            async with aclosing(self._frames(request)) as frames:
                async for frame in frames:
                    event = turn.read(frame, hides_approvals=self._approver is not None)
                    if event is not None:
                        yield event
            if turn.end is None:
                raise ServiceUnavailable("service sent a stream without an end")
            if turn.end.status == "executed" and turn.waiting and await self._decide(number, turn):
                number += 1
                continue
            self._has_ended = True
            yield turn.finish if turn.end.status == "executed" else Failure(_reason(turn.end.status, turn.end.error))
            return

    async def text(self) -> AsyncIterator[str]:
        async for event in self:
            if isinstance(event, TextDelta):
                yield event.text

    async def accept(self) -> TurnInfo:
        request = await self._request(0)
        if request.turn_id is None:
            # The connection is given back: a reader opens the stream again, from its first event.
            async with aclosing(self._frames(request)) as frames:
                await anext(frames, None)
        return await self._turn_info(request)

    async def turn(self) -> TurnInfo:
        await self.accept()
        return await self._turn_info(self._requests[-1])

    async def ended(self) -> TurnInfo:
        if not self._has_ended:
            async for _ in self:
                pass
        return await self._turn_info(self._requests[-1])

    async def stop(self) -> bool:
        await self.accept()
        request = self._requests[-1]
        body = await self._transport.call("POST", f"{CHAT}/{request.thread_id}/stop", {"turnId": request.turn_id})
        return read(body, api.StopResponse).stopped > 0

    async def _message(self) -> Message:
        turn = await self.ended()
        request = self._requests[-1]
        message_id = request.message_id if turn.taken_by is None else reply_id(turn.taken_by)
        path = f"/api/v1/ai/threads/{request.thread_id}/messages/{message_id}"
        if turn.status != "dispatch_failed":
            try:
                return to_message(read(await self._transport.call("GET", path), api.StoredMessage))
            except NotFound:
                pass
        raise AgentFailed(_reason(turn.status, turn.error))

    async def _request(self, number: int) -> Request:
        if not self._requests:
            self._requests.append(await self._prepare())
        return self._requests[number]

    async def _turn_info(self, request: Request) -> TurnInfo:
        if request.turn_id is None:
            raise ServiceUnavailable("service sent a stream without a beginning")
        return to_turn(read(await self._transport.call("GET", f"/api/v1/ai/turns/{request.turn_id}"), api.TurnInfo))

    async def _decide(self, number: int, turn: _Turn) -> bool:
        """Sends the approver's decisions as the next turn. False if there is no approver, or it defers."""
        if number + 1 < len(self._requests):
            return True
        request = self._requests[number]
        if self._approver is None or request.message_id is None or turn.waits_for_output:
            return False
        answers: dict[str, ApprovalDecision] = {}
        for waiting in turn.waiting:
            verdict = await self._approver.decide(turn.calls[waiting.call_id])
            if verdict.answer == "defer":
                return False
            answers[waiting.approval_id] = ApprovalDecision(verdict.answer == "allow", verdict.reason)
        calls = [(waiting.approval_id, turn.calls[waiting.call_id]) for waiting in turn.waiting]
        body = answer_body(request.thread_id, request.message_id, calls, answers)
        self._requests.append(Request(request.thread_id, body, new_id()))
        return True

    async def _frames(self, request: Request) -> AsyncGenerator[Frame, None]:
        """The frames of one turn to its end, however often the connection breaks."""
        seen = None if request.turn_id is None else f"{request.turn_id}:0"
        failures = 0
        while True:
            try:
                async with self._open(request, seen) as response:
                    async for event_id, frame in _read_frames(response):
                        if frame is None:
                            return
                        if isinstance(frame, Start):
                            request.turn_id, request.message_id = frame.turn_id, frame.message_id
                        seen, failures = event_id or seen, 0
                        yield frame
            except httpx2.TransportError:
                pass
            if failures == len(self._transport.retry.retry_seconds):
                raise ServiceUnavailable("service broke off the stream again and again")
            # Back off, so that a service that restarts is not flooded with requests.
            await asyncio.sleep(self._transport.retry.retry_seconds[failures])
            failures += 1

    def _open(self, request: Request, seen: str | None) -> AbstractAsyncContextManager[httpx2.Response]:
        if seen is None:
            headers = {"idempotency-key": request.key, **_EVENTS}
            return self._transport.open("POST", CHAT, request.body, headers=headers)
        headers = {"last-event-id": seen, **_EVENTS}
        return self._transport.open("GET", f"{CHAT}/{request.thread_id}/stream", headers=headers)


class _Turn:
    """What one reading of a turn has found."""

    def __init__(self) -> None:
        self.calls: dict[str, ToolCall] = {}
        self.answered: set[str] = set()
        self.waiting: list[ApprovalRequest] = []
        self.finish = Finish()
        self.end: End | None = None

    def read(self, frame: Frame, *, hides_approvals: bool) -> Event | None:
        """The event for the reader, if the frame is one."""
        match frame:
            case Start():
                return None
            case End():
                self.end = frame
                return None
            case Finish():
                # Whether the turn was executed is known with the last frame.
                self.finish = frame
                return None
            case Failure():
                # The last frame has the reason that was stored.
                return None
            case ToolCall():
                self.calls[frame.call_id] = frame
            case Restart():
                self.calls, self.answered, self.waiting = {}, set(), []
            case ToolResult() | ToolError() | ToolDenied():
                self.answered.add(frame.call_id)
            case ApprovalRequest():
                self.waiting.append(frame)
                return None if hides_approvals else frame
        return frame

    @property
    def waits_for_output(self) -> bool:
        """Whether a call waits for the output of a client tool. All open calls are answered together."""
        return bool(self.calls.keys() - self.answered - {each.call_id for each in self.waiting})


class _EventFrame(NamedTuple):
    id: str | None
    frame: Frame | None
    """None at the end of the stream."""


async def _read_frames(response: httpx2.Response) -> AsyncIterator[_EventFrame]:
    reader = FrameReader()
    async for piece in response.aiter_bytes():
        for event_id, data in reader.feed(piece):
            if data == _DONE:
                yield _EventFrame(event_id, None)
            elif (frame := parse_frame(data)) is not None:
                yield _EventFrame(event_id, frame)


def parse_frame(data: bytes) -> Frame | None:
    """None for a kind of event that this version does not know: a newer service may send it."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            if msgspec.json.decode(data, type=_Tagged).type not in _KNOWN:
                return None
        raise ServiceUnavailable(f"service sent an unexpected event: {exc}") from exc


class FrameReader:
    """Server-sent events from pieces that may end anywhere: the id, if there is one, and the data of each."""

    def __init__(self) -> None:
        self._rest = b""
        self._id: str | None = None
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[tuple[str | None, bytes]]:
        """The events that this piece completes."""
        # Only a newline ends a line: JSON may contain other line separators unescaped.
        *lines, self._rest = (self._rest + piece).split(b"\n")
        frames = [self._line(line.removesuffix(b"\r")) for line in lines]
        return [frame for frame in frames if frame is not None]

    def _line(self, line: bytes) -> tuple[str | None, bytes] | None:
        if line:
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                self._data.append(value)
            elif field == b"id":
                self._id = value.decode("utf-8", "replace")
            return None
        data, event_id = b"\n".join(self._data), self._id
        self._data, self._id = [], None
        return (event_id, data) if data else None


def earlier_reply(transport: Transport, turn_id: str) -> RemoteReply:
    """The reply of a turn that was accepted earlier, from its first event."""

    async def prepare() -> Request:
        path = f"/api/v1/ai/turns/{check_id('turn', turn_id)}"
        turn = to_turn(read(await transport.call("GET", path), api.TurnInfo))
        request = Request(turn.thread_id, {}, new_id(), turn.id)
        request.message_id = reply_id(turn.id)
        return request

    return RemoteReply(transport, prepare)


def answer_body(
    thread_id: str, message_id: str, calls: list[tuple[str, ToolCall]], answers: Mapping[str, Answer]
) -> dict[str, Any]:
    """The reply with its open calls answered, as a chat request."""
    parts = [
        {
            "type": f"tool-{call.name}",
            "toolCallId": call.call_id,
            "input": call.input,
            **_answer_keys(id, answers[id]),
        }
        for id, call in calls
    ]
    return {"threadId": thread_id, "message": {"id": message_id, "role": "assistant", "parts": parts}}


def _answer_keys(id: str, answer: Answer) -> dict[str, Any]:
    match answer:
        case ApprovalDecision():
            reason = {} if answer.reason is None else {"reason": answer.reason}
            return {"state": "approval-responded", "approval": {"id": id, "approved": answer.approved, **reason}}
        case ToolOutput(error=None):
            # Refused before it is sent, if it is too large or not JSON.
            answer.encoded()
            return {"state": "output-available", "output": answer.output}
        case ToolOutput():
            return {"state": "output-error", "errorText": answer.error}


def _reason(status: TurnStatus, error: str | None) -> str:
    return error or f"the turn ended {status} before anything was said"
