"""Timelines: branch, move, undo, switch, save and load, each one or two small rows.

A thread that continues from an earlier point gets a new timeline, whose lineage is computed once, here; no message is
copied, and the previous timeline does not change. Saved points are the owner's names for points.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from threadline.core.errors import NotFound, no_such_seq, nothing_to_undo
from threadline.core.ids import check_name
from threadline.core.messages import from_us
from threadline.core.threads import NewThread, Point, SavedPoint, Thread, Timeline
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.lineage import (
    Head,
    TimelineOwner,
    add_timeline,
    count_of,
    find_head,
    find_thread_and_head,
    head_on,
    new_timeline,
    require_head,
)
from threadline.stores.sqlite.session import ScopedSession
from threadline.stores.sqlite.threads import add_thread

_SQL = load_queries(__package__, "queries/timelines.sql")
_INHERITED = ("agent_id", "model", "system_prompt", "working_dir")


class TimelineOperations(Operations):
    async def branch(self, thread_id: str, new: NewThread, *, at: int | None = None) -> Thread:
        return await self._engine.write(branch, thread_id, new, at)

    async def move(
        self,
        thread_id: str,
        seq: int,
        *,
        timeline_id: str | None = None,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
        created_at: dt.datetime | None = None,
    ) -> Thread:
        where = (thread_id, seq, timeline_id, expected_count, expected_timeline)
        return await self._engine.write(move, *where, rows.microseconds(created_at))

    async def undo(
        self, thread_id: str, *, expected_count: int | None = None, expected_timeline: str | None = None
    ) -> Thread:
        return await self._engine.write(undo, thread_id, expected_count, expected_timeline)

    async def switch(
        self,
        thread_id: str,
        timeline_id: str,
        *,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
    ) -> Thread:
        return await self._engine.write(switch, thread_id, timeline_id, expected_count, expected_timeline)

    async def timelines(self, thread_id: str, *, deleted: bool = False) -> list[Timeline]:
        return await self._engine.read(list_timelines, thread_id, deleted=deleted)

    async def save(self, thread_id: str, name: str, *, at: int | None = None) -> SavedPoint:
        return await self._engine.write(save, thread_id, name, at)

    async def load(
        self, thread_id: str, name: str, *, expected_count: int | None = None, expected_timeline: str | None = None
    ) -> Thread:
        return await self._engine.write(load, thread_id, name, expected_count, expected_timeline)

    async def saved_points(self) -> list[SavedPoint]:
        return await self._engine.read(list_saved_points)

    async def saved_point(self, name: str) -> SavedPoint | None:
        return await self._engine.read(find_saved_point, name)

    async def forget_saved_point(self, name: str) -> bool:
        return await self._engine.write(forget_saved_point, name)


def branch(session: ScopedSession, thread_id: str, new: NewThread, at: int | None) -> Thread:
    source, head = find_thread_and_head(session, thread_id)
    seq = _within(thread_id, head, at)
    inherited = {field: getattr(source, field) for field in _INHERITED if getattr(new, field) is None}
    given = msgspec.structs.replace(new, **inherited)
    return add_thread(session, given, new_timeline(head.owner_id, head, seq), message_count=seq + 1)


def _within(thread_id: str, head: Head, at: int | None) -> int:
    """The seq `at`, by default the last one. InvalidInput past the head."""
    if at is None:
        return head.message_count - 1
    if not -1 <= at < head.message_count:
        raise no_such_seq(thread_id, at)
    return at


def move(
    session: ScopedSession,
    thread_id: str,
    seq: int,
    timeline_id: str | None,
    expected_count: int | None = None,
    expected_timeline: str | None = None,
    created_us: int | None = None,
) -> Thread:
    thread, head = find_thread_and_head(session, thread_id)
    require_head(head, expected_count, expected_timeline)
    origin = head_on(session, head, timeline_id)
    return _continue_from(session, thread, origin, _within(thread_id, origin, seq), created_us=created_us)


def undo(
    session: ScopedSession, thread_id: str, expected_count: int | None = None, expected_timeline: str | None = None
) -> Thread:
    thread, head = find_thread_and_head(session, thread_id)
    require_head(head, expected_count, expected_timeline)
    question = session.row(_SQL["find_last_question"], (head.timeline_no, head.message_count - 1))
    if question is None:
        raise nothing_to_undo(thread_id)
    return _continue_from(session, thread, head, question[0] - 1)


def _continue_from(
    session: ScopedSession,
    thread: Thread,
    origin: Head,
    seq: int,
    *,
    is_own: bool = True,
    created_us: int | None = None,
) -> Thread:
    """Moves the thread to a new timeline that continues after `seq` of `origin`, which may belong to another thread."""
    timeline, now = new_timeline(thread.owner_id, origin, seq), session.now_us() if created_us is None else created_us
    number = add_timeline(session, TimelineOwner(origin.thread_no, origin.newest_no, continues=is_own), timeline, now)
    return _place(
        session, thread, origin._replace(timeline_no=number, timeline_id=timeline.id, message_count=seq + 1), now
    )


def _place(session: ScopedSession, thread: Thread, head: Head, now_us: int) -> Thread:
    place = (head.timeline_no, head.timeline_id, head.message_count)
    session.run(_SQL["move_thread"], (*place, now_us, head.thread_no))
    session.touch(thread.id)
    return msgspec.structs.replace(
        thread, timeline_id=head.timeline_id, message_count=head.message_count, updated_at=from_us(now_us)
    )


def switch(
    session: ScopedSession,
    thread_id: str,
    timeline_id: str,
    expected_count: int | None = None,
    expected_timeline: str | None = None,
) -> Thread:
    thread, head = find_thread_and_head(session, thread_id)
    require_head(head, expected_count, expected_timeline)
    there = head_on(session, head, timeline_id)
    return thread if there is head else _place(session, thread, there, session.now_us())


def list_timelines(session: ScopedSession, thread_id: str, *, deleted: bool = False) -> list[Timeline]:
    with session.snapshot():
        head = find_head(session, thread_id, deleted=deleted)
        return [
            rows.timeline.from_fields(
                id, thread_id, parent_id, parent_seq, count_of(session, number, ancestors), created_us
            )
            for number, id, parent_id, parent_seq, ancestors, created_us in reversed(
                session.rows(_SQL["list_timelines"], (head.newest_no,))
            )
        ]


def save(session: ScopedSession, thread_id: str, name: str, at: int | None) -> SavedPoint:
    name = check_name("saved point", name)
    head = find_head(session, thread_id)
    seq, now = _within(thread_id, head, at), session.now_us()
    session.run(_SQL["save_point"], (session.tenant_id, head.owner_id, name, head.timeline_no, seq, now))
    return SavedPoint(name, Point(head.timeline_id, seq), thread_id, from_us(now))


def load(
    session: ScopedSession,
    thread_id: str,
    name: str,
    expected_count: int | None = None,
    expected_timeline: str | None = None,
) -> Thread:
    thread, head = find_thread_and_head(session, thread_id)
    require_head(head, expected_count, expected_timeline)
    place = session.row(_SQL["find_saved_place"], (session.tenant_id, head.owner_id, name))
    if place is None:
        raise NotFound("saved point", name)
    seq, timeline_no, timeline_id, ancestors, thread_no = place
    origin = head._replace(timeline_no=timeline_no, timeline_id=timeline_id, ancestors=ancestors)
    return _continue_from(session, thread, origin, seq, is_own=thread_no == head.thread_no)


def list_saved_points(session: ScopedSession) -> list[SavedPoint]:
    return session.read_all(rows.saved_point, _SQL["list_saved_points"], (session.tenant_id, session.user_id))


def find_saved_point(session: ScopedSession, name: str) -> SavedPoint | None:
    return session.read(rows.saved_point, _SQL["find_saved_point"], (session.tenant_id, session.user_id, name))


def forget_saved_point(session: ScopedSession, name: str) -> bool:
    return session.run(_SQL["forget_saved_point"], (session.tenant_id, session.user_id, name)) > 0
