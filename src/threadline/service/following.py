"""The route that tells a page when its thread went on elsewhere: in another tab, from a terminal, from a channel.

A page says which head it shows and is answered as soon as the thread has another one, or after a while that it has
not. Between two looks nothing is held but a timer, and a caller that went away is let go at the next look.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Annotated

import msgspec
from msgspec import UNSET
from msgspec import UnsetType as Unset
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.ids import check_state_key
from threadline.core.threads import Scope
from threadline.service.answers import Shown, answer
from threadline.service.callers import WhoAsks
from threadline.service.describing import Answer, operation
from threadline.service.reading import Shape, read_query

_LOOK_SECONDS = 0.4
_LONGEST_SECONDS = 25


class Following(Shape, frozen=True):
    """`seen` is the version that is shown; `wait` how many seconds to wait for another."""

    seen: str | Unset = UNSET
    wait: Annotated[int, msgspec.Meta(ge=0, le=_LONGEST_SECONDS)] = 0


class Head(Shown, frozen=True):
    """Where a thread stands. `version` changes with everything that a page shows; `turnId` is the turn that runs."""

    version: str
    message_count: int
    timeline_id: str | None = None
    turn_id: str | None = None


class FollowingRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [Route("/api/v1/ai/threads/{state_key}/head", self.head, methods=["GET"])]

    @operation(
        "readHead",
        "Wait until a thread went on elsewhere",
        Answer(200, "Where it stands now, if that is not what was seen.", Head),
        Answer(204, "It stands where it stood."),
        tag="threads",
        query=Following,
        errors=(errors.InvalidName,),
    )
    async def head(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        asked = read_query(request, Following)
        state_key = check_state_key(request.path_params["state_key"])
        loop = asyncio.get_running_loop()
        until = loop.time() + asked.wait
        while True:
            head = await self._head(scope, state_key)
            if head.version != asked.seen:
                return answer(head)
            if loop.time() >= until or _is_ending(request) or await request.is_disconnected():
                return Response(status_code=204)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _head(self, scope: Scope, state_key: str) -> Head:
        """A thread that is not there has a version too: it may come."""
        tx = self._threadline.store.scoped(scope)
        thread = await tx.thread_by_key(state_key)
        if thread is None:
            return Head("none", 0)
        active = await tx.active_turns(thread.id)
        turn_id = active[0].id if active else None
        shown = (thread.id, thread.timeline_id, thread.message_count, thread.title, turn_id)
        version = hashlib.sha256(msgspec.json.encode(shown)).hexdigest()[:24]
        return Head(version, thread.message_count, thread.timeline_id, turn_id)


def _is_ending(request: Request) -> bool:
    """Whether the server is about to end, and waits only for those who wait for it."""
    ending: asyncio.Event | None = getattr(request.app.state, "ending", None)
    return ending is not None and ending.is_set()
