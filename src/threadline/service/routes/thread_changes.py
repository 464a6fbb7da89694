"""The route that tells a page when its thread went on elsewhere: in another tab, from a terminal, from a channel.

A page says which head it shows and is answered as soon as the thread has another one, or after a while that it has
not. Who waits is woken by the store's watch and looks then. They look now and then besides, because a watch is a hint,
and never too often, because one process's commits may wake everybody in another.
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
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.ids import check_state_key
from threadline.core.threads import Scope
from threadline.ports import Watch
from threadline.service.auth.callers import WhoAsks
from threadline.service.operation import ResponseSpec, operation
from threadline.service.requests import Shape, read_query
from threadline.service.responses import json_response

SLOW_LOOK_SECONDS = 10.0
SPACING_SECONDS = 0.4
_LONGEST_SECONDS = 25


class Following(Shape, frozen=True):
    """`seen` is the version that is shown; `wait` how many seconds to wait for another."""

    seen: str | Unset = UNSET
    wait: Annotated[int, msgspec.Meta(ge=0, le=_LONGEST_SECONDS)] = 0


class Head(ApiStruct, frozen=True):
    """Where a thread stands. `version` changes with everything that a page shows; `turnId` is the turn that runs."""

    version: str
    message_count: int
    timeline_id: str | None = None
    turn_id: str | None = None


class Look(NamedTuple):
    """`subject` is what to watch for another head: a thread that becomes another has another version."""

    head: Head
    subject: str


class FollowingRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [Route("/api/v1/ai/threads/{state_key}/head", self.head, methods=["GET"])]

    @operation(
        "readHead",
        "Wait until a thread went on elsewhere",
        ResponseSpec(200, "Where it stands now, if that is not what was seen.", Head),
        ResponseSpec(204, "It stands where it stood."),
        tag="threads",
        query=Following,
        errors=(errors.InvalidName,),
    )
    async def head(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        asked = read_query(request, Following)
        state_key = check_state_key(request.path_params["state_key"])
        until = asyncio.get_running_loop().time() + asked.wait
        look = await self.look(scope, state_key)
        if look.head.version != asked.seen:
            return json_response(look.head)
        if asked.wait:
            another = await self._another(request, scope, state_key, look, until)
            if another is not None:
                return json_response(another)
        return Response(status_code=204)

    async def _another(self, request: Request, scope: Scope, state_key: str, seen: Look, until: float) -> Head | None:
        """The first head that is not the seen one. None after `until`, or once nobody waits for it any more."""
        clock = asyncio.get_running_loop().time
        async with _leaving(request) as leaving, self._threadline.store.watch(scope, seen.subject) as watch:
            while True:
                # What came before the watch did not ring it, so there is a look before the first wait.
                look = await self.look(scope, state_key)
                if look.head.version != seen.head.version:
                    return look.head
                earliest = min(clock() + SPACING_SECONDS, until)
                await _ring(watch, min(SLOW_LOOK_SECONDS, until - clock()), leaving)
                if clock() < earliest:
                    await asyncio.wait(leaving, timeout=earliest - clock(), return_when=asyncio.FIRST_COMPLETED)
                if clock() >= until or any(task.done() for task in leaving):
                    return None

    async def look(self, scope: Scope, state_key: str) -> Look:
        """A thread that is not there has a version too: it may come."""
        tx = self._threadline.store.scoped(scope)
        thread = await tx.thread_by_key(state_key)
        if thread is None:
            return Look(Head("none", 0), state_key)
        try:
            active = await tx.active_turns(thread.id)
        except errors.NotFound:
            # It was deleted in between.
            return Look(Head("none", 0), state_key)
        turn_id = active[0].id if active else None
        shown = (thread.id, thread.timeline_id, thread.message_count, thread.title, turn_id)
        version = hashlib.sha256(msgspec.json.encode(shown)).hexdigest()[:24]
        return Look(Head(version, thread.message_count, thread.timeline_id, turn_id), thread.id)


@asynccontextmanager
async def _leaving(request: Request) -> AsyncIterator[list[asyncio.Task[object]]]:
    """Tasks of which one is done once the caller is gone, or the server ends and waits only for those who wait."""
    ending: asyncio.Event | None = getattr(request.app.state, "ending", None)
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(_until_gone(request.receive))]
    if ending is not None:
        tasks.append(asyncio.create_task(ending.wait()))
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ring(watch: Watch, seconds: float, leaving: list[asyncio.Task[object]]) -> None:
    """Until it rings, but no longer than so, nor for somebody who has left."""
    ringing = asyncio.create_task(watch.wait(seconds))
    try:
        await asyncio.wait([ringing, *leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        ringing.cancel()
        await asyncio.gather(ringing, return_exceptions=True)
