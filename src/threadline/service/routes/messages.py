"""The routes of stored messages: list, read, append, and rewind to one.

`readThread` gives messages as AI SDK clients load them. These give them with their place in the thread, for programs.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import msgspec
from msgspec import UNSET
from msgspec import UnsetType as Unset
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import AppendResponse, Id, MessagesResponse, StoredMessage, ThreadInfo, ThreadStateInfo
from threadline.core import errors, jsontext
from threadline.core.checks import LARGEST_INTEGER
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.messages import Message, NewMessage, Role
from threadline.core.parts import ToolPart, decode
from threadline.core.threads import Thread
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, idempotency_key, read_body, read_query
from threadline.service.http.responses import json_response, thread_info
from threadline.service.openapi.operation import Body, ResponseSpec, operation
from threadline.service.routes.threads import ExpectedHeadBody, MessagePosition, find_thread
from threadline.service.routes.values import ValueChangeBody
from threadline.threads.user_threads import Threads

_MESSAGES = "/api/v1/ai/threads/{state_key}/messages"
Count = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_INTEGER)]


_LONGEST_SEQ = 10


class ListMessagesQuery(RequestStruct, frozen=True):
    first: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_INTEGER)] = 0
    last: Annotated[int, msgspec.Meta(ge=-1, le=LARGEST_INTEGER)] | Unset = UNSET
    newest: Annotated[Count, msgspec.Meta(description="The newest messages instead of a range.")] | Unset = UNSET
    around: Annotated[str, msgspec.Meta(description="A seq or a message id to read around.")] | Unset = UNSET
    within: Annotated[int, msgspec.Meta(ge=0, le=500, description="How many before and after it.")] = 25
    turns: Annotated[Count, msgspec.Meta(description="The messages of the last turns instead of a range.")] | Unset = (
        UNSET
    )
    timeline: Annotated[Id, msgspec.Meta(description="Another timeline of the thread.")] | Unset = UNSET


class NewMessageBody(RequestStruct, frozen=True):
    """`parts` are those of an AI SDK UIMessage. A tool call must have its result."""

    role: Role
    parts: list[dict[str, Any]]
    id: Id | None = None
    metadata: dict[str, Any] | None = None
    created_at: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None


class AppendBody(ExpectedHeadBody, frozen=True):
    messages: Annotated[list[NewMessageBody], msgspec.Meta(min_length=1)]
    after: (
        Annotated[MessagePosition, msgspec.Meta(description="Continue from there first, on a new timeline.")] | None
    ) = None
    values: list[ValueChangeBody] = msgspec.field(default_factory=list)


class RewindBody(ExpectedHeadBody, frozen=True):
    at: MessagePosition
    before: bool = False


class MessageRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route(_MESSAGES, self.list_messages, methods=["GET"]),
            Route(_MESSAGES, self.append_messages, methods=["POST"]),
            Route(_MESSAGES + "/{message_id}", self.read_message, methods=["GET"]),
            Route("/api/v1/ai/threads/{state_key}/rewind", self.rewind_thread, methods=["POST"]),
        ]

    @operation(
        "listMessages",
        "List a thread's messages with their places",
        ResponseSpec(200, "In order.", MessagesResponse),
        tag="threads",
        query=ListMessagesQuery,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def list_messages(self, request: Request) -> Response:
        threads, thread = await self._find(request)
        query = read_query(request, ListMessagesQuery)
        if query.turns is not UNSET:
            found = await threads.last_turns(thread.id, query.turns)
        else:
            found = await threads.messages(
                thread.id,
                first=query.first,
                last=None if query.last is UNSET else query.last,
                newest=None if query.newest is UNSET else query.newest,
                around=None if query.around is UNSET else _position(query.around),
                within=query.within,
                timeline_id=None if query.timeline is UNSET else query.timeline,
            )
        return json_response(MessagesResponse([_stored(message) for message in found]))

    @operation(
        "readMessage",
        "Read one message",
        ResponseSpec(200, "The message.", StoredMessage),
        tag="threads",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def read_message(self, request: Request) -> Response:
        threads, thread = await self._find(request)
        found = await threads.message(thread.id, request.path_params["message_id"])
        if found is None:
            raise NotFound("message", request.path_params["message_id"])
        return json_response(_stored(found))

    @operation(
        "appendMessages",
        "Append messages without asking an agent",
        ResponseSpec(200, "Where they are stored.", AppendResponse),
        tag="threads",
        description="All of them or none. The same ids, or the same key, store them once.",
        body=Body(
            AppendBody, {"a note": {"messages": [{"role": "user", "parts": [{"type": "text", "text": "Noted."}]}]}}
        ),
        headers=("Idempotency-Key",),
        errors=(
            errors.NotFound,
            errors.InvalidName,
            errors.HeadMoved,
            errors.DuplicateId,
            errors.KeyReused,
            errors.ValueChanged,
        ),
    )
    async def append_messages(self, request: Request) -> Response:
        threads, thread = await self._find(request)
        body = await read_body(request, AppendBody)
        appended = await threads.append(
            thread.id,
            [_new(message) for message in body.messages],
            key=idempotency_key(request),
            after=body.after,
            values=await self._threadline.value_encoder.writes(
                threads.scope, [each.change() for each in body.values], thread.id
            ),
            **body.head(),
        )
        return json_response(
            AppendResponse(
                appended.timeline_id,
                appended.first_seq,
                appended.message_ids,
                appended.message_count,
                ThreadStateInfo(**msgspec.structs.asdict(appended.thread)),
                appended.replayed,
                appended.value_versions,
            )
        )

    @operation(
        "rewindThread",
        "Continue a thread from one of its messages",
        ResponseSpec(200, "The thread as it is now, on a new timeline.", ThreadInfo),
        tag="threads",
        body=Body(RewindBody, {"from the second": {"at": 1}}),
        errors=(errors.NotFound, errors.InvalidName, errors.HeadMoved),
    )
    async def rewind_thread(self, request: Request) -> Response:
        threads, thread = await self._find(request)
        body = await read_body(request, RewindBody)
        moved = await threads.rewind(thread.id, body.at, before=body.before, **body.head())
        return json_response(thread_info(moved))

    async def _find(self, request: Request) -> tuple[Threads, Thread]:
        threads = self._threadline.threads(scope_of(request))
        return threads, await find_thread(threads, request.path_params["state_key"])


def _new(given: NewMessageBody) -> NewMessage:
    parts = jsontext.dump(given.parts, "parts")
    # An open call could be approved later, and would then run with an input that no agent chose.
    if any(isinstance(part, ToolPart) and not part.is_answered for part in decode(parts)):
        raise InvalidInput("a tool call that is appended must have an output, an error or a denial")
    return NewMessage(given.role, parts, given.id, given.metadata, given.created_at)


def _stored(message: Message) -> StoredMessage:
    return StoredMessage(
        id=message.id,
        role=message.role,
        seq=message.seq,
        timeline_id=message.timeline_id,
        created_at=message.created_at,
        parts=msgspec.Raw(message.parts_json),
        metadata=message.metadata,
        turn_id=message.turn_id,
    )


def _position(given: str) -> int | str:
    """Digits alone are a seq; no generated id consists of few digits."""
    return int(given) if given.isascii() and given.isdigit() and len(given) <= _LONGEST_SEQ else given
