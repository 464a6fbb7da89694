"""The routes that explain a thread: its turns, what an agent was shown in one, its versions, and its places.

They only read. What an agent was shown is put together from the log, which never changes, and from the texts that were
kept with the turn.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.bootstrap import Threadline
from threadline.core.channels import Binding
from threadline.core.errors import NotFound
from threadline.core.ids import check_id
from threadline.core.messages import Message, to_ui
from threadline.core.threads import Thread, Timeline
from threadline.core.turns import Turn
from threadline.service.answers import answer, moment, present, saved_point_json, timeline_json
from threadline.service.callers import WhoAsks
from threadline.service.reading import Shape, read_query
from threadline.service.threads import find_by_key
from threadline.usecases.threads import Threads

_THREAD = "/api/v1/ai/threads/{state_key}"
_SHOWN_TEXT = 200
_EXPLAINED = 200


class Listing(Shape, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100


class LineageRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [
            Route(_THREAD + "/turns", self.turns, methods=["GET"]),
            Route(_THREAD + "/turns/{turn_id}/seen", self.seen, methods=["GET"]),
            Route(_THREAD + "/lineage", self.lineage, methods=["GET"]),
            Route(_THREAD + "/places", self.places, methods=["GET"]),
        ]

    async def turns(self, request: Request) -> Response:
        """Newest first, whichever timeline they were on."""
        threads, thread = await self._found(request)
        asked = read_query(request, Listing)
        turns = await self._threadline.store.scoped(threads.scope).turns(thread.id, limit=asked.limit)
        return answer({"turns": [_turn_json(turn) for turn in turns]})

    async def seen(self, request: Request) -> Response:
        """The system texts and the messages that an agent was given. A turn that still runs has not said yet."""
        threads, thread = await self._found(request)
        turn_id = check_id("turn", request.path_params["turn_id"])
        turn = await self._threadline.store.scoped(threads.scope).turn(turn_id)
        if turn is None or turn.thread_id != thread.id:
            raise NotFound("turn", turn_id)
        shown = await self._shown(threads, thread, turn)
        body = {
            **_turn_json(turn),
            "system": turn.seen.get("system", []),
            "messages": [msgspec.Raw(message) for message in shown],
            "messagesLeftOut": turn.seen.get("messages_left_out", 0),
            "tokens": turn.seen.get("tokens", 0),
        }
        return answer(body)

    async def _shown(self, threads: Threads, thread: Thread, turn: Turn) -> list[bytes]:
        """The messages of the prompt. The turn may have been on a timeline that the thread has left: the one whose
        message at the request's place is this turn's."""
        first, last = turn.seen.get("first_seq"), turn.request_seq
        if last is None:
            return []
        for timeline in reversed(await threads.timelines(thread.id)):
            if timeline.message_count <= last:
                continue
            asked = await threads.messages(thread.id, first=last, last=last, timeline_id=timeline.id)
            if asked and asked[0].turn_id == turn.id:
                start = last if first is None else first
                found = await threads.messages(thread.id, first=start, last=last, timeline_id=timeline.id)
                return [to_ui(message) for message in found]
        return []

    async def lineage(self, request: Request) -> Response:
        """Every timeline with the first message of its own, and the points that were saved on them. `repeats` says
        that it begins with the question that stands in that place on its parent: its answer is another one."""
        threads, thread = await self._found(request)
        timelines = await threads.timelines(thread.id)
        ids = {timeline.id for timeline in timelines}
        saved = [saved_point_json(each) for each in await threads.saved_points() if each.point.timeline_id in ids]
        drawn = [await self._drawn(threads, thread, timeline, ids) for timeline in timelines[-_EXPLAINED:]]
        return answer({"timelines": drawn, "saves": saved})

    async def _drawn(self, threads: Threads, thread: Thread, timeline: Timeline, ids: set[str]) -> dict[str, Any]:
        first = 0 if timeline.parent is None else timeline.parent.seq + 1
        begins = await _message_at(threads, thread, timeline.id, first)
        drawn = timeline_json(timeline, thread)
        if begins is None:
            return drawn
        drawn["begins"] = {"id": begins.id, "role": begins.role, "text": begins.text[:_SHOWN_TEXT]}
        if timeline.parent is not None and timeline.parent.timeline_id in ids:
            replaced = await _message_at(threads, thread, timeline.parent.timeline_id, first)
            drawn["repeats"] = replaced is not None and replaced.parts_json == begins.parts_json
        return drawn

    async def places(self, request: Request) -> Response:
        threads, thread = await self._found(request)
        bound = await self._threadline.store.scoped(threads.scope).bindings(thread_id=thread.id)
        return answer({"places": [_place_json(binding) for binding in bound]})

    async def _found(self, request: Request) -> tuple[Threads, Thread]:
        threads = self._threadline.threads(await self._who_asks(request))
        return threads, await find_by_key(threads, request.path_params["state_key"])


async def _message_at(threads: Threads, thread: Thread, timeline_id: str, seq: int) -> Message | None:
    found = await threads.messages(thread.id, first=seq, last=seq, timeline_id=timeline_id)
    return found[0] if found else None


def _turn_json(turn: Turn) -> dict[str, Any]:
    return present(
        id=turn.id,
        status=turn.status,
        surface=turn.surface,
        agentId=turn.agent_id,
        error=turn.error,
        usage=turn.usage or None,
        requestSeq=turn.request_seq,
        replySeq=turn.reply_seq,
        createdAt=moment(turn.created_at),
        finishedAt=moment(turn.finished_at),
    )


def _place_json(binding: Binding) -> dict[str, Any]:
    return present(
        surface=binding.surface, place=binding.place, label=binding.label, updatedAt=moment(binding.updated_at)
    )
