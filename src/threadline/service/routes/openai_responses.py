"""OpenAI's responses: create, stream, run in the background, read again, cancel.

A response is a turn like any other. One with `previous_response_id` continues that response, on its thread if it is the
end of it and otherwise on a branch. With `store` false nothing is stored.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.core import errors
from threadline.core.client_tools import ClientTool, offered_to
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.ids import new_id
from threadline.core.messages import Message
from threadline.core.threads import Scope
from threadline.core.turn_commits import Accepted
from threadline.core.turn_options import TurnOptions, options_in
from threadline.core.turns import BEGUN, Turn, reply_id
from threadline.replies import Defer, stop_turns
from threadline.service.aisdk.chunk_writer import HEADERS, KEEP_ALIVE
from threadline.service.aisdk.turn_streams import EventStream
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import idempotency_key, read_body, read_query
from threadline.service.http.responses import json_response
from threadline.service.openai_api.api_bodies import (
    CreateResponseBody,
    ItemList,
    ResponseObject,
    RetrieveQuery,
    ServerSentEvent,
    split_model,
)
from threadline.service.openai_api.input_items import InputItems, as_items, read_items, read_tools, to_messages
from threadline.service.openai_api.object_ids import CONVERSATION, read_conversation_id, read_response_id
from threadline.service.openai_api.output_items import message_items, reply_items
from threadline.service.openai_api.response_object import chat_format, response_object, status_of
from threadline.service.openai_api.response_writer import ResponseWriter
from threadline.service.openapi.operation import Body, Fault, ResponseSpec, operation
from threadline.service.routes.openai_chat import run_headless
from threadline.turns.acceptance import TurnRequest
from threadline.turns.approvals import AnswerRequest, find_continued_reply
from threadline.turns.continuations import Continuations
from threadline.turns.streams import find_reply

_STREAMED = {"application/json": ResponseObject, "text/event-stream": ServerSentEvent}
_EXAMPLES = {"a question": {"model": "rehearsal", "input": "Is it far to Sintra?"}}


class OpenAIResponseRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline
        self._continuations = Continuations(context.threadline.store, context.threadline.turns)
        self._heartbeat_seconds = context.settings.heartbeat_seconds

    def routes(self) -> list[Route]:
        return [
            Route("/v1/responses", self.create, methods=["POST"]),
            Route("/v1/responses/{response_id}", self.retrieve, methods=["GET"]),
            Route("/v1/responses/{response_id}/input_items", self.input_items, methods=["GET"]),
            Route("/v1/responses/{response_id}/cancel", self.cancel, methods=["POST"]),
        ]

    @operation(
        "createResponse",
        "Create a response in OpenAI's format",
        ResponseSpec(200, "The response, or with `stream` its events.", _STREAMED),
        tag="openai",
        description="`previous_response_id` continues a response: on its thread if it is the last, otherwise on a"
        " branch. `conversation` is a thread. Function tools are left to the caller to run; send their outputs with"
        " `previous_response_id`.",
        body=Body(CreateResponseBody, _EXAMPLES),
        headers=("Idempotency-Key",),
        errors=(
            errors.NotFound,
            errors.InvalidName,
            errors.InvalidMessage,
            errors.Conflict,
            errors.HeadMoved,
            errors.TurnRunning,
            errors.DuplicateId,
            errors.KeyReused,
            errors.GuardRefused,
            errors.BudgetExceeded,
            errors.AgentFailed,
            Fault(431, "header_too_large"),
        ),
    )
    async def create(self, request: Request) -> Response:
        scope, body = scope_of(request), await read_body(request, CreateResponseBody)
        agent_id, _ = split_model(body.model, self._threadline.settings.agent)
        await self._threadline.directory.find(scope, agent_id)
        given, tools = read_items(as_items(body.input)), read_tools(body.tools)
        if body.store is False:
            return await self._create_unstored(scope, body, given, tools)
        accepted = await self._accept(scope, body, given, tools, idempotency_key(request))
        await self._threadline.runner.begin(scope, accepted, Defer())
        if body.stream:
            return await self._stream(scope, accepted.turn, -1)
        if not body.background:
            async for _ in self._threadline.streams.read(scope, accepted.turn.id):
                pass
        return json_response(await self._response(scope, accepted.turn.id))

    async def _create_unstored(
        self, scope: Scope, body: CreateResponseBody, given: InputItems, tools: tuple[ClientTool, ...]
    ) -> Response:
        if body.stream or body.background or body.previous_response_id or body.conversation:
            raise InvalidInput("`store` must not be false for a response that streams, runs on or continues another")
        agent_id, model = split_model(body.model, self._threadline.settings.agent)
        options = _options(body)
        head = [] if options.instructions is None else [{"role": "system", "content": options.instructions}]
        sent = {"messages": [*head, *given.messages], "model": model, "response_format": options.response_format}
        prompt = await self._threadline.dispatcher.prompt(scope, agent_id, sent)
        agent = await self._threadline.directory.find(scope, agent_id)
        fold = await run_headless(self._threadline.dispatcher, scope, agent, prompt, tools)
        turn_id = new_id()
        made = response_object(
            turn_id,
            model=body.model or agent_id,
            created_at=time.time(),
            status="completed",
            options=options,
            client_tools=tools,
            output=reply_items(reply_id(turn_id), fold.parts(), [tool.name for tool in tools]),
            usage=msgspec.structs.asdict(fold.usage),
            store=False,
        )
        return json_response(made)

    async def _accept(
        self,
        scope: Scope,
        body: CreateResponseBody,
        given: InputItems,
        tools: tuple[ClientTool, ...],
        key: str | None,
    ) -> Accepted:
        previous = None if body.previous_response_id is None else await self._turn(scope, body.previous_response_id)
        thread_id = await self._conversation(scope, body)
        if previous is not None and thread_id is not None:
            raise InvalidInput("`conversation` and `previous_response_id` must not be given together")
        holder, options = self._threadline.runner.holder(), _options(body)
        if given.answers and (previous is not None or thread_id is not None):
            return await self._answer(scope, given, previous, thread_id, tools, options, key)
        messages = to_messages(given.messages)
        if not messages or messages[-1].role != "user":
            raise InvalidInput("`input` must end with a user message, or answer calls of `previous_response_id`")
        agent_id, model = split_model(body.model, self._threadline.settings.agent)
        turn_request = TurnRequest(
            message=messages[-1],
            surface="api",
            thread_id=thread_id,
            agent_id=agent_id,
            model=model,
            key=key,
            client_tools=tools,
            options=options,
        )
        after, earlier = None if previous is None else previous.id, messages[:-1]
        return await self._continuations.accept(scope, turn_request, holder, earlier=earlier, after=after)

    async def _answer(
        self,
        scope: Scope,
        given: InputItems,
        previous: Turn | None,
        thread_id: str | None,
        tools: tuple[ClientTool, ...],
        options: TurnOptions,
        key: str | None,
    ) -> Accepted:
        if any(message["role"] != "tool" for message in given.messages):
            raise InvalidInput("`input` must have only outputs of calls, or no output, got outputs and messages")
        answer = AnswerRequest(
            thread_id=thread_id or (previous.thread_id if previous is not None else ""),
            answers=given.answers,
            surface="api",
            message_id=None if previous is None else reply_id(previous.id),
            key=key,
            client_tools=tools,
            options=options,
        )
        return await self._threadline.approvals.accept(scope, answer, self._threadline.runner.holder())

    async def _conversation(self, scope: Scope, body: CreateResponseBody) -> str | None:
        given = body.conversation
        if given is None:
            return None
        name = given if isinstance(given, str) else given.id
        return (await self._threadline.threads(scope).find(read_conversation_id(name))).id

    @operation(
        "retrieveResponse",
        "Read a response",
        ResponseSpec(200, "The response as it is now, or with `stream` its events.", _STREAMED),
        tag="openai",
        query=RetrieveQuery,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def retrieve(self, request: Request) -> Response:
        scope, query = scope_of(request), read_query(request, RetrieveQuery)
        turn = await self._turn(scope, request.path_params["response_id"])
        if query.stream:
            return await self._stream(scope, turn, -1 if query.starting_after is None else query.starting_after)
        return json_response(await self._response(scope, turn.id))

    @operation(
        "listInputItems",
        "List the input of a response",
        ResponseSpec(200, "The items that the response answers.", ItemList),
        tag="openai",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def input_items(self, request: Request) -> Response:
        scope = scope_of(request)
        turn = await self._turn(scope, request.path_params["response_id"])
        session, seq = self._threadline.store.scoped(scope), turn.request_seq
        found: list[Message] = []
        if seq is not None and await session.thread(turn.thread_id) is not None:
            found = await session.messages(turn.thread_id, first=seq, last=seq)
        items = [item for message in found for item in message_items(message, _tool_names(turn))]
        ids = [item["id"] for item in items]
        return json_response(ItemList(items, ids[0] if ids else None, ids[-1] if ids else None))

    @operation(
        "cancelResponse",
        "Cancel a running response",
        ResponseSpec(200, "The response after its end. Output so far is stored.", ResponseObject),
        tag="openai",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def cancel(self, request: Request) -> Response:
        scope = scope_of(request)
        turn = await self._turn(scope, request.path_params["response_id"])
        if turn.is_active:
            await stop_turns(self._threadline.runner, self._threadline.streams, scope, [turn])
        return json_response(await self._response(scope, turn.id))

    async def _turn(self, scope: Scope, response_id: str) -> Turn:
        session = self._threadline.store.scoped(scope)
        turn = await session.turn(read_response_id(response_id))
        if turn is None or await session.thread(turn.thread_id) is None:
            raise NotFound("response", response_id)
        return turn

    async def _response(self, scope: Scope, turn_id: str) -> dict[str, Any]:
        """The response as it is stored now."""
        session = self._threadline.store.scoped(scope)
        turn = await session.turn(turn_id)
        if turn is None:
            raise NotFound("response", turn_id)
        reply = None if turn.is_active else await find_reply(session, turn)
        names, first = _tool_names(turn), turn.seen.get(BEGUN, {}).get("parts", 0)
        return response_object(
            turn.id,
            model=turn.agent_id or self._threadline.settings.agent,
            created_at=turn.created_at.timestamp(),
            status=status_of(turn.status),
            options=options_in(turn.seen),
            client_tools=offered_to(turn.surface, turn.seen) or (),
            output=[] if reply is None else reply_items(reply.id, reply.parts, names, first=first),
            error=turn.error,
            usage=turn.usage,
            conversation=f"{CONVERSATION}{turn.thread_id}",
        )

    async def _stream(self, scope: Scope, turn: Turn, after: int) -> Response:
        """The events after number `after`."""
        session = self._threadline.store.scoped(scope)
        begun = await find_continued_reply(session, turn)
        turn = await session.turn(turn.id) or turn
        first = turn.seen.get(BEGUN, {}).get("parts", 0) if begun is None else len(begun.parts)
        writer = ResponseWriter(reply_id(turn.id), _tool_names(turn), first_part=first)
        return EventStream(self._frames(scope, turn, writer, after), HEADERS, set())

    async def _frames(
        self, scope: Scope, turn: Turn, writer: ResponseWriter, after: int
    ) -> AsyncGenerator[bytes, None]:
        begun = {**await self._response(scope, turn.id), "output": [], "usage": None, "error": None}
        yield b"".join(frame for number, frame in writer.start(begun) if number > after)
        streams = self._threadline.streams.batches(scope, turn.id, quiet_seconds=self._heartbeat_seconds)
        async with aclosing(streams) as batches:
            async for batch in batches:
                frames = [frame for each in batch for number, frame in writer.event(each.event) if number > after]
                yield b"".join(frames) if frames else KEEP_ALIVE
        ended = writer.end(await self._response(scope, turn.id))
        yield b"".join(frame for number, frame in ended if number > after)


def _options(body: CreateResponseBody) -> TurnOptions:
    previous = body.previous_response_id
    return TurnOptions(
        instructions=body.instructions or None,
        response_format=chat_format(None if body.text is None else body.text.format),
        metadata=body.metadata or {},
        background=bool(body.background),
        previous=None if previous is None else read_response_id(previous),
    )


def _tool_names(turn: Turn) -> list[str]:
    return [tool.name for tool in offered_to(turn.surface, turn.seen) or ()]
