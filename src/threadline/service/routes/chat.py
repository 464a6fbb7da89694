"""The routes that AI SDK clients talk to: ask, resume, stop.

A request is read, accepted, and its turn handed to the runner; the answer only reads that turn's stream. So a client
that leaves stops nothing, and one that comes back finds the stream from its first chunk.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET
from msgspec import UnsetType as Unset
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import ApiStruct, Id, StopResponse
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.approvals import claimed_answers
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.ids import check_id, check_state_key
from threadline.core.threads import Scope, Thread
from threadline.core.turns import Surface
from threadline.ports import Approver
from threadline.replies import Defer, DenyAll, stop_turns
from threadline.service.aisdk.requests import ChatBody, ChatRequest, read_request
from threadline.service.auth.callers import WhoAsks
from threadline.service.auth.impersonation import surface_of
from threadline.service.operation import Body, Fault, Link, ResponseSpec, operation
from threadline.service.requests import Shape, header, idempotency_key, read_body
from threadline.service.responses import json_response
from threadline.service.streaming import MAJOR, TurnStreams, find_turn, read_major, read_seen
from threadline.settings import ServiceSettings
from threadline.turns.acceptance import Accepted, TurnRequest
from threadline.turns.approvals import AnswerRequest, reply_gone_on_with
from threadline.turns.revisions import asked_again, question_to_repeat

_STATE_KEY = "X-State-Key"
_STREAM = "text/event-stream"
_HEADER_TOO_LARGE = Fault(431, "header_too_large")
STREAM_TEXT = """Server-sent events. Each `data:` is one chunk of the AI SDK's UI message stream as JSON: `start` names
the message, `text-delta` brings text, `finish`, `abort` or `error` says how the turn ended, and `[DONE]` is last. After
`data-again` the answer begins anew, in another process, and what came before does not stand. A stream that breaks off
without an end goes on elsewhere: an event's `id:` is what `Last-Event-ID` takes. A line that begins with a colon only
keeps the connection open."""
_EXAMPLES = {
    "a message": {"id": "lisbon", "message": {"role": "user", "parts": [{"type": "text", "text": "Is it far?"}]}},
    "what useChat sends": {
        "id": "sintra",
        "trigger": "submit-message",
        "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "What is there to see?"}]}],
    },
    "the answer again": {"id": "lisbon", "trigger": "regenerate-message"},
}


class StreamEvent(ApiStruct, frozen=True):
    """One server-sent event. `data` is a chunk of the AI SDK's UI message stream as JSON, and `[DONE]` at last."""

    data: str
    id: str | None = None


class Stopping(Shape, frozen=True):
    """Without a turn, every one that runs on the thread."""

    turn_id: Id | Unset = UNSET


def _going_on(key: str) -> tuple[Link, ...]:
    ids = ("resumeChat", "stopChat", "readThread", "changeThread", "deleteThread", "branchThread", "listTimelines")
    return tuple(Link(id, {"stateKey": key}) for id in (*ids, "undo", "exportThread"))


class Chat:
    def __init__(self, threadline: Threadline, settings: ServiceSettings, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks
        self._streams = TurnStreams(threadline, settings.heartbeat_seconds)

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/ai/chat", self.ask, methods=["POST"]),
            Route("/api/v1/ai/chat/{state_key}/stream", self.resume, methods=["GET"]),
            Route("/api/v1/ai/chat/{state_key}/stop", self.stop, methods=["POST"]),
        ]

    @operation(
        "chat",
        "Ask: one turn on a thread, its answer as a stream",
        ResponseSpec(
            200,
            STREAM_TEXT,
            StreamEvent,
            media_types=(_STREAM,),
            headers=(_STATE_KEY,),
            links=_going_on("$response.header.X-State-Key"),
        ),
        tag="chat",
        description="What AI SDK clients send, or the shorter form with one message. Of `messages` only the user's last"
        " one is read; or, where the last is a reply that comes back with its approvals answered, those answers."
        " A client that goes away stops nothing: the answer is stored, and can be resumed.",
        body=Body(ChatBody, _EXAMPLES),
        headers=("Idempotency-Key", _STATE_KEY, MAJOR),
        errors=(
            errors.InvalidName,
            errors.InvalidText,
            errors.InvalidMessage,
            errors.NotFound,
            errors.Conflict,
            errors.TurnRunning,
            errors.DuplicateId,
            errors.KeyReused,
            errors.GuardRefused,
            _HEADER_TOO_LARGE,
        ),
        needs="member",
    )
    async def ask(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        asked = _with_header(read_request(await request.body()), header(request, _STATE_KEY))
        if asked.agent_id is not None:
            await self._threadline.directory.find(scope, asked.agent_id)
        major = read_major(request)
        surface = surface_of(request)
        accepted = await self._accept(scope, asked, surface, idempotency_key(request))
        running = self._threadline.runner.begin(scope, accepted, _approver(surface))
        return self._streams.stream_response(scope, accepted.thread, accepted.turn, major=major, running=running)

    async def _accept(self, scope: Scope, asked: ChatRequest, surface: Surface, key: str | None) -> Accepted:
        if asked.claim is None:
            turn_request = await self._turn_request(scope, asked, surface, key)
            return await self._threadline.turns.accept(scope, turn_request, self._threadline.runner.lease())
        thread = await self._thread(scope, asked.state_key)
        request = AnswerRequest(
            thread_id=thread.id,
            answers=claimed_answers(asked.claim.calls),
            surface=surface,
            message_id=asked.claim.message_id,
            claimed=asked.claim.calls,
            key=key,
        )
        return await self._threadline.approvals.accept(scope, request)

    async def _turn_request(self, scope: Scope, asked: ChatRequest, surface: Surface, key: str | None) -> TurnRequest:
        message, replaces = asked.message, asked.replaces
        if message is None:
            thread = await self._thread(scope, asked.state_key)
            question = await question_to_repeat(self._threadline.store, scope, thread, replaces)
            message, replaces = asked_again(question), question.id
        return TurnRequest(
            message=message,
            surface=surface,
            state_key=asked.state_key,
            replaces=replaces,
            agent_id=asked.agent_id,
            key=key,
            policy=asked.policy,
        )

    @operation(
        "resumeChat",
        "Read the stream of the turn that runs, from its first chunk or from where a reader left off",
        ResponseSpec(200, STREAM_TEXT, StreamEvent, media_types=(_STREAM,), headers=(_STATE_KEY,)),
        ResponseSpec(204, "No turn runs on this thread."),
        tag="chat",
        headers=("Last-Event-ID", MAJOR),
        errors=(errors.InvalidName, errors.NotFound, _HEADER_TOO_LARGE),
    )
    async def resume(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        seen, major = read_seen(header(request, "Last-Event-ID")), read_major(request)
        thread = await self._thread(scope, request.path_params["state_key"])
        turn = await find_turn(self._threadline, scope, thread, seen)
        if turn is None:
            return Response(status_code=204)
        await self._threadline.runner.recover_if_abandoned(scope, turn)
        begun = None if seen is not None else await reply_gone_on_with(self._threadline.store.scoped(scope), turn)
        parts = () if begun is None else begun.parts
        return self._streams.stream_response(scope, thread, turn, seen, major=major, begun=parts)

    @operation(
        "stopChat",
        "Stop what runs on a thread; what was shown is kept",
        ResponseSpec(200, "Nothing runs on this thread any more, or this turn does not.", StopResponse),
        tag="chat",
        body=Body(Stopping, {"everything": {}}, required=False),
        errors=(errors.InvalidName, errors.NotFound),
        needs="member",
    )
    async def stop(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        asked = await read_body(request, Stopping)
        only = None if asked.turn_id is UNSET else check_id("turn", asked.turn_id)
        thread = await self._thread(scope, request.path_params["state_key"])
        active = await self._threadline.store.scoped(scope).active_turns(thread.id)
        if only is not None:
            active = [turn for turn in active if turn.id == only]
        stopped = await stop_turns(self._threadline.runner, self._threadline.streams, scope, active)
        return json_response(StopResponse(True, stopped))

    async def _thread(self, scope: Scope, state_key: str | None) -> Thread:
        found = None
        if state_key is not None:
            found = await self._threadline.threads(scope).get_by_key(check_state_key(state_key))
        if found is None:
            raise NotFound("thread", state_key or "")
        return found


def _approver(surface: Surface) -> Approver:
    """In a page or a program somebody can be asked later; in a room nobody could say yes."""
    return Defer() if surface == "web" else DenyAll()


def _with_header(asked: ChatRequest, state_key: str | None) -> ChatRequest:
    if state_key is None or asked.state_key == state_key:
        return asked
    if asked.state_key is not None:
        raise InvalidInput(f"the body and the header {_STATE_KEY} name different threads")
    return msgspec.structs.replace(asked, state_key=check_state_key(state_key))
