"""The routes that send a message directly to an agent, for a JSON response or a stream.

Nothing is stored by default. With a `stateKey` the same request is a turn on that thread like any other, and only the
last user message is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from threadline.api_types import ApiStruct, StateKey, UiParts
from threadline.core import errors
from threadline.core.approvals import list_pending
from threadline.core.client_tools import read_declared
from threadline.core.dispatch import normalize
from threadline.core.errors import AgentFailed, InvalidInput, InvalidMessage
from threadline.core.event_fold import Fold
from threadline.core.ids import check_state_key, new_id
from threadline.core.messages import NewMessage, user
from threadline.core.parts import Part, decode, encode, plain_text
from threadline.core.prompts import Prompt
from threadline.core.threads import Scope
from threadline.core.turn_commits import Accepted
from threadline.core.turns import reply_id
from threadline.ports import Agent
from threadline.replies import Defer
from threadline.service.aisdk.chat_request import DeclaredTools
from threadline.service.aisdk.chunk_writer import HEADERS, ChunkWriter
from threadline.service.aisdk.turn_streams import AI_SDK_HEADER, read_major
from threadline.service.context import ServiceContext
from threadline.service.http.faults import json_type
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import idempotency_key, read_object
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import Body, Fault, ResponseSpec, operation
from threadline.service.routes.agents import find_agent_id
from threadline.service.routes.chat import STREAM_DESCRIPTION, StreamEvent
from threadline.turns.acceptance import TurnRequest
from threadline.turns.dispatch import read_model


class ChatMessage(msgspec.Struct, frozen=True):
    """A message in the format of OpenAI's chat API."""

    role: Literal["user", "assistant", "system", "developer", "tool"] | None = None
    content: str | list[Any] | None = None


class DispatchBody(msgspec.Struct, frozen=True, rename="camel"):
    """`messages`, or one message as `role` and `content`. With `stateKey` it is a turn on that thread, and only the
    last user message is read; `clientTools` are for such a turn. Other keys are passed on to the agent."""

    messages: list[ChatMessage] | None = None
    role: Literal["user", "assistant", "system", "developer", "tool"] | None = None
    content: str | list[Any] | None = None
    state_key: StateKey | msgspec.UnsetType = msgspec.UNSET
    model: str | None = None
    client_tools: DeclaredTools | None = None


class ReplyResponse(ApiStruct, frozen=True):
    """The agent's reply. `id` and `stateKey` are only present for a turn on a thread. With the status
    `awaiting_approval` the reply ends with calls in the state `approval-requested`, with `awaiting_output` only with
    calls of client tools. On a thread they can be answered, and the reply continues. Without one nothing is stored:
    send the request again with a `stateKey` to answer them."""

    role: Literal["assistant"]
    content: str
    parts: UiParts
    id: str | None = None
    state_key: str | None = None
    status: Literal["awaiting_approval", "awaiting_output"] | None = None


_MESSAGE_REQUIRED = {"anyOf": [{"required": ["messages"]}, {"required": ["content"]}]}
_BODY = Body(
    Annotated[DispatchBody, msgspec.Meta(extra_json_schema=_MESSAGE_REQUIRED)],
    {
        "a question": {"role": "user", "content": "What is there to see in Lisbon?"},
        "on a thread": {"content": "And in Porto?", "stateKey": "lisbon"},
    },
)
_ERRORS = (
    errors.NotFound,
    errors.InvalidName,
    errors.InvalidMessage,
    errors.GuardRefused,
    errors.BudgetExceeded,
    errors.TurnRunning,
    errors.KeyReused,
    errors.AgentFailed,
    Fault(431, "header_too_large"),
)


class DispatchRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline
        self._turn_streams = context.turn_streams
        self._headless = context.threadline.dispatcher
        # No person can be asked while the request lasts: the reply ends with the open calls instead of denying them.
        self._approver = Defer()

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/agents/{agent_id}/message", self.message, methods=["POST"]),
            Route("/api/v1/agents/{agent_id}/stream", self.stream, methods=["POST"]),
        ]

    @operation(
        "askAgent",
        "Send a message to an agent and wait for its reply",
        ResponseSpec(200, "The reply. Nothing is stored without `stateKey`.", ReplyResponse),
        ResponseSpec(202, "The reply waits for approval of a tool, or for the output of a client tool.", ReplyResponse),
        tag="agents",
        body=_BODY,
        headers=("Idempotency-Key",),
        errors=_ERRORS,
    )
    async def message(self, request: Request) -> Response:
        scope, agent_id, body = await self._read_request(request)
        key = idempotency_key(request)
        if "stateKey" in body:
            accepted = await self._accept(scope, agent_id, body, key)
            return await self._turn_reply(scope, accepted)
        agent, prompt = await self._prompt(scope, agent_id, body)
        fold = Fold()
        async with aclosing(self._headless.run(scope, agent, prompt, self._approver, fold)) as events:
            async for _ in events:
                pass
        if fold.failure is not None:
            raise AgentFailed(fold.failure)
        return _reply(fold.parts())

    @operation(
        "streamAgent",
        "Send a message to an agent and stream its reply",
        ResponseSpec(200, STREAM_DESCRIPTION, StreamEvent, media_types=("text/event-stream",)),
        tag="agents",
        body=_BODY,
        headers=("Idempotency-Key", AI_SDK_HEADER),
        errors=_ERRORS,
    )
    async def stream(self, request: Request) -> Response:
        scope, agent_id, body = await self._read_request(request)
        key = idempotency_key(request)
        if "stateKey" in body:
            accepted = await self._accept(scope, agent_id, body, key)
            return self._turn_streams.response(scope, accepted.thread, accepted.turn, major=read_major(request))
        agent, prompt = await self._prompt(scope, agent_id, body)
        writer = ChunkWriter(new_id(), self._turn_streams.assume_major(read_major(request)))
        return StreamingResponse(self._headless_stream(scope, agent, prompt, writer), headers=HEADERS)

    async def _read_request(self, request: Request) -> tuple[Scope, str, dict[str, Any]]:
        scope = scope_of(request)
        agent_id, body = await find_agent_id(self._threadline, scope, request), await read_object(request)
        if body.get("clientTools") is not None and "stateKey" not in body:
            raise InvalidInput("`stateKey` must be given with `clientTools`, whose outputs are sent to a thread")
        return scope, agent_id, body

    async def _prompt(self, scope: Scope, agent_id: str, body: dict[str, Any]) -> tuple[Agent, Prompt]:
        prompt = await self._headless.prompt(scope, agent_id, body)
        return await self._threadline.directory.find(scope, agent_id), prompt

    async def _headless_stream(
        self, scope: Scope, agent: Agent, prompt: Prompt, writer: ChunkWriter
    ) -> AsyncIterator[bytes]:
        fold = Fold()
        yield writer.start()
        error: str | None = None
        try:
            async with aclosing(self._headless.run(scope, agent, prompt, self._approver, fold)) as events:
                async for event in events:
                    if chunk := writer.event(event):
                        yield chunk
            error = fold.failure
        except AgentFailed as exc:
            error = str(exc)
        yield writer.end("executed" if error is None else "dispatch_failed", error)

    async def _accept(self, scope: Scope, agent_id: str, body: dict[str, Any], key: str | None) -> Accepted:
        state_key = body["stateKey"]
        if not isinstance(state_key, str):
            raise InvalidInput(f"`stateKey` must be a string, got {json_type(state_key)}")
        declared = body.get("clientTools")
        request = TurnRequest(
            message=_question(body),
            surface="api",
            state_key=check_state_key(state_key),
            agent_id=agent_id,
            model=read_model(body),
            key=key,
            client_tools=() if declared is None else read_declared(declared, "clientTools"),
        )
        accepted = await self._threadline.turns.accept(scope, request, self._threadline.runner.holder())
        await self._threadline.runner.begin(scope, accepted, Defer())
        return accepted

    async def _turn_reply(self, scope: Scope, accepted: Accepted) -> Response:
        async for _ in self._threadline.streams.read(scope, accepted.turn.id):
            pass
        session = self._threadline.store.scoped(scope)
        turn = await session.turn(accepted.turn.id) or accepted.turn
        reply = await session.message(turn.thread_id, reply_id(turn.id))
        if turn.status == "dispatch_failed" or reply is None:
            raise AgentFailed(turn.error or f"the turn ended {turn.status}")
        return _reply(decode(reply.parts_json), reply.id, accepted.thread.state_key)


def _question(body: dict[str, Any]) -> NewMessage:
    """The last user message. The history comes from the store, so the rest of the body is not read."""
    last = normalize(body)[-1]
    if last["role"] != "user" or not isinstance(last.get("content"), str):
        raise InvalidMessage("with `stateKey`, the last message must have the role user and a text as content")
    return user(last["content"])


def _reply(parts: Sequence[Part], message_id: str | None = None, state_key: str | None = None) -> Response:
    waiting = list_pending(parts)
    status: Literal["awaiting_approval", "awaiting_output"] | None = None
    if waiting:
        status = "awaiting_output" if all(each.approval_id is None for each in waiting) else "awaiting_approval"
    text, raw = plain_text(parts), msgspec.Raw(encode(parts))
    return json_response(ReplyResponse("assistant", text, raw, message_id, state_key, status), 202 if waiting else 200)
