"""Long polling for changes of a thread: made in another tab, in a terminal or on a platform.

The caller sends the version it has; the response comes as soon as there is another one, or after `wait` seconds. While
waiting, the thread is read again when the store's watch wakes, and every few seconds besides, because a watch may miss
a change. Reads are spaced out, because the commits of one process may wake every waiting request of another.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec import UnsetType as Unset
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive

from threadline.api_types import ApiStruct
from threadline.core import errors
from threadline.core.ids import check_state_key
from threadline.core.threads import Scope
from threadline.ports import Watch
from threadline.service.context import ServiceContext, Shutdown
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_query
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import ResponseSpec, operation

# How long a change can stay unnoticed if the watch misses it.
POLL_SECONDS = 10.0
# At most one read in this time, however often the watch wakes.
MIN_READ_INTERVAL_SECONDS = 0.4
# Below the idle timeouts of common proxies, which start at 30 seconds.
_MAX_WAIT_SECONDS = 25


class HeadQuery(RequestStruct, frozen=True):
    """`seen` is the version that the caller has; `wait`, how many seconds to wait for another."""

    seen: str | Unset = UNSET
    wait: Annotated[int, msgspec.Meta(ge=0, le=_MAX_WAIT_SECONDS)] = 0


class HeadResponse(ApiStruct, frozen=True):
    """`version` changes whenever anything that a page shows changes. `turnId` is the running turn."""

    version: str
    message_count: int
    timeline_id: str | None = None
    turn_id: str | None = None


class Snapshot(NamedTuple):
    """`subject` is what to watch: the thread's id, or the state key while there is no thread."""

    head: HeadResponse
    subject: str


class ThreadChangeRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._store = context.threadline.store
        self._shutdown = context.shutdown

    def routes(self) -> list[Route]:
        return [Route("/api/v1/ai/threads/{state_key}/head", self.read_head, methods=["GET"])]

    @operation(
        "readHead",
        "Wait for a change of a thread",
        ResponseSpec(200, "The thread's head, if it is not the version in `seen`.", HeadResponse),
        ResponseSpec(204, "Nothing has changed."),
        tag="threads",
        query=HeadQuery,
        errors=(errors.InvalidName,),
    )
    async def read_head(self, request: Request) -> Response:
        scope = scope_of(request)
        query = read_query(request, HeadQuery)
        state_key = check_state_key(request.path_params["state_key"])
        deadline = asyncio.get_running_loop().time() + query.wait
        snapshot = await self.read_snapshot(scope, state_key)
        if snapshot.head.version != query.seen:
            return json_response(snapshot.head)
        if query.wait:
            head = await self._wait_for_change(request, scope, state_key, snapshot, deadline)
            if head is not None:
                return json_response(head)
        return Response(status_code=204)

    async def _wait_for_change(
        self, request: Request, scope: Scope, state_key: str, seen: Snapshot, deadline: float
    ) -> HeadResponse | None:
        """The first head that differs. None after `deadline`, or once the client disconnects or the server stops."""
        clock = asyncio.get_running_loop().time
        async with (
            _cancellation(request, self._shutdown) as cancellation,
            self._store.watch(scope, seen.subject) as watch,
        ):
            while True:
                # A change before the watch started did not wake it, so read once before the first wait.
                snapshot = await self.read_snapshot(scope, state_key)
                if snapshot.head.version != seen.head.version:
                    return snapshot.head
                next_read = min(clock() + MIN_READ_INTERVAL_SECONDS, deadline)
                await _wait(watch, min(POLL_SECONDS, deadline - clock()), cancellation)
                if clock() < next_read:
                    await asyncio.wait(cancellation, timeout=next_read - clock(), return_when=asyncio.FIRST_COMPLETED)
                if clock() >= deadline or any(task.done() for task in cancellation):
                    return None

    async def read_snapshot(self, scope: Scope, state_key: str) -> Snapshot:
        """A missing thread has a version too, so that a caller can wait until it is created."""
        session = self._store.scoped(scope)
        thread = await session.thread_by_key(state_key)
        if thread is None:
            return Snapshot(HeadResponse("none", 0), state_key)
        try:
            active = await session.active_turns(thread.id)
        except errors.NotFound:
            # Deleted between the two reads.
            return Snapshot(HeadResponse("none", 0), state_key)
        turn_id = active[0].id if active else None
        visible = (thread.id, thread.timeline_id, thread.message_count, thread.title, turn_id)
        version = hashlib.sha256(msgspec.json.encode(visible)).hexdigest()[:24]
        return Snapshot(HeadResponse(version, thread.message_count, thread.timeline_id, turn_id), thread.id)


@asynccontextmanager
async def _cancellation(request: Request, shutdown: Shutdown) -> AsyncIterator[list[asyncio.Task[object]]]:
    """Tasks of which one is done once the client has disconnected or the server stops."""
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(_wait_for_disconnect(request.receive)),
        asyncio.create_task(shutdown.started.wait()),
    ]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _wait(watch: Watch, seconds: float, cancellation: list[asyncio.Task[object]]) -> None:
    """Until the watch wakes, the time is over, or one of the tasks is done."""
    woken = asyncio.create_task(watch.wait(seconds))
    try:
        await asyncio.wait([woken, *cancellation], return_when=asyncio.FIRST_COMPLETED)
    finally:
        woken.cancel()
        await asyncio.gather(woken, return_exceptions=True)
