"""Timelines: branch, move, undo, switch, save and load, each one or two small rows.

A thread that goes on from an earlier point gets a new timeline whose lineage is worked out once, here; no message is
copied, and the timeline it leaves stays as it was. Saved points are the owner's names for points.
"""

from __future__ import annotations

from threadline.core.errors import InvalidInput, NotFound
from threadline.core.ids import check_name
from threadline.core.threads import NewThread, Point, SavedPoint, Thread, Timeline
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Verbs
from threadline.stores.sqlite.heads import Head, add_timeline, count_of, find_head, head_on
from threadline.stores.sqlite.lineage import ancestors_of_branch
from threadline.stores.sqlite.messages import newest_turns
from threadline.stores.sqlite.session import Session
from threadline.stores.sqlite.threads import add_thread, existing_thread

_SQL = load_queries(__package__, "queries/timelines.sql")


class TimelineVerbs(Verbs):
    async def branch(self, thread_id: str, new: NewThread, *, at: int | None = None) -> Thread:
        return await self._engine.write(branch, thread_id, new, at)

    async def move(self, thread_id: str, seq: int, *, timeline_id: str | None = None) -> Thread:
        return await self._engine.write(move, thread_id, seq, timeline_id)

    async def undo(self, thread_id: str) -> Thread:
        return await self._engine.write(undo, thread_id)

    async def switch(self, thread_id: str, timeline_id: str) -> Thread:
        return await self._engine.write(switch, thread_id, timeline_id)

    async def timelines(self, thread_id: str) -> list[Timeline]:
        return await self._engine.read(list_timelines, thread_id)

    async def save(self, thread_id: str, name: str, *, at: int | None = None) -> SavedPoint:
        return await self._engine.write(save, thread_id, name, at)

    async def load(self, thread_id: str, name: str) -> Thread:
        return await self._engine.write(load, thread_id, name)

    async def saved_points(self) -> list[SavedPoint]:
        return await self._engine.read(list_saved_points)

    async def saved_point(self, name: str) -> SavedPoint | None:
        return await self._engine.read(find_saved_point, name)

    async def forget_saved_point(self, name: str) -> bool:
        return await self._engine.write(forget_saved_point, name)


def branch(s: Session, thread_id: str, new: NewThread, at: int | None) -> Thread:
    source = existing_thread(s, thread_id)
    head = find_head(s, thread_id)
    seq = _within(head, at)
    inherited = {
        field: getattr(source, field)
        for field in ("agent_id", "model", "system_prompt", "working_dir")
        if getattr(new, field) is None
    }
    given = {field: getattr(new, field) for field in new.__struct_fields__}
    return add_thread(
        s,
        NewThread(**(given | inherited)),
        parent=Point(head.timeline_id, seq),
        ancestors=ancestors_of_branch(head.timeline_no, seq, head.ancestors),
        message_count=seq + 1,
    )


def _within(head: Head, at: int | None) -> int:
    """The seq that was asked for; by default the last. InvalidInput past the head."""
    if at is None:
        return head.message_count - 1
    if not -1 <= at < head.message_count:
        raise InvalidInput(f"there is no seq {at} in a history of {head.message_count} messages")
    return at


def move(s: Session, thread_id: str, seq: int, timeline_id: str | None) -> Thread:
    head = head_on(s, thread_id, timeline_id)
    return _go_on_from(s, thread_id, head, _within(head, seq))


def undo(s: Session, thread_id: str) -> Thread:
    head = find_head(s, thread_id)
    turn = newest_turns(s, thread_id, 1)
    if not turn or turn[-1][1] != 0:
        raise InvalidInput("there is nothing to undo: this history has no user message")
    return _go_on_from(s, thread_id, head, turn[-1][3] - 1)


def _go_on_from(s: Session, thread_id: str, origin: Head, seq: int) -> Thread:
    """`origin` says which thread moves, and on which timeline the point is."""
    ancestors = ancestors_of_branch(origin.timeline_no, seq, origin.ancestors)
    timeline = add_timeline(s, origin.thread_no, Point(origin.timeline_id, seq), ancestors, origin.owner_id)
    s.run(_SQL["move_thread"], (*timeline, seq + 1, s.now_us(), origin.thread_no))
    return existing_thread(s, thread_id)


def switch(s: Session, thread_id: str, timeline_id: str) -> Thread:
    there = head_on(s, thread_id, timeline_id)
    thread = existing_thread(s, thread_id)
    if there.timeline_id == thread.timeline_id:
        return thread
    place = (there.timeline_no, there.timeline_id, there.message_count)
    s.run(_SQL["move_thread"], (*place, s.now_us(), there.thread_no))
    return existing_thread(s, thread_id)


def list_timelines(s: Session, thread_id: str) -> list[Timeline]:
    with s.snapshot():
        head = find_head(s, thread_id)
        return [
            rows.timeline((id, thread_id, parent_id, parent_seq, count_of(s, number, ancestors), created_us))
            for number, id, parent_id, parent_seq, ancestors, created_us in s.rows(
                _SQL["list_timelines"], (head.thread_no,)
            )
        ]


def save(s: Session, thread_id: str, name: str, at: int | None) -> SavedPoint:
    name = check_name("saved point", name)
    head = find_head(s, thread_id)
    place = (head.timeline_no, _within(head, at))
    s.run(_SQL["save_point"], (s.tenant_id, head.owner_id, name, *place, s.now_us()))
    row = s.row(_SQL["find_saved_point"], (s.tenant_id, head.owner_id, name))
    assert row is not None
    return rows.saved_point(row)


def load(s: Session, thread_id: str, name: str) -> Thread:
    head = find_head(s, thread_id)
    place = s.row(_SQL["find_saved_place"], (s.tenant_id, head.owner_id, name))
    if place is None:
        raise NotFound("saved point", name)
    timeline_no, seq = place
    lineage = s.row(_SQL["find_lineage"], (timeline_no,))
    assert lineage is not None
    number, id, ancestors = lineage
    origin = head._replace(timeline_no=number, timeline_id=id, ancestors=ancestors)
    return _go_on_from(s, thread_id, origin, seq)


def list_saved_points(s: Session) -> list[SavedPoint]:
    return [rows.saved_point(row) for row in s.rows(_SQL["list_saved_points"], (s.tenant_id, s.user_id))]


def find_saved_point(s: Session, name: str) -> SavedPoint | None:
    row = s.row(_SQL["find_saved_point"], (s.tenant_id, s.user_id, name))
    return None if row is None else rows.saved_point(row)


def forget_saved_point(s: Session, name: str) -> bool:
    return s.run(_SQL["forget_saved_point"], (s.tenant_id, s.user_id, name)) > 0
