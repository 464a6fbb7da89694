"""The routes of threads: list and search, read, change, delete, branch, and go back to another timeline.

Threads are named by their state key, which is the caller's own: another owner's thread under the same key is another
thread. Reading a key under which nothing was said yet gives an empty history, because a page opens before its first
message.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.bootstrap import Threadline
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.ids import check_state_key
from threadline.core.messages import to_ui
from threadline.core.threads import NewThread, Thread, ThreadChanges
from threadline.service.answers import answer, hit_json, raw_answer, thread_json, timeline_json
from threadline.service.callers import WhoAsks
from threadline.service.chat import stop_turns
from threadline.service.reading import Shape, read_body, read_query
from threadline.usecases.threads import Threads

Position: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=2**53)] | str
"""A message, by its seq or its id."""

_THREADS = "/api/v1/ai/threads"
_THREAD = _THREADS + "/{state_key}"


class Listing(Shape, frozen=True):
    limit: Annotated[int, msgspec.Meta(le=2**53)] | None = None
    offset: Annotated[int, msgspec.Meta(le=2**53)] = 0
    cursor: str | None = None
    q: str | None = None
    archived: bool = False


class Range(Shape, frozen=True):
    first: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    last: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    tail: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None

    def of(self, message_count: int) -> tuple[int, int | None]:
        """The seqs that are asked for: a range, or so many of the newest."""
        if self.tail is None:
            return self.first, self.last
        if self.first or self.last is not None:
            raise InvalidInput("ask for a range or for a tail, not for both")
        return max(0, message_count - self.tail), None


class Changes(Shape, frozen=True):
    title: str | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    metadata: dict[str, object] | msgspec.UnsetType = msgspec.UNSET


class Branching(Shape, frozen=True):
    at: Position | None = None
    title: str | None = None
    state_key: str | None = None


class Switching(Shape, frozen=True):
    timeline_id: str


class ThreadRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [
            Route(_THREADS, self.list_threads, methods=["GET"]),
            Route(_THREAD, self.read, methods=["GET"]),
            Route(_THREAD, self.change, methods=["PATCH"]),
            Route(_THREAD, self.delete, methods=["DELETE"]),
            Route(_THREAD + "/branch", self.branch, methods=["POST"]),
            Route(_THREAD + "/timelines", self.timelines, methods=["GET"]),
            Route(_THREAD + "/switch", self.switch, methods=["POST"]),
            Route(_THREAD + "/undo", self.undo, methods=["POST"]),
        ]

    async def list_threads(self, request: Request) -> Response:
        threads = await self._threads(request)
        asked = read_query(request, Listing)
        if asked.q is not None:
            if asked.cursor is not None:
                raise InvalidInput("a search is paged by offset, not by cursor")
            hits = await threads.search(asked.q, limit=20 if asked.limit is None else asked.limit, offset=asked.offset)
            return answer({"hits": [hit_json(hit) for hit in hits]})
        page = await threads.page(
            limit=50 if asked.limit is None else asked.limit,
            cursor=asked.cursor,
            offset=asked.offset,
            archived=asked.archived,
        )
        listed = {"threads": [thread_json(thread) for thread in page.items]}
        return answer(listed if page.next_cursor is None else {**listed, "nextCursor": page.next_cursor})

    async def read(self, request: Request) -> Response:
        """The history as UI messages, around the bytes that are stored."""
        threads = await self._threads(request)
        asked = read_query(request, Range)
        key = check_state_key(request.path_params["state_key"])
        thread = await threads.get_by_key(key)
        if thread is None:
            return answer({"stateKey": key, "messages": []})
        first, last = asked.of(thread.message_count)
        messages = await threads.messages(thread.id, first=first, last=last)
        active = await self._threadline.store.scoped(threads.scope).active_turns(thread.id)
        head = msgspec.json.encode({**thread_json(thread), "active": bool(active), "firstSeq": first})[:-1]
        return raw_answer(head + b',"messages":[' + b",".join(map(to_ui, messages)) + b"]}")

    async def change(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        asked = await read_body(request, Changes)
        changes = ThreadChanges(title=asked.title, archived=asked.archived, metadata=asked.metadata)
        return answer(thread_json(await threads.update(thread.id, changes)))

    async def delete(self, request: Request) -> Response:
        """Twice is fine. A turn that runs on the thread is stopped: its answer has no place any more."""
        threads = await self._threads(request)
        thread = await threads.get_by_key(request.path_params["state_key"])
        if thread is not None:
            active = await self._threadline.store.scoped(threads.scope).active_turns(thread.id)
            await threads.delete(thread.id)
            await stop_turns(self._threadline, threads.scope, active)
        return answer({"ok": True})

    async def branch(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        asked = await read_body(request, Branching)
        new = NewThread(title=asked.title, state_key=asked.state_key)
        return answer(thread_json(await threads.branch(thread.id, new, at=asked.at)), 201)

    async def timelines(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        found = await threads.timelines(thread.id)
        return answer({"timelines": [timeline_json(timeline, thread) for timeline in found]})

    async def switch(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        asked = await read_body(request, Switching)
        return answer(thread_json(await threads.switch(thread.id, asked.timeline_id)))

    async def undo(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        return answer(thread_json(await threads.undo(thread.id)))

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
