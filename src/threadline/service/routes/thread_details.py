"""Read-only details of a thread: its turns, the prompt of a turn, its versions, and where it is bound.

A turn's prompt is rebuilt from the stored messages, which never change, and from the system texts stored with the turn.
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
from threadline.core import errors
from threadline.core.errors import NotFound
from threadline.core.ids import check_id
from threadline.core.messages import Message, Role
from threadline.core.threads import Thread, Timeline
from threadline.core.turns import Surface, Turn
from threadline.messaging.home_threads import is_home
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_query
from threadline.service.http.responses import (
    json_response,
    messages_response,
    saved_point_info,
    timeline_info,
    turn_fields,
    turn_info,
)
from threadline.service.openapi.operation import ResponseSpec, operation
from threadline.service.routes.threads import find_thread
from threadline.threads.user_threads import Threads

_THREAD = "/api/v1/ai/threads/{state_key}"
_EXCERPT_LENGTH = 200
_MAX_VERSIONS = 200


class ListTurnsQuery(RequestStruct, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100


class TurnQuery(RequestStruct, frozen=True):
    """The thread's last turn by default."""

    turn_id: Id | Unset = UNSET


class TurnPromptResponse(TurnInfo, frozen=True, kw_only=True):
    """What the agent got: the system texts, then the messages of its window and the request."""

    tokens: int
    messages_left_out: int
    system: list[str]
    messages: list[MessageInfo]


class FirstMessage(ApiStruct, frozen=True):
    id: str
    role: Role
    text: str


class VersionInfo(TimelineInfo, frozen=True, kw_only=True):
    """`begins` is the first message that is not on the parent timeline. `repeats` means that the parent has the same
    question at that seq, so only the answers differ."""

    begins: FirstMessage | None = None
    repeats: bool = False


class LineageResponse(ApiStruct, frozen=True):
    timelines: list[VersionInfo]
    saves: list[SavedPointInfo]


class PlaceInfo(ApiStruct, frozen=True):
    surface: Surface
    place: str
    updated_at: Moment
    label: str | None = None


class PlacesResponse(ApiStruct, frozen=True):
    places: list[PlaceInfo]


class ThreadDetailRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route(_THREAD + "/turns", self.list_turns, methods=["GET"]),
            Route(_THREAD + "/seen", self.read_prompt, methods=["GET"]),
            Route(_THREAD + "/lineage", self.read_versions, methods=["GET"]),
            Route(_THREAD + "/places", self.list_places, methods=["GET"]),
        ]

    @operation(
        "listTurns",
        "List a thread's turns",
        ResponseSpec(200, "The turns of all timelines, newest first.", TurnsResponse),
        tag="threads",
        query=ListTurnsQuery,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def list_turns(self, request: Request) -> Response:
        threads, thread = await self._find_thread(request)
        query = read_query(request, ListTurnsQuery)
        turns = await self._threadline.store.scoped(threads.scope).turns(thread.id, limit=query.limit)
        return json_response(TurnsResponse([turn_info(turn) for turn in turns]))

    @operation(
        "readPrompt",
        "Read the prompt of a turn",
        ResponseSpec(
            200, "What the agent got. The system texts are added when the turn has ended.", TurnPromptResponse
        ),
        tag="threads",
        query=TurnQuery,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def read_prompt(self, request: Request) -> Response:
        threads, thread = await self._find_thread(request)
        turn = await self._turn(threads, thread, read_query(request, TurnQuery).turn_id)
        prompt = TurnPromptResponse(
            **turn_fields(turn),
            tokens=turn.seen.get("tokens", 0),
            messages_left_out=turn.seen.get("messages_left_out", 0),
            system=turn.seen.get("system", []),
            messages=[],
        )
        return messages_response(prompt, await self._prompt_messages(threads, thread, turn))

    async def _turn(self, threads: Threads, thread: Thread, turn_id: str | Unset) -> Turn:
        session = self._threadline.store.scoped(threads.scope)
        if turn_id is not UNSET:
            found = await session.turn(check_id("turn", turn_id))
        else:
            found = next(iter(await session.turns(thread.id, limit=1)), None)
        if found is None or found.thread_id != thread.id:
            raise NotFound("turn", "" if turn_id is UNSET else turn_id)
        return found

    async def _prompt_messages(self, threads: Threads, thread: Thread, turn: Turn) -> list[Message]:
        """The messages of the prompt. The turn may not be on the current timeline: its timeline is the one that has the
        turn's message at the seq of the request."""
        first, last = turn.seen.get("first_seq"), turn.request_seq
        if last is None:
            return []
        for timeline in reversed(await threads.timelines(thread.id)):
            request_message = await _message_at(threads, thread, timeline.id, last)
            if request_message is not None and request_message.turn_id == turn.id:
                start = last if first is None else first
                return await threads.messages(thread.id, first=start, last=last, timeline_id=timeline.id)
        return []

    @operation(
        "readLineage",
        "Read the versions of a thread",
        ResponseSpec(200, "Its timelines, oldest first, and the points saved on them.", LineageResponse),
        tag="threads",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def read_versions(self, request: Request) -> Response:
        threads, thread = await self._find_thread(request)
        timelines = await threads.timelines(thread.id)
        ids = {timeline.id for timeline in timelines}
        saved = [saved_point_info(each) for each in await threads.saved_points() if each.point.timeline_id in ids]
        versions = [await self._version(threads, thread, timeline, ids) for timeline in timelines[-_MAX_VERSIONS:]]
        return json_response(LineageResponse(versions, saved))

    async def _version(self, threads: Threads, thread: Thread, timeline: Timeline, ids: set[str]) -> VersionInfo:
        parent = timeline.parent
        first = 0 if parent is None else parent.seq + 1
        begins = await _message_at(threads, thread, timeline.id, first)
        repeats = False
        if begins is not None and parent is not None and parent.timeline_id in ids:
            replaced = await _message_at(threads, thread, parent.timeline_id, first)
            repeats = replaced is not None and replaced.parts_json == begins.parts_json
        return VersionInfo(
            **msgspec.structs.asdict(timeline_info(timeline, thread)),
            begins=None if begins is None else FirstMessage(begins.id, begins.role, begins.text[:_EXCERPT_LENGTH]),
            repeats=repeats,
        )

    @operation(
        "listPlaces",
        "List the places that a thread is bound to",
        ResponseSpec(200, "Rooms, chats and channels of platforms.", PlacesResponse),
        tag="threads",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def list_places(self, request: Request) -> Response:
        threads, thread = await self._find_thread(request)
        bound = await self._threadline.store.scoped(threads.scope).bindings(thread_id=thread.id)
        places = [each for each in bound if not is_home(each)]
        return json_response(
            PlacesResponse([PlaceInfo(each.surface, each.place, each.updated_at, each.label) for each in places])
        )

    async def _find_thread(self, request: Request) -> tuple[Threads, Thread]:
        threads = self._threadline.threads(scope_of(request))
        return threads, await find_thread(threads, request.path_params["state_key"])


async def _message_at(threads: Threads, thread: Thread, timeline_id: str, seq: int) -> Message | None:
    found = await threads.messages(thread.id, first=seq, last=seq, timeline_id=timeline_id)
    return found[0] if found else None
