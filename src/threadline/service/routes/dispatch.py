"""The routes that reach an agent directly: a message and its json_response, or its stream.

Headless by default: nothing is stored. With a `stateKey` the same request is a turn on that thread, like any other, and
then only the user's own last message counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from threadline.api_types import ApiStruct, StateKey, UiParts
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.dispatch import normalise
from threadline.core.errors import AgentFailed, InvalidInput, InvalidMessage
from threadline.core.event_fold import Fold
from threadline.core.ids import check_state_key, new_id
from threadline.core.messages import NewMessage, user
from threadline.core.parts import encode, plain_text
from threadline.core.prompts import Prompt
from threadline.core.threads import Scope
from threadline.ports import Agent
from threadline.replies import Defer, DenyAll
from threadline.service.aisdk.chunks import HEADERS, ChunkWriter
from threadline.service.auth.callers import WhoAsks
from threadline.service.operation import Body, Fault, ResponseSpec, operation
from threadline.service.requests import idempotency_key, read_object
from threadline.service.responses import json_response
from threadline.service.routes.agents import known_agent
from threadline.service.routes.chat import STREAM_TEXT, StreamEvent
from threadline.service.streaming import MAJOR, TurnStreams, read_major
from threadline.settings import ServiceSettings
from threadline.turns.acceptance import Accepted, TurnRequest, reply_id


class ChatMessage(msgspec.Struct, frozen=True):
    """A message as the chat API of OpenAI has it."""

    role: Literal["user", "assistant", "system", "developer", "tool"] | None = None
    content: str | list[Any] | None = None


class Dispatch(msgspec.Struct, frozen=True, rename="camel"):
    """`messages`, or one message as `role` and `content`. With `stateKey` it is a turn on that thread, and only the
    user's last message is read. Other keys are passed on."""

    messages: list[ChatMessage] | None = None
    role: Literal["user", "assistant", "system", "developer", "tool"] | None = None
    content: str | list[Any] | None = None
    state_key: StateKey | msgspec.UnsetType = msgspec.UNSET


class Reply(ApiStruct, frozen=True):
    """What the agent said. `id` and `stateKey` are there if it was said on a thread."""

    role: Literal["assistant"]
    content: str
    parts: UiParts
    id: str | None = None
    state_key: str | None = None


_SOMETHING_SAID = {"anyOf": [{"required": ["messages"]}, {"required": ["content"]}]}
_BODY = Body(
    Annotated[Dispatch, msgspec.Meta(extra_json_schema=_SOMETHING_SAID)],
    {
        "a question": {"role": "user", "content": "What is there to see in Lisbon?"},
        "on a thread": {"content": "And in Porto?", "stateKey": "lisbon"},
    },
)
_ERRORS = (
    errors.NotFound,
    errors.InvalidName,
    errors.InvalidText,
    errors.InvalidMessage,
    errors.GuardRefused,
    errors.TurnRunning,
    errors.KeyReused,
    errors.AgentFailed,
    Fault(431, "header_too_large"),
)


class DispatchRoutes:
    def __init__(self, threadline: Threadline, settings: ServiceSettings, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks
        self._streams = TurnStreams(threadline, settings.heartbeat_seconds)
        self._dispatching = threadline.dispatching
        self._approver = DenyAll()

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/agents/{agent_id}/message", self.message, methods=["POST"]),
            Route("/api/v1/agents/{agent_id}/stream", self.stream, methods=["POST"]),
        ]

    @operation(
        "askAgent",
        "Send an agent a message and wait for its answer",
        ResponseSpec(200, "The answer. Nothing was stored, unless `stateKey` named a thread.", Reply),
        tag="agents",
        body=_BODY,
        headers=("Idempotency-Key",),
        errors=_ERRORS,
        needs="member",
    )
    async def message(self, request: Request) -> Response:
        scope, agent_id, body = await self._read(request)
        key = idempotency_key(request)
        if "stateKey" in body:
            accepted = await self._accept(scope, agent_id, body, key)
            return await self._turn_answer(scope, accepted)
        agent, prompt = await self._prompt(scope, agent_id, body)
        fold = Fold()
        async with aclosing(self._dispatching.run(agent, prompt, self._approver, fold)) as shown:
            async for _ in shown:
                pass
        if fold.failure is not None:
            raise AgentFailed(fold.failure)
        return _reply(plain_text(fold.parts()), encode(fold.parts()))

    @operation(
        "streamAgent",
        "Send an agent a message and read its answer as a stream",
        ResponseSpec(200, STREAM_TEXT, StreamEvent, media_types=("text/event-stream",)),
        tag="agents",
        body=_BODY,
        headers=("Idempotency-Key", MAJOR),
        errors=_ERRORS,
        needs="member",
    )
    async def stream(self, request: Request) -> Response:
        scope, agent_id, body = await self._read(request)
        key = idempotency_key(request)
        if "stateKey" in body:
            accepted = await self._accept(scope, agent_id, body, key)
            return self._streams.stream_response(scope, accepted.thread, accepted.turn, major=read_major(request))
        agent, prompt = await self._prompt(scope, agent_id, body)
        writer = ChunkWriter(new_id(), read_major(request))
        return StreamingResponse(self._headless(agent, prompt, writer), headers=HEADERS)

    async def _read(self, request: Request) -> tuple[Scope, str, dict[str, Any]]:
        scope = await self._who_asks(request)
        return scope, await known_agent(self._threadline, scope, request), await read_object(request)

    async def _prompt(self, scope: Scope, agent_id: str, body: dict[str, Any]) -> tuple[Agent, Prompt]:
        prompt = await self._dispatching.prompt(scope, agent_id, body)
        return await self._threadline.directory.find(scope, agent_id), prompt

    async def _headless(self, agent: Agent, prompt: Prompt, writer: ChunkWriter) -> AsyncIterator[bytes]:
        fold = Fold()
        yield writer.start()
        error: str | None = None
        try:
            async with aclosing(self._dispatching.run(agent, prompt, self._approver, fold)) as shown:
                async for event in shown:
                    if chunk := writer.event(event):
                        yield chunk
            error = fold.failure
        except AgentFailed as exc:
            error = str(exc)
        yield writer.end("executed" if error is None else "dispatch_failed", error)

    async def _accept(self, scope: Scope, agent_id: str, body: dict[str, Any], key: str | None) -> Accepted:
        state_key = body["stateKey"]
        if not isinstance(state_key, str):
            raise InvalidInput("stateKey is a string")
        request = TurnRequest(
            message=_question(body), surface="api", state_key=check_state_key(state_key), agent_id=agent_id, key=key
        )
        accepted = await self._threadline.turns.accept(scope, request, self._threadline.runner.lease())
        self._threadline.runner.begin(scope, accepted, Defer())
        return accepted

    async def _turn_answer(self, scope: Scope, accepted: Accepted) -> Response:
        async for _ in self._threadline.streams.read(scope, accepted.turn.id):
            pass
        tx = self._threadline.store.scoped(scope)
        turn = await tx.turn(accepted.turn.id) or accepted.turn
        reply = await tx.message(turn.thread_id, reply_id(turn.id))
        if turn.status == "dispatch_failed" or reply is None:
            raise AgentFailed(turn.error or f"the turn ended {turn.status}")
        return _reply(reply.text, reply.parts_json, reply.id, accepted.thread.state_key)


def _question(body: dict[str, Any]) -> NewMessage:
    """The user's last message; what else the body claims was said is not read."""
    last = normalise(body)[-1]
    if last["role"] != "user" or not isinstance(last.get("content"), str):
        raise InvalidMessage("on a thread the message is the user's, as a text")
    return user(last["content"])


def _reply(text: str, parts: bytes, message_id: str | None = None, state_key: str | None = None) -> Response:
    return json_response(Reply("assistant", text, msgspec.Raw(parts), message_id, state_key))
