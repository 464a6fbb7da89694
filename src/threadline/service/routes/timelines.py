"""The routes that explain a thread: its turns, what an agent was shown in one, its versions, and its places.

They only read. What an agent was shown is put together from the log, which never changes, and from the texts that were
kept with the turn.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET
from msgspec import UnsetType as Unset
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import (
    ApiStruct,
    Id,
    MessageInfo,
    Moment,
    SavedPointInfo,
    TimelineInfo,
    TurnInfo,
    TurnsResponse,
)
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.errors import NotFound
from threadline.core.ids import check_id
from threadline.core.messages import Message, Role
from threadline.core.threads import Thread, Timeline
from threadline.core.turns import Surface, Turn
from threadline.service.auth.callers import WhoAsks
from threadline.service.operation import ResponseSpec, operation
from threadline.service.requests import Shape, read_query
from threadline.service.responses import (
    json_response,
    messages_response,
    saved_point_info,
    timeline_info,
    turn_fields,
    turn_info,
)
from threadline.service.routes.threads import find_by_key
from threadline.threads.user_threads import Threads

_THREAD = "/api/v1/ai/threads/{state_key}"
_SHOWN_TEXT = 200
_EXPLAINED = 200


class TurnListing(Shape, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100


class Which(Shape, frozen=True):
    """Without a turn, the thread's last one."""

    turn_id: Id | Unset = UNSET


class Seen(TurnInfo, frozen=True, kw_only=True):
    """What the agent was given: the system texts, then the messages of its window and the request."""

    tokens: int
    messages_left_out: int
    system: list[str]
    messages: list[MessageInfo]


class FirstMessage(ApiStruct, frozen=True):
    id: str
    role: Role
    text: str


class DrawnTimeline(TimelineInfo, frozen=True, kw_only=True):
    """`begins` is its first message of its own. `repeats` says that this is the question that stands in that place on
    its parent: it is the answers that differ."""

    begins: FirstMessage | None = None
    repeats: bool = False


class Lineage(ApiStruct, frozen=True):
    timelines: list[DrawnTimeline]
    saves: list[SavedPointInfo]


class PlaceShown(ApiStruct, frozen=True):
    surface: Surface
    place: str
    updated_at: Moment
    label: str | None = None


class Places(ApiStruct, frozen=True):
    places: list[PlaceShown]


class LineageRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [
            Route(_THREAD + "/turns", self.turns, methods=["GET"]),
            Route(_THREAD + "/seen", self.seen, methods=["GET"]),
            Route(_THREAD + "/lineage", self.lineage, methods=["GET"]),
            Route(_THREAD + "/places", self.places, methods=["GET"]),
        ]

    @operation(
        "listTurns",
        "List a thread's turns",
        ResponseSpec(200, "Newest first, whichever timeline they were on.", TurnsResponse),
        tag="threads",
        query=TurnListing,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def turns(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        asked = read_query(request, TurnListing)
        turns = await self._threadline.store.scoped(threads.scope).turns(thread.id, limit=asked.limit)
        return json_response(TurnsResponse([turn_info(turn) for turn in turns]))

    @operation(
        "readSeen",
        "See what an agent was shown in a turn",
        ResponseSpec(200, "What the prompt was made of. A turn that still runs has no system texts yet.", Seen),
        tag="threads",
        query=Which,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def seen(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        turn = await self._turn(threads, thread, read_query(request, Which).turn_id)
        shown = Seen(
            **turn_fields(turn),
            tokens=turn.seen.get("tokens", 0),
            messages_left_out=turn.seen.get("messages_left_out", 0),
            system=turn.seen.get("system", []),
            messages=[],
        )
        return messages_response(shown, await self._shown(threads, thread, turn))

    async def _turn(self, threads: Threads, thread: Thread, turn_id: str | Unset) -> Turn:
        tx = self._threadline.store.scoped(threads.scope)
        if turn_id is not UNSET:
            found = await tx.turn(check_id("turn", turn_id))
        else:
            found = next(iter(await tx.turns(thread.id, limit=1)), None)
        if found is None or found.thread_id != thread.id:
            raise NotFound("turn", "" if turn_id is UNSET else turn_id)
        return found

    async def _shown(self, threads: Threads, thread: Thread, turn: Turn) -> list[Message]:
        """The messages of the prompt. The turn may have been on a timeline that the thread has left: the one whose
        message at the request's place is this turn's."""
        first, last = turn.seen.get("first_seq"), turn.request_seq
        if last is None:
            return []
        for timeline in reversed(await threads.timelines(thread.id)):
            asked = await _message_at(threads, thread, timeline.id, last)
            if asked is not None and asked.turn_id == turn.id:
                start = last if first is None else first
                return await threads.messages(thread.id, first=start, last=last, timeline_id=timeline.id)
        return []

    @operation(
        "readLineage",
        "See a thread's versions",
        ResponseSpec(200, "Every timeline it stood on, oldest first, and the points saved on them.", Lineage),
        tag="threads",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def lineage(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        timelines = await threads.timelines(thread.id)
        ids = {timeline.id for timeline in timelines}
        saved = [saved_point_info(each) for each in await threads.saved_points() if each.point.timeline_id in ids]
        drawn = [await self._drawn(threads, thread, timeline, ids) for timeline in timelines[-_EXPLAINED:]]
        return json_response(Lineage(drawn, saved))

    async def _drawn(self, threads: Threads, thread: Thread, timeline: Timeline, ids: set[str]) -> DrawnTimeline:
        parent = timeline.parent
        first = 0 if parent is None else parent.seq + 1
        begins = await _message_at(threads, thread, timeline.id, first)
        repeats = False
        if begins is not None and parent is not None and parent.timeline_id in ids:
            replaced = await _message_at(threads, thread, parent.timeline_id, first)
            repeats = replaced is not None and replaced.parts_json == begins.parts_json
        return DrawnTimeline(
            **msgspec.structs.asdict(timeline_info(timeline, thread)),
            begins=None if begins is None else FirstMessage(begins.id, begins.role, begins.text[:_SHOWN_TEXT]),
            repeats=repeats,
        )

    @operation(
        "listPlaces",
        "List the places where a thread goes on",
        ResponseSpec(200, "Rooms, chats and channels that are bound to it.", Places),
        tag="threads",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def places(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        bound = await self._threadline.store.scoped(threads.scope).bindings(thread_id=thread.id)
        return json_response(
            Places([PlaceShown(each.surface, each.place, each.updated_at, each.label) for each in bound])
        )

    async def _found(self, request: Request) -> tuple[Threads, Thread]:
        threads = self._threadline.threads(await self._who_asks(request))
        return threads, await find_by_key(threads, request.path_params["state_key"])


async def _message_at(threads: Threads, thread: Thread, timeline_id: str, seq: int) -> Message | None:
    found = await threads.messages(thread.id, first=seq, last=seq, timeline_id=timeline_id)
    return found[0] if found else None
