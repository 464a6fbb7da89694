"""OpenAI's conversations: threads, and their messages as items."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.core import errors
from threadline.core.errors import InvalidInput, LimitExceeded
from threadline.core.messages import NewMessage
from threadline.core.threads import NewThread, Thread, ThreadChanges
from threadline.ports import StoreSession
from threadline.service.context import ServiceContext
from threadline.service.conversation_items import ConversationItems
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import idempotency_key, read_body, read_query
from threadline.service.http.responses import json_response
from threadline.service.openai_api.api_bodies import (
    ConversationBody,
    ConversationChanges,
    ConversationObject,
    DeletedObject,
    ItemList,
    ItemObject,
    ItemsBody,
    PageQuery,
)
from threadline.service.openai_api.input_items import as_items, read_items
from threadline.service.openai_api.object_ids import CONVERSATION, read_conversation_id
from threadline.service.openapi.operation import Body, Fault, ResponseSpec, operation
from threadline.service.resent_history import resolve_input
from threadline.threads.user_threads import Threads
from threadline.turns.removal import hide_message

_CONVERSATION = "/v1/conversations/{conversation_id}"
_ITEM = _CONVERSATION + "/items/{item_id}"
INCLUDE = ("include", "include[]")
"""Query parameters that change nothing: what we have is always included."""
_PAIRS, _NAME, _VALUE = 16, 64, 512
"""OpenAI's limits of metadata."""
_EXAMPLES = {"with an item": {"items": [{"role": "user", "content": "Hello"}], "metadata": {"topic": "travel"}}}
_ITEMS = {"one": {"items": [{"role": "user", "content": "Is it far?"}]}}
_MISSING = (errors.NotFound, errors.InvalidName)
_STORED = (errors.InvalidMessage, errors.DuplicateId, errors.KeyReused, errors.HeadMoved, errors.LimitExceeded)


class OpenAIConversationRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route("/v1/conversations", self.create, methods=["POST"]),
            Route(_CONVERSATION, self.retrieve, methods=["GET"]),
            Route(_CONVERSATION, self.update, methods=["POST"]),
            Route(_CONVERSATION, self.delete, methods=["DELETE"]),
            Route(_CONVERSATION + "/items", self.list_items, methods=["GET"]),
            Route(_CONVERSATION + "/items", self.create_items, methods=["POST"]),
            Route(_ITEM, self.retrieve_item, methods=["GET"]),
            Route(_ITEM, self.delete_item, methods=["DELETE"]),
        ]

    @operation(
        "createConversation",
        "Create a conversation in OpenAI's format",
        ResponseSpec(200, "The conversation: a thread.", ConversationObject),
        tag="openai",
        body=Body(ConversationBody, _EXAMPLES, required=False),
        errors=(*_MISSING, *_STORED),
    )
    async def create(self, request: Request) -> Response:
        threads, body = self._threads(request), await read_body(request, ConversationBody)
        metadata = _checked(body.metadata or {})
        messages = await self._messages(self._session(request), body.items) if body.items else []
        thread = await threads.create(NewThread(metadata=dict(metadata)))
        if messages:
            await threads.append(thread.id, messages)
        return json_response(_conversation(thread))

    @operation(
        "retrieveConversation",
        "Read a conversation",
        ResponseSpec(200, "The conversation.", ConversationObject),
        tag="openai",
        errors=_MISSING,
    )
    async def retrieve(self, request: Request) -> Response:
        return json_response(_conversation(await self._find(request)))

    @operation(
        "updateConversation",
        "Replace the metadata of a conversation",
        ResponseSpec(200, "The conversation.", ConversationObject),
        tag="openai",
        description="Values of a thread's metadata that are not texts stay as they are, and are not shown here.",
        body=Body(ConversationChanges, {"a topic": {"metadata": {"topic": "food"}}}),
        errors=_MISSING,
    )
    async def update(self, request: Request) -> Response:
        thread, body = await self._find(request), await read_body(request, ConversationChanges)
        kept = {name: value for name, value in thread.metadata.items() if not isinstance(value, str)}
        changes = ThreadChanges(metadata={**kept, **_checked(body.metadata)})
        return json_response(_conversation(await self._threads(request).update(thread.id, changes)))

    @operation(
        "deleteConversation",
        "Delete a conversation",
        ResponseSpec(200, "It is deleted, and can be restored until it is purged.", DeletedObject),
        tag="openai",
        errors=_MISSING,
    )
    async def delete(self, request: Request) -> Response:
        thread = await self._find(request)
        await self._threads(request).delete(thread.id)
        return json_response(DeletedObject(f"{CONVERSATION}{thread.id}", "conversation.deleted"))

    @operation(
        "listConversationItems",
        "List the items of a conversation",
        ResponseSpec(200, "A page of items.", ItemList),
        tag="openai",
        query=PageQuery,
        errors=_MISSING,
    )
    async def list_items(self, request: Request) -> Response:
        thread, query = await self._find(request), read_query(request, PageQuery, ignored=INCLUDE)
        return json_response(await ConversationItems(self._session(request)).page(thread, query))

    @operation(
        "createConversationItems",
        "Append items to a conversation without asking an agent",
        ResponseSpec(200, "The items as they are stored.", ItemList),
        tag="openai",
        body=Body(ItemsBody, _ITEMS),
        headers=("Idempotency-Key",),
        errors=(*_MISSING, *_STORED, Fault(431, "header_too_large")),
    )
    async def create_items(self, request: Request) -> Response:
        thread, body, session = await self._find(request), await read_body(request, ItemsBody), self._session(request)
        messages = await self._messages(session, body.items)
        done = await self._threads(request).append(thread.id, messages, key=idempotency_key(request))
        stored = await session.messages(thread.id, first=done.first_seq, limit=len(done.message_ids))
        reader = ConversationItems(session)
        items = [item for message in stored for item in await reader.of(message)]
        ids = [item["id"] for item in items] or [None]
        return json_response(ItemList(items, ids[0], ids[-1]))

    @operation(
        "retrieveConversationItem",
        "Read an item of a conversation",
        ResponseSpec(200, "The item.", ItemObject),
        tag="openai",
        errors=_MISSING,
    )
    async def retrieve_item(self, request: Request) -> Response:
        thread = await self._find(request)
        found = await ConversationItems(self._session(request)).find(thread, request.path_params["item_id"])
        return json_response(found.item)

    @operation(
        "deleteConversationItem",
        "Delete an item of a conversation",
        ResponseSpec(200, "The conversation. The item is in no list and no prompt any more.", ConversationObject),
        tag="openai",
        description="A call and its output are deleted together.",
        errors=_MISSING,
    )
    async def delete_item(self, request: Request) -> Response:
        scope_of(request).require("member")
        thread, session = await self._find(request), self._session(request)
        found = await ConversationItems(session).find(thread, request.path_params["item_id"])
        await hide_message(session, thread.id, found.message, found.part)
        return json_response(_conversation(thread))

    async def _messages(self, session: StoreSession, items: list[dict[str, Any]]) -> list[NewMessage]:
        resolved = await resolve_input(session, as_items(items), continues=True)
        given = read_items(resolved.items)
        if given.answers:
            raise InvalidInput("`items` has an output without its call: send it as `input` of a response")
        if not given.messages:
            raise InvalidInput("`items` must have a message, got none that says anything")
        return given.messages

    def _threads(self, request: Request) -> Threads:
        return self._threadline.threads(scope_of(request))

    def _session(self, request: Request) -> StoreSession:
        return self._threadline.store.scoped(scope_of(request))

    async def _find(self, request: Request) -> Thread:
        return await self._threads(request).find(read_conversation_id(request.path_params["conversation_id"]))


def _conversation(thread: Thread) -> ConversationObject:
    shown = {name: value for name, value in thread.metadata.items() if isinstance(value, str)}
    return ConversationObject(f"{CONVERSATION}{thread.id}", int(thread.created_at.timestamp()), shown)


def _checked(metadata: dict[str, str]) -> dict[str, str]:
    if len(metadata) > _PAIRS:
        raise LimitExceeded("pairs in `metadata`", _PAIRS, len(metadata))
    for name, value in metadata.items():
        if len(name) > _NAME or len(value) > _VALUE:
            raise InvalidInput(f"`metadata` must have names of at most {_NAME} characters and values of {_VALUE}")
    return metadata
