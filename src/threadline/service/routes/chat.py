"""The routes for AI SDK clients: ask, resume a stream, stop.

A request is parsed, its turn is accepted and handed to the runner; the response only reads that turn's stream. A client
that disconnects therefore stops nothing, and one that reconnects can read the stream from its first chunk.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET
from msgspec import UnsetType as Unset
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import ApiStruct, Id, StopResponse
from threadline.core import errors
from threadline.core.errors import InvalidInput, NotFound, TurnRunning
from threadline.core.ids import check_id, check_state_key
from threadline.core.threads import Scope, Thread
from threadline.core.turn_commits import Accepted
from threadline.core.turns import Surface, Turn, reply_id
from threadline.replies import Defer, stop_turns
from threadline.service.aisdk.chat_request import ChatBody, ChatRequest, Claim, parse_chat_request
from threadline.service.aisdk.questions import Asked, find_asked
from threadline.service.aisdk.turn_streams import AI_SDK_HEADER, FORMAT_HEADER, Position, read_format, read_position
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import caller_of, scope_of
from threadline.service.http.requests import RequestStruct, idempotency_key, read_body, read_header
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import Body, Fault, Link, ResponseSpec, operation
from threadline.service.routes.threads import find_thread
from threadline.turns.acceptance import TurnRequest
from threadline.turns.approvals import AnswerRequest, find_continued_reply

_STATE_KEY = "X-State-Key"
_STREAM = "text/event-stream"
_HEADER_TOO_LARGE = Fault(431, "header_too_large")
STREAM_DESCRIPTION = """Server-sent events. Each `data:` is one chunk of the AI SDK's UI message stream as JSON: `start`
has the message's id, `text-delta` adds text, `finish`, `abort` or `error` says how the turn ended, and `[DONE]` is
last. `data-again` means that another process started the answer again: discard what came before it. If the connection
breaks, resume with the `id:` of the last event as `Last-Event-ID`. Lines that start with a colon keep the connection
open."""
_EXAMPLES = {
    "a message": {"id": "lisbon", "message": {"role": "user", "parts": [{"type": "text", "text": "Is it far?"}]}},
    "as useChat sends it": {
        "id": "sintra",
        "trigger": "submit-message",
        "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "What is there to see?"}]}],
    },
    "regenerate the answer": {"id": "lisbon", "trigger": "regenerate-message"},
}


class StreamEvent(ApiStruct, frozen=True):
    """One server-sent event. `data` is a chunk of the AI SDK's UI message stream as JSON, or `[DONE]` at the end."""

    data: str
    id: str | None = None


class StopBody(RequestStruct, frozen=True):
    """Without `turnId`, all turns of the thread."""

    turn_id: Id | Unset = UNSET


def _thread_links(key: str) -> tuple[Link, ...]:
    ids = ("resumeChat", "stopChat", "readThread", "updateThread", "deleteThread", "branchThread", "listTimelines")
    return tuple(Link(id, {"stateKey": key}) for id in (*ids, "undo", "exportThread"))


class ChatRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline
        self._turn_streams = context.turn_streams

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/ai/chat", self.ask, methods=["POST"]),
            Route("/api/v1/ai/chat/{state_key}/stream", self.resume, methods=["GET"]),
            Route("/api/v1/ai/chat/{state_key}/stop", self.stop, methods=["POST"]),
        ]

    @operation(
        "chat",
        "Send a message and stream the answer",
        ResponseSpec(
            200,
            STREAM_DESCRIPTION,
            StreamEvent,
            media_types=(_STREAM,),
            headers=(_STATE_KEY,),
            links=_thread_links("$response.header.X-State-Key"),
        ),
        tag="chat",
        description="Takes the requests of AI SDK clients, or a shorter form with one message. The reply answers the"
        " last user message of `messages`: one that the thread does not contain is appended, a known one is asked again"
        " in its place if it is regenerated or edited. Of the messages before it only the ids are read: if the last"
        " question of the thread is not among them, the answer is 409. The history comes from the store. If the last"
        " message is a reply with approval decisions or outputs of client tools, those are read. If the client"
        " disconnects, the turn continues and"
        " can be resumed.",
        body=Body(ChatBody, _EXAMPLES),
        headers=("Idempotency-Key", _STATE_KEY, AI_SDK_HEADER, FORMAT_HEADER),
        errors=(
            errors.InvalidName,
            errors.InvalidMessage,
            errors.NotFound,
            errors.Conflict,
            errors.HeadMoved,
            errors.TurnRunning,
            errors.DuplicateId,
            errors.KeyReused,
            errors.GuardRefused,
            errors.BudgetExceeded,
            _HEADER_TOO_LARGE,
        ),
    )
    async def ask(self, request: Request) -> Response:
        scope, surface = scope_of(request), caller_of(request).surface
        chat = _with_state_key(parse_chat_request(await request.body()), read_header(request, _STATE_KEY))
        if chat.agent_id is not None:
            await self._threadline.directory.find(scope, chat.agent_id)
        major = read_format(request)
        accepted = await self._accept(scope, chat, surface, idempotency_key(request))
        running = await self._threadline.runner.begin(scope, accepted, Defer())
        return self._turn_streams.response(scope, accepted.thread, accepted.turn, major=major, running=running)

    async def _accept(self, scope: Scope, chat: ChatRequest, surface: Surface, key: str | None) -> Accepted:
        if chat.claim is not None:
            return await self._accept_answers(scope, chat, chat.claim, surface, key)
        session, thread = self._threadline.store.scoped(scope), await self._existing_thread(scope, chat)
        asked = await find_asked(session, thread, chat, key)
        request = TurnRequest(
            message=asked.message,
            surface=surface,
            thread_id=chat.thread_id,
            state_key=chat.state_key,
            replaces=asked.replaces,
            agent_id=chat.agent_id,
            model=chat.model,
            key=key,
            policy=chat.policy,
            client_tools=chat.client_tools,
        )
        turns, runner = self._threadline.turns, self._threadline.runner
        try:
            return await turns.accept(scope, request, runner.holder())
        except TurnRunning as running:
            left = await self._find_left_turns(scope, running, chat, asked)
            if left is None:
                raise
        if left:
            await stop_turns(runner, self._threadline.streams, scope, left)
            # A turn of another process may still be ending.
            request = msgspec.structs.replace(request, policy="interrupt")
        return await turns.accept(scope, request, runner.holder())

    async def _accept_answers(
        self, scope: Scope, chat: ChatRequest, claim: Claim, surface: Surface, key: str | None
    ) -> Accepted:
        thread = await self._find_thread(scope, chat.thread_id or chat.state_key)
        request = AnswerRequest(
            thread_id=thread.id,
            answers={},
            surface=surface,
            message_id=claim.message_id,
            claimed=claim.calls,
            key=key,
            client_tools=chat.client_tools,
        )
        return await self._threadline.approvals.accept(scope, request, self._threadline.runner.holder())

    async def _existing_thread(self, scope: Scope, chat: ChatRequest) -> Thread | None:
        """Not looked up for a new message without a history: there is nothing to compare."""
        if chat.question is None:
            return await self._find_thread(scope, chat.thread_id or chat.state_key)
        if chat.trigger == "submit-message" and chat.replaces is None and not (chat.shown or chat.rewind):
            return None
        session = self._threadline.store.scoped(scope)
        if chat.thread_id is not None:
            return await self._find_thread(scope, chat.thread_id)
        return None if chat.state_key is None else await session.thread_by_key(chat.state_key)

    async def _find_left_turns(
        self, scope: Scope, running: TurnRunning, chat: ChatRequest, asked: Asked
    ) -> list[Turn] | None:
        """The active turns if the client has left them all, else None. `stop()` of the AI SDK only disconnects."""
        if chat.policy is not None:
            return None
        session = self._threadline.store.scoped(scope)
        turn = await session.turn(running.turn_id)
        active = [] if turn is None else await session.active_turns(turn.thread_id)
        return active if all([await self._is_left(scope, turn, chat, asked) for turn in active]) else None

    async def _is_left(self, scope: Scope, turn: Turn, chat: ChatRequest, asked: Asked) -> bool:
        """Whether the client shows a part of the reply and asks something new, replaces the question that is being
        answered, or shows that question while no connection reads the reply, which runs here."""
        shown = {each.id for each in chat.shown}
        if reply_id(turn.id) in shown:
            return True
        session, seq = self._threadline.store.scoped(scope), turn.request_seq
        request = [] if seq is None else await session.messages(turn.thread_id, first=seq, last=seq)
        if not request or request[0].id not in {*shown, asked.replaces}:
            return False
        if request[0].id == asked.replaces:
            return True
        return self._threadline.runner.runs(turn.id) and not await self._turn_streams.is_read(scope, turn)

    @operation(
        "resumeChat",
        "Resume the stream of the running turn",
        ResponseSpec(200, STREAM_DESCRIPTION, StreamEvent, media_types=(_STREAM,), headers=(_STATE_KEY,)),
        ResponseSpec(204, "No turn is running on this thread, or there is no such thread."),
        tag="chat",
        description="From its first chunk, or after the event named in `Last-Event-ID`. A chat that does not exist yet"
        " has no running turn, so an AI SDK client can ask before its first message.",
        headers=("Last-Event-ID", AI_SDK_HEADER, FORMAT_HEADER),
        errors=(errors.InvalidName, errors.NotFound, _HEADER_TOO_LARGE),
    )
    async def resume(self, request: Request) -> Response:
        scope = scope_of(request)
        position, major = read_position(read_header(request, "Last-Event-ID")), read_format(request)
        try:
            thread = await self._find_thread(scope, request.path_params["state_key"])
        except NotFound:
            return Response(status_code=204)
        turn = await self._turn_to_read(scope, thread, position)
        if turn is None:
            return Response(status_code=204)
        await self._threadline.runner.continue_turn(scope, turn)
        session = self._threadline.store.scoped(scope)
        earlier = None if position is not None else await find_continued_reply(session, turn)
        parts = () if earlier is None else earlier.parts
        return self._turn_streams.response(scope, thread, turn, position, major=major, earlier_parts=parts)

    async def _turn_to_read(self, scope: Scope, thread: Thread, position: Position | None) -> Turn | None:
        """The turn that the reader was reading, else the active one. NotFound for a turn of another thread."""
        session = self._threadline.store.scoped(scope)
        if position is not None and position.turn_id is not None:
            turn = await session.turn(position.turn_id)
            if turn is None or turn.thread_id != thread.id:
                raise NotFound("turn", position.turn_id)
            return turn
        active = await session.active_turns(thread.id)
        if active:
            return active[0]
        latest = await session.turns(thread.id, limit=1) if position is not None else []
        return latest[0] if latest else None

    @operation(
        "stopChat",
        "Stop the running turns of a thread",
        ResponseSpec(200, "The turns have ended. Output so far is stored.", StopResponse),
        tag="chat",
        description="All of them, or the one named by `turnId`.",
        body=Body(StopBody, {"all turns": {}}, required=False),
        errors=(errors.InvalidName, errors.NotFound),
    )
    async def stop(self, request: Request) -> Response:
        scope = scope_of(request)
        body = await read_body(request, StopBody)
        only = None if body.turn_id is UNSET else check_id("turn", body.turn_id)
        thread = await self._find_thread(scope, request.path_params["state_key"])
        active = await self._threadline.store.scoped(scope).active_turns(thread.id)
        if only is not None:
            active = [turn for turn in active if turn.id == only]
        stopped = await stop_turns(self._threadline.runner, self._threadline.streams, scope, active)
        return json_response(StopResponse(True, stopped))

    async def _find_thread(self, scope: Scope, name: str | None) -> Thread:
        if name is None:
            raise NotFound("thread", "")
        return await find_thread(self._threadline.threads(scope), name)


def _with_state_key(chat: ChatRequest, state_key: str | None) -> ChatRequest:
    if state_key is None or chat.state_key == state_key:
        return chat
    if chat.state_key is not None or chat.thread_id is not None:
        raise InvalidInput(f"body and header {_STATE_KEY} name different threads: send the key in one of them")
    return msgspec.structs.replace(chat, state_key=check_state_key(state_key))
