"""Accepts requests for responses: finds what a request continues, and stores it as a turn.

A request continues the response that it names, the one that it sends back (see `resent_history`), or a conversation.
Outputs of calls alone continue the reply that made the calls; with messages, they are stored with it, and the messages
are answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from threadline.bootstrap import Threadline
from threadline.core.approvals import Answer, ToolOutput
from threadline.core.client_tools import ClientTool
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.threads import Scope
from threadline.core.turn_commits import Accepted
from threadline.core.turn_options import TurnOptions
from threadline.core.turns import Turn, reply_id
from threadline.ports import StoreSession
from threadline.service.openai_api.api_bodies import CreateResponseBody, split_model
from threadline.service.openai_api.input_items import InputItems, as_items, check_include, read_items, read_tools
from threadline.service.openai_api.object_ids import read_conversation_id, read_response_id
from threadline.service.openai_api.response_object import chat_format
from threadline.service.resent_history import resolve_input
from threadline.turns.acceptance import TurnRequest
from threadline.turns.approvals import AnswerRequest
from threadline.turns.continuations import Continuations


class _Place(NamedTuple):
    """Where a request belongs: after a turn, on a thread, or on a new thread."""

    after: Turn | None
    thread_id: str | None


class ResponseRequests:
    def __init__(self, threadline: Threadline) -> None:
        self._threadline = threadline
        self._continuations = Continuations(threadline.store, threadline.turns, threadline.approvals)

    async def find_turn(self, scope: Scope, response_id: str) -> Turn:
        """NotFound, also for a response that was deleted."""
        session = self._threadline.store.scoped(scope)
        turn = await session.turn(read_response_id(response_id))
        if turn is None or await session.thread(turn.thread_id) is None or await session.is_turn_hidden(turn.id):
            raise NotFound("response", response_id)
        return turn

    async def read(self, scope: Scope, body: CreateResponseBody) -> tuple[InputItems, tuple[ClientTool, ...]]:
        """What a request that is not stored says."""
        _check_supported(body)
        resolved = await resolve_input(self._session(scope), as_items(body.input), continues=True)
        return read_items(resolved.items), read_tools(body.tools)

    async def accept(self, scope: Scope, body: CreateResponseBody, key: str | None) -> Accepted:
        """The errors of `Turns.accept`; NotFound for what it continues."""
        _check_supported(body)
        place = await self._place(scope, body)
        continues = place.after is not None or place.thread_id is not None
        resolved = await resolve_input(self._session(scope), as_items(body.input), continues=continues)
        if resolved.after is not None:
            place = _Place(resolved.after, None)
        given, tools, options = read_items(resolved.items), read_tools(body.tools), options_of(body)
        if given.answers and not given.messages:
            return await self._answer(scope, given.answers, place, tools, options, key)
        if not given.messages or given.messages[-1].role != "user":
            raise InvalidInput(
                "`input` must end with a user message, or with outputs of calls of `previous_response_id`: "
                "with `store` false it may be any conversation"
            )
        return await self._ask(scope, body, given, place, tools, options, key)

    async def _place(self, scope: Scope, body: CreateResponseBody) -> _Place:
        named, previous = body.conversation, body.previous_response_id
        if named is not None and previous is not None:
            raise InvalidInput("`conversation` and `previous_response_id` must not be given together")
        if named is not None:
            conversation_id = read_conversation_id(named if isinstance(named, str) else named.id)
            return _Place(None, (await self._threadline.threads(scope).find(conversation_id)).id)
        return _Place(None if previous is None else await self.find_turn(scope, previous), None)

    async def _ask(
        self,
        scope: Scope,
        body: CreateResponseBody,
        given: InputItems,
        place: _Place,
        tools: tuple[ClientTool, ...],
        options: TurnOptions,
        key: str | None,
    ) -> Accepted:
        outputs = _outputs(given.answers)
        if outputs and place.after is None:
            place = _Place(await self._last_turn(scope, place), None)
        agent_id, model = split_model(body.model, self._threadline.settings.agent)
        request = TurnRequest(
            message=given.messages[-1],
            surface="api",
            thread_id=place.thread_id,
            agent_id=agent_id,
            model=model,
            key=key,
            client_tools=tools,
            options=msgspec.structs.replace(options, earlier=len(given.messages) - 1, answered=tuple(sorted(outputs))),
        )
        return await self._continuations.accept(
            scope,
            request,
            self._threadline.runner.holder(),
            earlier=given.messages[:-1],
            after=None if place.after is None else place.after.id,
            outputs=outputs,
        )

    async def _last_turn(self, scope: Scope, place: _Place) -> Turn:
        """The turn whose calls are open at the end of a conversation."""
        found = [] if place.thread_id is None else await self._session(scope).turns(place.thread_id, limit=1)
        if not found:
            raise InvalidInput("`input` has an output of no call: name the response with `previous_response_id`")
        return found[0]

    async def _answer(
        self,
        scope: Scope,
        answers: Mapping[str, Answer],
        place: _Place,
        tools: tuple[ClientTool, ...],
        options: TurnOptions,
        key: str | None,
    ) -> Accepted:
        after = place.after
        if after is None and place.thread_id is None:
            raise InvalidInput("`input` has an output of no call: name the response with `previous_response_id`")
        answer = AnswerRequest(
            thread_id=place.thread_id or (after.thread_id if after is not None else ""),
            answers=answers,
            surface="api",
            message_id=None if after is None else reply_id(after.id),
            key=key,
            client_tools=tools,
            options=options,
        )
        return await self._threadline.approvals.accept(scope, answer, self._threadline.runner.holder())

    def _session(self, scope: Scope) -> StoreSession:
        return self._threadline.store.scoped(scope)


def options_of(body: CreateResponseBody) -> TurnOptions:
    previous = body.previous_response_id
    return TurnOptions(
        instructions=body.instructions or None,
        response_format=chat_format(None if body.text is None else body.text.format),
        metadata=body.metadata or {},
        background=bool(body.background),
        previous=None if previous is None else read_response_id(previous),
        model_options=body.model_options(),
    )


def _check_supported(body: CreateResponseBody) -> None:
    check_include(body.include)
    if body.prompt is not None:
        raise InvalidInput("`prompt` must be left out: prompts are kept with agents, name one with `model`")


def _outputs(answers: Mapping[str, Answer]) -> dict[str, ToolOutput]:
    found = {call_id: answer for call_id, answer in answers.items() if isinstance(answer, ToolOutput)}
    if len(found) < len(answers):
        raise InvalidInput("`input` must not have decisions together with messages: send the decisions first")
    return found
