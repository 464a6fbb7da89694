"""Timelines: branching, moving, undoing, switching, saving, loading; each one call of one function."""

from __future__ import annotations

from typing import Any

from threadline.core.errors import NotFound, no_such_seq, nothing_to_undo
from threadline.core.ids import check_name, new_id
from threadline.core.threads import NewThread, SavedPoint, Thread, Timeline
from threadline.stores import rows
from threadline.stores.postgres.session import ScopedSession, in_transaction
from threadline.stores.postgres.threads import begin_thread
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/timelines.sql")


class TimelineOperations:
    session: ScopedSession

    async def branch(self, thread_id: str, new: NewThread, *, at: int | None = None) -> Thread:
        return await begin_thread(self.session, new, source=thread_id, at=at)

    async def move(self, thread_id: str, seq: int, *, timeline_id: str | None = None) -> Thread:
        return await self._go("move_thread", thread_id, new_id(), seq, timeline_id, seq=seq, timeline=timeline_id)

    async def undo(self, thread_id: str) -> Thread:
        return await self._go("undo_turn", thread_id, new_id())

    async def switch(self, thread_id: str, timeline_id: str) -> Thread:
        return await self._go("switch_timeline", thread_id, timeline_id, timeline=timeline_id)

    async def load(self, thread_id: str, name: str) -> Thread:
        return await self._go("load_point", thread_id, new_id(), name, name=name)

    async def _go(self, function: str, thread_id: str, *values: Any, **named: Any) -> Thread:
        ((problem, *row),) = await self.session.call(_SQL[function], self.session.now_us(), thread_id, *values)
        _refuse(problem, thread_id, **named)
        self.session.touch(thread_id)
        return rows.thread(row)

    async def save(self, thread_id: str, name: str, *, at: int | None = None) -> SavedPoint:
        name = check_name("saved point", name)
        ((problem, *row),) = await self.session.call(_SQL["save_point"], self.session.now_us(), thread_id, name, at)
        _refuse(problem, thread_id, seq=at)
        return rows.saved_point(row)

    @in_transaction
    async def timelines(self, thread_id: str) -> list[Timeline]:
        if await self.session.row(_SQL["is_living"], thread_id) is None:
            raise NotFound("thread", thread_id)
        return [rows.timeline(row) for row in await self.session.rows(_SQL["list_timelines"], thread_id)]

    @in_transaction
    async def saved_points(self) -> list[SavedPoint]:
        found = await self.session.rows(_SQL["list_saved_points"], self.session.owner_id)
        return [rows.saved_point(row) for row in found]

    @in_transaction
    async def saved_point(self, name: str) -> SavedPoint | None:
        row = await self.session.row(_SQL["find_saved_point"], self.session.owner_id, name)
        return None if row is None else rows.saved_point(row)

    @in_transaction
    async def forget_saved_point(self, name: str) -> bool:
        return await self.session.run(_SQL["forget_saved_point"], self.session.owner_id, name) > 0


def _refuse(problem: str | None, thread_id: str, **named: Any) -> None:
    match problem:
        case None:
            return
        case "thread":
            raise NotFound("thread", thread_id)
        case "timeline":
            raise NotFound("timeline", named["timeline"])
        case "name":
            raise NotFound("saved point", named["name"])
        case "seq":
            raise no_such_seq(thread_id, named["seq"])
        case _:
            raise nothing_to_undo(thread_id)
