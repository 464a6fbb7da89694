"""OpenAI's responses: create, stream, run in the background, read again, cancel, delete.

A response is a turn like any other. One with `previous_response_id` continues that response, on its thread if it is the
end of it and otherwise on a branch. With `store` false nothing is stored.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.core import errors
from threadline.core.chat_messages import to_chat
from threadline.core.client_tools import ClientTool, offered_to
from threadline.core.errors import AgentFailed, InvalidInput, NotFound
from threadline.core.event_fold import Fold
from threadline.core.ids import new_id
from threadline.core.messages import Message
from threadline.core.parts import ToolPart
from threadline.core.prompts import Prompt
from threadline.core.threads import Scope
from threadline.core.turn_options import options_in
from threadline.core.turns import BEGUN, CONTINUES, CUT_SHORT, Turn, reply_id
from threadline.ports import Agent
from threadline.replies import Defer, stop_turns
from threadline.service.aisdk.chunk_writer import HEADERS, KEEP_ALIVE
from threadline.service.aisdk.turn_streams import EventStream
from threadline.service.context import ServiceContext
from threadline.service.conversation_items import ConversationItems, as_page, tool_names
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import idempotency_key, read_body, read_query
from threadline.service.http.responses import json_response
from threadline.service.openai_api.api_bodies import (
    CreateResponseBody,
    DeletedObject,
    ItemList,
    PageQuery,
    ResponseObject,
    RetrieveQuery,
    ServerSentEvent,
    split_model,
)
from threadline.service.openai_api.input_items import as_prompt
from threadline.service.openai_api.object_ids import CONVERSATION, RESPONSE
from threadline.service.openai_api.output_items import numbered_parts, output_item, reply_items
from threadline.service.openai_api.response_object import response_object, status_of
from threadline.service.openai_api.response_writer import ResponseWriter
from threadline.service.openapi.operation import Body, Fault, ResponseSpec, operation
from threadline.service.response_requests import ResponseRequests, options_of
from threadline.service.routes.openai_chat import run_headless
from threadline.service.routes.openai_conversations import INCLUDE
from threadline.turns.approvals import find_continued_reply
from threadline.turns.continuations import find_timeline
from threadline.turns.removal import hide_turn
from threadline.turns.streams import find_reply

log = logging.getLogger("threadline.service")

_STREAMED = {"application/json": ResponseObject, "text/event-stream": ServerSentEvent}
_EXAMPLES = {"a question": {"model": "rehearsal", "input": "Is it far to Sintra?"}}


class OpenAIResponseRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline
        self._requests = ResponseRequests(context.threadline)
        self._heartbeat_seconds = context.settings.heartbeat_seconds

    def routes(self) -> list[Route]:
        return [
            Route("/v1/responses", self.create, methods=["POST"]),
            Route("/v1/responses/{response_id}", self.retrieve, methods=["GET"]),
            Route("/v1/responses/{response_id}", self.delete, methods=["DELETE"]),
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
        agent = await self._threadline.directory.find(scope, agent_id)
        if body.store is False:
            return await self._create_unstored(scope, agent, body)
        accepted = await self._requests.accept(scope, body, idempotency_key(request))
        await self._threadline.runner.begin(scope, accepted, Defer())
        if body.stream:
            return await self._stream(scope, accepted.turn, -1)
        if not body.background:
            async for _ in self._threadline.streams.read(scope, accepted.turn.id):
                pass
        return json_response(await self._response(scope, accepted.turn.id))

    async def _create_unstored(self, scope: Scope, agent: Agent, body: CreateResponseBody) -> Response:
        if body.background or body.previous_response_id or body.conversation:
            raise InvalidInput("`store` must not be false for a response that runs on or continues another")
        given, tools = await self._requests.read(scope, body)
        if given.answers:
            raise InvalidInput("`input` must have the call of each output if `store` is false")
        agent_id, model = split_model(body.model, self._threadline.settings.agent)
        options = options_of(body)
        head = [] if options.instructions is None else [{"role": "system", "content": options.instructions}]
        messages = [*head, *to_chat(as_prompt(given.messages))]
        sent = {"messages": messages, "model": model, "response_format": options.response_format}
        prompt = await self._threadline.dispatcher.prompt(scope, agent_id, sent, options.model_options)
        unstored = _Unstored(new_id(), body, body.model or agent_id, time.time(), tools)
        if body.stream:
            return EventStream(self._unstored_frames(scope, agent, prompt, unstored), HEADERS, set())
        fold = await run_headless(self._threadline.dispatcher, scope, agent, prompt, tools)
        return json_response(unstored.response(fold, "completed"))

    async def _unstored_frames(
        self, scope: Scope, agent: Agent, prompt: Prompt, unstored: _Unstored
    ) -> AsyncGenerator[bytes, None]:
        fold, error, tools = Fold(), None, unstored.tools
        writer = ResponseWriter(reply_id(unstored.turn_id), [tool.name for tool in tools])
        yield b"".join(frame for _, frame in writer.start(unstored.response(fold, "in_progress")))
        try:
            running = self._threadline.dispatcher.run(scope, agent, prompt, Defer(), fold, tools)
            async with aclosing(running) as emitted:
                async for event in emitted:
                    yield b"".join(frame for _, frame in writer.event(event)) or KEEP_ALIVE
            error = fold.failure
        except AgentFailed as exc:
            error = str(exc)
        except Exception:
            # The status is sent already, so the stream has to tell.
            log.exception("agent failed", extra={"agent_id": prompt.agent_id})
            error = "the agent failed"
        ended = unstored.response(fold, "completed" if error is None else "failed", error)
        yield b"".join(frame for _, frame in writer.end(ended))

    @operation(
        "retrieveResponse",
        "Read a response",
        ResponseSpec(200, "The response as it is now, or with `stream` its events.", _STREAMED),
        tag="openai",
        query=RetrieveQuery,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def retrieve(self, request: Request) -> Response:
        scope, query = scope_of(request), read_query(request, RetrieveQuery, ignored=INCLUDE)
        turn = await self._requests.find_turn(scope, request.path_params["response_id"])
        if query.stream:
            return await self._stream(scope, turn, -1 if query.starting_after is None else query.starting_after)
        return json_response(await self._response(scope, turn.id))

    @operation(
        "listInputItems",
        "List the input of a response",
        ResponseSpec(200, "A page of the items that the response answers.", ItemList),
        tag="openai",
        query=PageQuery,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def input_items(self, request: Request) -> Response:
        scope, query = scope_of(request), read_query(request, PageQuery, ignored=INCLUDE)
        turn = await self._requests.find_turn(scope, request.path_params["response_id"])
        items = await self._input(scope, turn)
        if query.order == "desc":
            items.reverse()
        if query.after is not None:
            place = next((n for n, item in enumerate(items) if item["id"] == query.after), None)
            if place is None:
                raise InvalidInput(f"`after` must be the id of an item of this response, got {query.after!r}")
            items = items[place + 1 :]
        return json_response(as_page(items, query.limit))

    async def _input(self, scope: Scope, turn: Turn) -> list[dict[str, Any]]:
        session, options = self._threadline.store.scoped(scope), options_in(turn.seen)
        thread = await session.thread(turn.thread_id)
        timeline_id = None if thread is None else await find_timeline(session, thread, turn)
        if timeline_id is None or turn.request_seq is None:
            return []
        if CONTINUES in turn.seen:
            reply = await find_reply(session, turn)
            return [] if reply is None else _outputs_in(reply, turn.seen.get("answers", ()))
        first = turn.request_seq - options.earlier
        start = max(0, first - bool(options.answered))
        said = await session.messages(turn.thread_id, first=start, last=turn.request_seq, timeline_id=timeline_id)
        reader = ConversationItems(session)
        items = [item for message in said if message.seq < first for item in _outputs_in(message, options.answered)]
        return items + [item for message in said if message.seq >= first for item in await reader.of(message)]

    @operation(
        "cancelResponse",
        "Cancel a running response",
        ResponseSpec(200, "The response after its end. Output so far is stored.", ResponseObject),
        tag="openai",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def cancel(self, request: Request) -> Response:
        scope = scope_of(request)
        turn = await self._requests.find_turn(scope, request.path_params["response_id"])
        if turn.is_active:
            await stop_turns(self._threadline.runner, self._threadline.streams, scope, [turn])
        return json_response(await self._response(scope, turn.id))

    @operation(
        "deleteResponse",
        "Delete a response",
        ResponseSpec(200, "It is deleted, with its input: no list and no later prompt has them.", DeletedObject),
        tag="openai",
        description="A running response is stopped first. What is deleted is removed when its thread is purged.",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def delete(self, request: Request) -> Response:
        scope = scope_of(request)
        scope.require("member")
        turn = await self._requests.find_turn(scope, request.path_params["response_id"])
        if turn.is_active:
            await stop_turns(self._threadline.runner, self._threadline.streams, scope, [turn])
        session = self._threadline.store.scoped(scope)
        await hide_turn(session, await session.turn(turn.id) or turn)
        return json_response(DeletedObject(f"{RESPONSE}{turn.id}", "response"))

    async def _response(self, scope: Scope, turn_id: str) -> dict[str, Any]:
        """The response as it is stored now."""
        session = self._threadline.store.scoped(scope)
        turn = await session.turn(turn_id)
        if turn is None:
            raise NotFound("response", turn_id)
        reply = None if turn.is_active else await find_reply(session, turn)
        names, first = tool_names(turn), turn.seen.get(BEGUN, {}).get("parts", 0)
        return response_object(
            turn.id,
            model=turn.agent_id or self._threadline.settings.agent,
            created_at=turn.created_at.timestamp(),
            status=status_of(turn.status),
            options=options_in(turn.seen),
            client_tools=offered_to(turn.surface, turn.seen) or (),
            output=[] if reply is None else reply_items(reply.id, reply.parts, names, first=first, hidden=reply.hidden),
            error=turn.error,
            usage=turn.usage,
            conversation=f"{CONVERSATION}{turn.thread_id}",
            cut_short=turn.seen.get(CUT_SHORT),
        )

    async def _stream(self, scope: Scope, turn: Turn, after: int) -> Response:
        """The events after number `after`."""
        session = self._threadline.store.scoped(scope)
        begun = await find_continued_reply(session, turn)
        turn = await session.turn(turn.id) or turn
        first = turn.seen.get(BEGUN, {}).get("parts", 0) if begun is None else len(begun.parts)
        writer = ResponseWriter(reply_id(turn.id), tool_names(turn), first_part=first)
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


def _outputs_in(message: Message, call_ids: Collection[str]) -> list[dict[str, Any]]:
    """The outputs that the caller gave to these calls of a reply."""
    return [
        output_item(message.id, number, part)
        for number, part in numbered_parts(message.parts, message.hidden)
        if isinstance(part, ToolPart) and part.is_answered and part.call_id in call_ids
    ]


class _Unstored(NamedTuple):
    turn_id: str
    body: CreateResponseBody
    model: str
    created_at: float
    tools: tuple[ClientTool, ...]

    def response(self, fold: Fold, status: str, error: str | None = None) -> dict[str, Any]:
        ended = status != "in_progress"
        names = [tool.name for tool in self.tools]
        return response_object(
            self.turn_id,
            model=self.model,
            created_at=self.created_at,
            status=status,
            options=options_of(self.body),
            client_tools=self.tools,
            output=reply_items(reply_id(self.turn_id), fold.parts(), names) if ended else [],
            error=error,
            usage=msgspec.structs.asdict(fold.usage) if ended else None,
            cut_short=fold.finish,
            store=False,
        )
