"""The routes of threads: list and search, read, change, delete, branch, and go back to another timeline.

Threads are named by their state key, which is the caller's own: another owner's thread under the same key is another
thread. Reading a key under which nothing was said yet gives an empty history, because a page opens before its first
message.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET
from msgspec import UnsetType as Unset
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import (
    EmptyHistory,
    Id,
    ListedThread,
    Name,
    OkResponse,
    SearchResponse,
    StateKey,
    ThreadHistory,
    ThreadInfo,
    ThreadsResponse,
    TimelinesResponse,
)
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.ids import check_state_key
from threadline.core.threads import NewThread, Thread, ThreadChanges
from threadline.replies import stop_turns
from threadline.service.auth.callers import WhoAsks
from threadline.service.operation import Body, Link, ResponseSpec, operation
from threadline.service.requests import Shape, idempotency_key, read_body, read_query
from threadline.service.responses import (
    json_response,
    messages_response,
    search_hit,
    thread_fields,
    thread_info,
    timeline_info,
)
from threadline.threads.user_threads import Threads
from threadline.turns.acceptance import reply_id

Position: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=2**53)] | Id
"""A message, by its seq or its id."""
_LARGEST = 2**53
_LAST_TIMELINE = "$response.body#/timelines/0/id"

_THREADS = "/api/v1/ai/threads"
_THREAD = _THREADS + "/{state_key}"


class Listing(Shape, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="50 by default, 20 for a search.")] | Unset = UNSET
    offset: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)] = 0
    cursor: Annotated[str, msgspec.Meta(description="`nextCursor` of the page before.")] | Unset = UNSET
    q: Annotated[str, msgspec.Meta(min_length=1, description="Words to search for, taken literally.")] | Unset = UNSET
    archived: bool = False


class Range(Shape, frozen=True):
    first: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)] = 0
    last: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)] | Unset = UNSET
    tail: Annotated[int, msgspec.Meta(ge=1, le=_LARGEST)] | Unset = UNSET

    def of(self, message_count: int) -> tuple[int, int | None]:
        """The seqs that are asked for: a range, or so many of the newest."""
        if self.tail is UNSET:
            return self.first, None if self.last is UNSET else self.last
        if self.first or self.last is not UNSET:
            raise InvalidInput("ask for a range or for a tail, not for both")
        return max(0, message_count - self.tail), None


class Beginning(Shape, frozen=True):
    state_key: StateKey | None = None
    title: Name | None = None
    agent_id: Id | None = None


class Changes(Shape, frozen=True):
    title: Name | Unset = UNSET
    archived: bool | Unset = UNSET
    metadata: dict[str, Any] | Unset = UNSET


class Branching(Shape, frozen=True):
    at: Position | None = None
    title: Name | None = None
    state_key: StateKey | None = None


class Switching(Shape, frozen=True):
    timeline_id: Id


def _going_on(key: str) -> tuple[Link, ...]:
    """What can be done with a thread once its key is known."""
    ids = ("readThread", "changeThread", "deleteThread", "branchThread", "listTimelines", "undo", "exportThread")
    return tuple(Link(id, {"stateKey": key}) for id in ids)


class ThreadRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [
            Route(_THREADS, self.list_threads, methods=["GET"]),
            Route(_THREADS, self.begin, methods=["POST"]),
            Route(_THREAD, self.read, methods=["GET"]),
            Route(_THREAD, self.change, methods=["PATCH"]),
            Route(_THREAD, self.delete, methods=["DELETE"]),
            Route(_THREAD + "/branch", self.branch, methods=["POST"]),
            Route(_THREAD + "/timelines", self.timelines, methods=["GET"]),
            Route(_THREAD + "/switch", self.switch, methods=["POST"]),
            Route(_THREAD + "/undo", self.undo, methods=["POST"]),
        ]

    @operation(
        "listThreads",
        "List threads, newest activity first, or search in them",
        ResponseSpec(
            200,
            "A page of threads, or with `q` the messages that were found.",
            (ThreadsResponse, SearchResponse),
            links=_going_on("$response.body#/threads/0/stateKey"),
        ),
        tag="threads",
        query=Listing,
        errors=(errors.InvalidCursor, errors.InvalidText),
    )
    async def list_threads(self, request: Request) -> Response:
        threads = await self._threads(request)
        asked = read_query(request, Listing)
        if asked.q is not UNSET:
            if asked.cursor is not UNSET:
                raise InvalidInput("a search is paged by offset, not by cursor")
            hits = await threads.search(asked.q, limit=20 if asked.limit is UNSET else asked.limit, offset=asked.offset)
            return json_response(SearchResponse([search_hit(hit) for hit in hits]))
        page = await threads.page(
            limit=50 if asked.limit is UNSET else asked.limit,
            cursor=None if asked.cursor is UNSET else asked.cursor,
            offset=asked.offset,
            archived=asked.archived,
        )
        surfaces = await threads.surfaces(page.items)
        listed = [ListedThread(**thread_fields(thread), surfaces=surfaces.get(thread.id)) for thread in page.items]
        return json_response(ThreadsResponse(listed, page.next_cursor))

    @operation(
        "beginThread",
        "Begin a thread before anything is said",
        ResponseSpec(201, "The thread, without a message.", ThreadInfo, links=_going_on("$response.body#/stateKey")),
        tag="threads",
        description="A thread also begins with the first message to its key. A key that is taken is refused.",
        body=Body(Beginning, {"any": {}, "named": {"stateKey": "madeira", "title": "Or an island"}}, required=False),
        errors=(errors.NotFound, errors.InvalidName, errors.InvalidText, errors.DuplicateId),
        needs="member",
    )
    async def begin(self, request: Request) -> Response:
        threads = await self._threads(request)
        asked = await read_body(request, Beginning)
        if asked.agent_id is not None:
            await self._threadline.directory.find(threads.scope, asked.agent_id)
        new = NewThread(state_key=asked.state_key, title=asked.title, agent_id=asked.agent_id)
        return json_response(thread_info(await threads.create(new)), 201)

    @operation(
        "readThread",
        "Read a thread's messages",
        ResponseSpec(
            200, "The thread; only its key and no messages if nothing was said under it.", (ThreadHistory, EmptyHistory)
        ),
        tag="threads",
        query=Range,
        errors=(errors.InvalidName,),
    )
    async def read(self, request: Request) -> Response:
        """The history as UI messages, around the bytes that are stored."""
        threads = await self._threads(request)
        asked = read_query(request, Range)
        key = check_state_key(request.path_params["state_key"])
        thread = await threads.get_by_key(key)
        if thread is None:
            return json_response(EmptyHistory(key, []))
        first, last = asked.of(thread.message_count)
        messages = await threads.messages(thread.id, first=first, last=last)
        active = await self._threadline.store.scoped(threads.scope).active_turns(thread.id)
        # A reply that goes on is unfinished as well: its stream brings all of it.
        unfinished = {reply_id(turn.id) for turn in active}
        messages = [message for message in messages if message.id not in unfinished]
        history = ThreadHistory(**thread_fields(thread), active=bool(active), first_seq=first, messages=[])
        return messages_response(history, messages)

    @operation(
        "changeThread",
        "Rename or archive a thread, or set its metadata",
        ResponseSpec(200, "The thread as it is now.", ThreadInfo),
        tag="threads",
        body=Body(Changes, {"rename": {"title": "A week in Lisbon"}, "archive": {"archived": True}}, required=False),
        errors=(errors.NotFound, errors.InvalidName, errors.InvalidText),
        needs="member",
    )
    async def change(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        asked = await read_body(request, Changes)
        changes = ThreadChanges(title=asked.title, archived=asked.archived, metadata=asked.metadata)
        return json_response(thread_info(await threads.update(thread.id, changes)))

    @operation(
        "deleteThread",
        "Delete a thread",
        ResponseSpec(200, "It is gone, or was.", OkResponse),
        tag="threads",
        description="A turn that runs on it is stopped. The key is free: the next message to it begins a new thread.",
        errors=(errors.InvalidName,),
        needs="member",
    )
    async def delete(self, request: Request) -> Response:
        """Twice is fine. A turn that runs on the thread is stopped: its answer has no place any more."""
        threads = await self._threads(request)
        thread = await threads.get_by_key(request.path_params["state_key"])
        if thread is not None:
            active = await self._threadline.store.scoped(threads.scope).active_turns(thread.id)
            await threads.delete(thread.id)
            await stop_turns(self._threadline.runner, self._threadline.streams, threads.scope, active)
        return json_response(OkResponse(True))

    @operation(
        "branchThread",
        "Begin a new thread from a point of this one",
        ResponseSpec(201, "The new thread.", ThreadInfo, links=_going_on("$response.body#/stateKey")),
        tag="threads",
        description="Nothing is copied, whatever the length. Without `at` it begins at the end.",
        body=Body(
            Branching, {"here": {}, "earlier": {"at": 1, "title": "Or Porto", "stateKey": "porto"}}, required=False
        ),
        errors=(errors.NotFound, errors.InvalidName, errors.InvalidText, errors.DuplicateId),
        needs="member",
    )
    async def branch(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        asked = await read_body(request, Branching)
        new = NewThread(title=asked.title, state_key=asked.state_key)
        return json_response(thread_info(await threads.branch(thread.id, new, at=asked.at)), 201)

    @operation(
        "listTimelines",
        "List the versions of a thread",
        ResponseSpec(
            200,
            "Every timeline the thread has stood on.",
            TimelinesResponse,
            links=(Link("switchTimeline", {"stateKey": "$request.path.stateKey"}, {"timelineId": _LAST_TIMELINE}),),
        ),
        tag="threads",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def timelines(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        found = await threads.timelines(thread.id)
        return json_response(TimelinesResponse([timeline_info(timeline, thread) for timeline in found]))

    @operation(
        "switchTimeline",
        "Go back to another version of a thread",
        ResponseSpec(200, "The thread as it is now.", ThreadInfo),
        tag="threads",
        body=Body(Switching, {"back": {"timelineId": "a timeline of this thread"}}),
        errors=(errors.NotFound, errors.InvalidName),
        needs="member",
    )
    async def switch(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        asked = await read_body(request, Switching)
        return json_response(thread_info(await threads.switch(thread.id, asked.timeline_id)))

    @operation(
        "undo",
        "Take the last question and its answer back",
        ResponseSpec(200, "The thread as it is now, on a new timeline.", ThreadInfo),
        tag="threads",
        headers=("Idempotency-Key",),
        errors=(errors.NotFound, errors.InvalidName, errors.KeyReused),
        needs="member",
    )
    async def undo(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        return json_response(thread_info(await threads.undo(thread.id, key=idempotency_key(request))))

    async def _threads(self, request: Request) -> Threads:
        return self._threadline.threads(await self._who_asks(request))

    async def _found(self, request: Request) -> tuple[Threads, Thread]:
        threads = await self._threads(request)
        return threads, await find_by_key(threads, request.path_params["state_key"])


async def find_by_key(threads: Threads, state_key: str) -> Thread:
    found = await threads.get_by_key(state_key)
    if found is None:
        raise NotFound("thread", state_key)
    return found
