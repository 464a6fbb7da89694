"""OpenAI's chat completions and models. Completions are stateless: the request has the whole conversation."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from threadline.core import errors
from threadline.core.client_tools import ClientTool
from threadline.core.errors import AgentFailed
from threadline.core.event_fold import Fold
from threadline.core.ids import check_state_key, new_id
from threadline.core.model_options import read_model_options
from threadline.core.prompts import Prompt
from threadline.core.threads import Scope
from threadline.ports import Agent
from threadline.replies import Defer
from threadline.service.aisdk.chunk_writer import HEADERS
from threadline.service.aisdk.turn_streams import EventStream
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import idempotency_key, read_body, read_header, read_object
from threadline.service.http.responses import json_response
from threadline.service.openai_api.api_bodies import (
    ChatCompletionBody,
    ChatCompletionObject,
    ModelList,
    ModelObject,
    ServerSentEvent,
    split_model,
)
from threadline.service.openai_api.chat_objects import ChatWriter, chat_completion
from threadline.service.openai_api.input_items import read_tools
from threadline.service.openapi.operation import Body, Fault, ResponseSpec, operation
from threadline.service.thread_chat import THREAD, ThreadChat
from threadline.turns.dispatch import Dispatcher
from threadline.turns.meters import allowed_models

log = logging.getLogger("threadline.service")

_EXAMPLE = {"a question": {"model": "rehearsal", "messages": [{"role": "user", "content": "Is it far to Sintra?"}]}}


class OpenAIChatRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline
        self._thread_chat = ThreadChat(context.threadline, context.settings.heartbeat_seconds)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.list_models, methods=["GET"]),
            Route("/v1/chat/completions", self.complete, methods=["POST"]),
        ]

    @operation(
        "listModels",
        "List agents as OpenAI's models",
        ResponseSpec(200, "The agents that the caller can name as `model`, and their models.", ModelList),
        tag="openai",
    )
    async def list_models(self, request: Request) -> Response:
        scope, directory = scope_of(request), self._threadline.directory
        own = await self._threadline.tenant_agents(scope).list_agents()
        rows = {row.id: row for row in (*filter(None, map(directory.configured_row, directory.ids())), *own)}
        ids = sorted({*directory.ids(), *rows})
        names = [*ids, *(f"{id}/{model}" for id in ids if id in rows for model in allowed_models(rows[id]) or ())]
        return json_response(ModelList([ModelObject(name) for name in names]))

    @operation(
        "createChatCompletion",
        "Complete a chat in OpenAI's format",
        ResponseSpec(
            200,
            "The completion, or with `stream` its chunks as server-sent events.",
            {"application/json": ChatCompletionObject, "text/event-stream": ServerSentEvent},
        ),
        tag="openai",
        description="Stateless: nothing is stored. With `metadata.thread` or X-State-Key the last message is asked on"
        " this thread instead. Function tools are left to the caller to run.",
        body=Body(ChatCompletionBody, _EXAMPLE),
        headers=("Idempotency-Key", "X-State-Key"),
        errors=(
            errors.NotFound,
            errors.InvalidName,
            errors.InvalidMessage,
            errors.GuardRefused,
            errors.BudgetExceeded,
            errors.AgentFailed,
            errors.Conflict,
            errors.TurnRunning,
            errors.DuplicateId,
            errors.KeyReused,
            Fault(431, "header_too_large"),
        ),
    )
    async def complete(self, request: Request) -> Response:
        scope = scope_of(request)
        body, given = await read_body(request, ChatCompletionBody), await read_object(request)
        agent_id, model = split_model(body.model, self._threadline.settings.agent)
        agent = await self._threadline.directory.find(scope, agent_id)
        tools, shown = read_tools(body.tools), body.model or agent_id
        with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        key, header = idempotency_key(request), read_header(request, "X-State-Key")
        name = (body.metadata or {}).get(THREAD) or (None if header is None else check_state_key(header))
        if name is not None:
            accepted = await self._thread_chat.accept(scope, name, body, given, tools, key)
            await self._threadline.runner.begin(scope, accepted, Defer())
            turn = accepted.turn
            if not body.stream:
                return json_response(await self._thread_chat.completion(scope, turn, shown))
            writer = ChatWriter(turn.id, shown, turn.created_at.timestamp(), [tool.name for tool in tools])
            return EventStream(self._thread_chat.frames(scope, turn, writer, with_usage=with_usage), HEADERS, set())
        options = read_model_options(given)
        prompt = await self._threadline.dispatcher.prompt(scope, agent_id, {**given, "model": model}, options)
        if body.stream:
            writer = ChatWriter(new_id(), shown, time.time(), [tool.name for tool in tools])
            frames = self._stream(scope, agent, prompt, tools, writer, with_usage=with_usage)
            return StreamingResponse(frames, headers=HEADERS)
        fold = await run_headless(self._threadline.dispatcher, scope, agent, prompt, tools)
        usage = msgspec.structs.asdict(fold.usage)
        return json_response(chat_completion(new_id(), shown, time.time(), fold.parts(), usage, fold.finish))

    async def _stream(
        self,
        scope: Scope,
        agent: Agent,
        prompt: Prompt,
        tools: tuple[ClientTool, ...],
        writer: ChatWriter,
        *,
        with_usage: bool,
    ) -> AsyncIterator[bytes]:
        fold, error = Fold(), None
        yield writer.start()
        try:
            running = self._threadline.dispatcher.run(scope, agent, prompt, Defer(), fold, tools)
            async with aclosing(running) as emitted:
                async for event in emitted:
                    for frame in writer.event(event):
                        yield frame
            error = fold.failure
        except AgentFailed as exc:
            error = str(exc)
        except Exception:
            # The status is sent already, so the stream has to tell.
            log.exception("agent failed", extra={"agent_id": prompt.agent_id})
            error = "the agent failed"
        for frame in writer.end(error, msgspec.structs.asdict(fold.usage) if with_usage else None, fold.finish):
            yield frame


async def run_headless(
    dispatcher: Dispatcher, scope: Scope, agent: Agent, prompt: Prompt, tools: tuple[ClientTool, ...]
) -> Fold:
    """The whole reply to a prompt without a thread. AgentFailed."""
    fold = Fold()
    async with aclosing(dispatcher.run(scope, agent, prompt, Defer(), fold, tools)) as emitted:
        async for _ in emitted:
            pass
    if fold.failure is not None:
        raise AgentFailed(fold.failure)
    return fold
