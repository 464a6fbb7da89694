"""The routes of threads: list and search, create, read, change, delete, restore, branch, versions.

Threads are addressed by their id or by their state key, which belongs to the caller: the same key of another user is
another thread.
Reading a key without a thread returns an empty history, because a page opens before its first message is sent.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET
from msgspec import UnsetType as Unset
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_search_types import SearchResponse
from threadline.api_types import (
    EmptyHistory,
    Id,
    ListedThread,
    Name,
    OkResponse,
    StateKey,
    ThreadHistory,
    ThreadInfo,
    ThreadsResponse,
    TimelinesResponse,
)
from threadline.core import errors
from threadline.core.checks import LARGEST_INTEGER
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.ids import check_state_key, is_id
from threadline.core.threads import ExpectedHead, NewThread, Thread, ThreadChanges
from threadline.core.turns import reply_id
from threadline.replies import stop_turns
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, idempotency_key, read_body, read_query
from threadline.service.http.responses import (
    json_response,
    messages_response,
    search_hit,
    thread_fields,
    thread_info,
    timeline_info,
)
from threadline.service.http.thread_filters import ThreadListQuery
from threadline.service.openapi.operation import Body, Link, ResponseSpec, operation
from threadline.threads.user_threads import Threads

MessagePosition: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=LARGEST_INTEGER)] | Id
"""A message, by its seq or its id."""
_FIRST_TIMELINE = "$response.body#/timelines/0/id"

_THREADS = "/api/v1/ai/threads"
_THREAD = _THREADS + "/{state_key}"


class ListThreadsQuery(ThreadListQuery, frozen=True, kw_only=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="50 by default, 20 for a search.")] | Unset = UNSET
    offset: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_INTEGER)] = 0
    cursor: Annotated[str, msgspec.Meta(description="`nextCursor` of the previous page.")] | Unset = UNSET
    q: Annotated[str, msgspec.Meta(min_length=1, description="Words to search for.")] | Unset = UNSET


class ReadThreadQuery(RequestStruct, frozen=True):
    first: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_INTEGER)] = 0
    last: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_INTEGER)] | Unset = UNSET
    tail: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_INTEGER)] | Unset = UNSET

    def range(self, message_count: int) -> tuple[int, int | None]:
        """The first and the last seq to read."""
        if self.tail is UNSET:
            return self.first, None if self.last is UNSET else self.last
        if self.first or self.last is not UNSET:
            raise InvalidInput("`tail` cannot be combined with `first` or `last`: send one or the other")
        return max(0, message_count - self.tail), None


class CreateThreadBody(RequestStruct, frozen=True):
    id: Id | None = None
    state_key: StateKey | None = None
    title: Name | None = None
    agent_id: Id | None = None
    model: str | None = None
    system_prompt: str | None = None
    working_dir: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)

    def new_thread(self) -> NewThread:
        if self.state_key is not None:
            check_state_key(self.state_key)
        return NewThread(**{name: getattr(self, name) for name in CreateThreadBody.__struct_fields__})


class ChangeThreadBody(RequestStruct, frozen=True):
    title: Name | Unset | None = UNSET
    agent_id: Id | Unset | None = UNSET
    model: str | Unset | None = UNSET
    system_prompt: str | Unset | None = UNSET
    working_dir: str | Unset | None = UNSET
    archived: bool | Unset = UNSET
    metadata: dict[str, Any] | Unset = UNSET


class BranchBody(CreateThreadBody, frozen=True):
    at: MessagePosition | None = None


class ExpectedHeadBody(RequestStruct, frozen=True, kw_only=True):
    """Where the caller saw the thread's end. If it is elsewhere, nothing is changed."""

    expected_count: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_INTEGER)] | None = None
    expected_timeline: Id | None = None

    def head(self) -> ExpectedHead:
        return ExpectedHead(expected_count=self.expected_count, expected_timeline=self.expected_timeline)


class SwitchBody(ExpectedHeadBody, frozen=True):
    timeline_id: Id


class RestoreBody(RequestStruct, frozen=True):
    id: Id


def _thread_links(key: str) -> tuple[Link, ...]:
    """The operations that take the key of this thread."""
    ids = ("readThread", "updateThread", "deleteThread", "branchThread", "listTimelines", "undo", "exportThread")
    return tuple(Link(id, {"stateKey": key}) for id in ids)


class ThreadRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route(_THREADS, self.list_threads, methods=["GET"]),
            Route(_THREADS, self.create, methods=["POST"]),
            # Before the routes with a state key, which would match it too.
            Route(_THREADS + "/restore", self.restore, methods=["POST"]),
            Route(_THREAD, self.read, methods=["GET"]),
            Route(_THREAD, self.change, methods=["PATCH"]),
            Route(_THREAD, self.delete, methods=["DELETE"]),
            Route(_THREAD + "/branch", self.branch, methods=["POST"]),
            Route(_THREAD + "/timelines", self.list_timelines, methods=["GET"]),
            Route(_THREAD + "/switch", self.switch, methods=["POST"]),
            Route(_THREAD + "/undo", self.undo, methods=["POST"]),
        ]

    @operation(
        "listThreads",
        "List threads, latest activity first, or search messages",
        ResponseSpec(
            200,
            "A page of threads, or with `q` the messages that contain all words.",
            (ThreadsResponse, SearchResponse),
            links=_thread_links("$response.body#/threads/0/stateKey"),
        ),
        tag="threads",
        query=ListThreadsQuery,
        errors=(errors.InvalidCursor, errors.InvalidJson, errors.InvalidName, errors.LimitExceeded),
    )
    async def list_threads(self, request: Request) -> Response:
        threads = self._threads(request)
        query = read_query(request, ListThreadsQuery)
        if query.q is not UNSET:
            if query.cursor is not UNSET:
                raise InvalidInput("`cursor` cannot be combined with `q`: page a search with `offset`")
            limit = 20 if query.limit is UNSET else query.limit
            hits = await threads.search(query.q, limit=limit, offset=query.offset, **query.fields())
            return json_response(SearchResponse([search_hit(hit) for hit in hits]))
        page = await threads.page(
            limit=50 if query.limit is UNSET else query.limit,
            cursor=None if query.cursor is UNSET else query.cursor,
            offset=query.offset,
            archived=query.is_archived,
            deleted=query.deleted,
            **query.fields(),
        )
        surfaces = await threads.surfaces(page.items)
        listed = [ListedThread(**thread_fields(thread), surfaces=surfaces.get(thread.id)) for thread in page.items]
        return json_response(ThreadsResponse(listed, page.next_cursor))

    @operation(
        "createThread",
        "Create a thread without a message",
        ResponseSpec(201, "The thread.", ThreadInfo, links=_thread_links("$response.body#/stateKey")),
        tag="threads",
        description="Not needed before a chat: the first message to a key creates its thread.",
        body=Body(
            CreateThreadBody, {"any key": {}, "named": {"stateKey": "madeira", "title": "Or an island"}}, required=False
        ),
        errors=(errors.NotFound, errors.InvalidName, errors.DuplicateId),
    )
    async def create(self, request: Request) -> Response:
        threads = self._threads(request)
        body = await read_body(request, CreateThreadBody)
        if body.agent_id is not None:
            await self._threadline.directory.find(threads.scope, body.agent_id)
        return json_response(thread_info(await threads.create(body.new_thread())), 201)

    @operation(
        "readThread",
        "Read a thread and its messages",
        ResponseSpec(
            200, "The thread; only its key and no messages if there is none under it.", (ThreadHistory, EmptyHistory)
        ),
        tag="threads",
        query=ReadThreadQuery,
        errors=(errors.InvalidName,),
    )
    async def read(self, request: Request) -> Response:
        threads = self._threads(request)
        query = read_query(request, ReadThreadQuery)
        key = request.path_params["state_key"]
        try:
            thread = await find_thread(threads, key)
        except NotFound:
            return json_response(EmptyHistory(check_state_key(key), []))
        first, last = query.range(thread.message_count)
        messages = await threads.messages(thread.id, first=first, last=last)
        active = await self._threadline.store.scoped(threads.scope).active_turns(thread.id)
        # A reply that an approval continues is stored but unfinished: its stream sends all of it.
        unfinished = {reply_id(turn.id) for turn in active}
        history = ThreadHistory(**thread_fields(thread), active=bool(active), first_seq=first, messages=[])
        return messages_response(history, (message for message in messages if message.id not in unfinished))

    @operation(
        "updateThread",
        "Rename or archive a thread, or set its metadata",
        ResponseSpec(200, "The changed thread.", ThreadInfo),
        tag="threads",
        body=Body(
            ChangeThreadBody, {"rename": {"title": "A week in Lisbon"}, "archive": {"archived": True}}, required=False
        ),
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def change(self, request: Request) -> Response:
        threads, thread = await self._find_thread(request)
        body = await read_body(request, ChangeThreadBody)
        if isinstance(body.agent_id, str):
            await self._threadline.directory.find(threads.scope, body.agent_id)
        changes = ThreadChanges(**{name: getattr(body, name) for name in ChangeThreadBody.__struct_fields__})
        return json_response(thread_info(await threads.update(thread.id, changes)))

    @operation(
        "deleteThread",
        "Delete a thread",
        ResponseSpec(200, "The thread is deleted, or did not exist.", OkResponse),
        tag="threads",
        description="Running turns are stopped. The key is free: the next message to it creates a new thread.",
        errors=(errors.InvalidName,),
    )
    async def delete(self, request: Request) -> Response:
        threads = self._threads(request)
        try:
            thread = await find_thread(threads, request.path_params["state_key"])
        except NotFound:
            return json_response(OkResponse(True))
        active = await threads.active_turns(thread.id)
        await threads.delete(thread.id)
        await stop_turns(self._threadline.runner, self._threadline.streams, threads.scope, active)
        return json_response(OkResponse(True))

    @operation(
        "restoreThread",
        "Restore a deleted thread",
        ResponseSpec(200, "The restored thread.", ThreadInfo),
        tag="threads",
        description="By its id, because another thread may use its key now.",
        body=Body(RestoreBody, {"a thread": {"id": "a deleted thread"}}),
        errors=(errors.NotFound, errors.InvalidName, errors.DuplicateId),
    )
    async def restore(self, request: Request) -> Response:
        body = await read_body(request, RestoreBody)
        return json_response(thread_info(await self._threads(request).restore(body.id)))

    @operation(
        "branchThread",
        "Branch a thread: create a new one that starts with its messages",
        ResponseSpec(201, "The new thread.", ThreadInfo, links=_thread_links("$response.body#/stateKey")),
        tag="threads",
        description="Up to and including the message `at`, or all of them. Nothing is copied.",
        body=Body(
            BranchBody, {"here": {}, "earlier": {"at": 1, "title": "Or Porto", "stateKey": "porto"}}, required=False
        ),
        errors=(errors.NotFound, errors.InvalidName, errors.DuplicateId),
    )
    async def branch(self, request: Request) -> Response:
        threads, thread = await self._find_thread(request)
        body = await read_body(request, BranchBody)
        return json_response(thread_info(await threads.branch(thread.id, body.new_thread(), at=body.at)), 201)

    @operation(
        "listTimelines",
        "List the timelines of a thread",
        ResponseSpec(
            200,
            "One timeline for each version that an edit, a regeneration, an undo or a load created.",
            TimelinesResponse,
            links=(Link("switchTimeline", {"stateKey": "$request.path.stateKey"}, {"timelineId": _FIRST_TIMELINE}),),
        ),
        tag="threads",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def list_timelines(self, request: Request) -> Response:
        threads, thread = await self._find_thread(request)
        timelines = await threads.timelines(thread.id)
        return json_response(TimelinesResponse([timeline_info(timeline, thread) for timeline in timelines]))

    @operation(
        "switchTimeline",
        "Switch a thread to another timeline",
        ResponseSpec(200, "The thread on that timeline.", ThreadInfo),
        tag="threads",
        body=Body(SwitchBody, {"another version": {"timelineId": "a timeline of this thread"}}),
        errors=(errors.NotFound, errors.InvalidName, errors.HeadMoved),
    )
    async def switch(self, request: Request) -> Response:
        threads, thread = await self._find_thread(request)
        body = await read_body(request, SwitchBody)
        return json_response(thread_info(await threads.switch(thread.id, body.timeline_id, **body.head())))

    @operation(
        "undo",
        "Undo the last user message and its answer",
        ResponseSpec(200, "The thread on a new timeline without them.", ThreadInfo),
        tag="threads",
        body=Body(ExpectedHeadBody, {"whatever was added": {}}, required=False),
        headers=("Idempotency-Key",),
        errors=(errors.NotFound, errors.InvalidName, errors.KeyReused, errors.HeadMoved),
    )
    async def undo(self, request: Request) -> Response:
        threads, thread = await self._find_thread(request)
        body = await read_body(request, ExpectedHeadBody)
        return json_response(thread_info(await threads.undo(thread.id, key=idempotency_key(request), **body.head())))

    def _threads(self, request: Request) -> Threads:
        return self._threadline.threads(scope_of(request))

    async def _find_thread(self, request: Request) -> tuple[Threads, Thread]:
        threads = self._threads(request)
        return threads, await find_thread(threads, request.path_params["state_key"])


async def find_thread(threads: Threads, name: str) -> Thread:
    """By state key or id. InvalidName for what can be neither: over HTTP a key has one spelling. NotFound."""
    if not is_id(name):
        check_state_key(name)
    return await threads.find(name)
