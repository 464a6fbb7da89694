"""Threads and their timelines: create, find, list, update, delete, restore; branch, move, undo, switch, save, load.

The last six, and creating, finding and listing, are one call of one function of the schema, and so one round trip.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import msgspec

from threadline.core.errors import DuplicateId, HeadMoved, NotFound, no_such_seq, nothing_to_undo
from threadline.core.ids import check_name, new_id, new_state_key
from threadline.core.messages import to_us
from threadline.core.sealing import CleanText
from threadline.core.thread_filters import EVERY_THREAD, ThreadFilter
from threadline.core.threads import NewThread, Page, SavedPoint, Thread, ThreadChanges, Timeline
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, ScopedSession, in_transaction
from threadline.stores.rows import Position, decode_cursor, encode_cursor
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/threads.sql")
_CHANGEABLE = ("title", "title_by_person", "agent_id", "model", "system_prompt", "working_dir", "metadata", "archived")


class ThreadOperations(Operations):
    async def create_thread(self, new: NewThread, *, created_at: dt.datetime | None = None) -> Thread:
        return await create_or_branch(self.session, new, created_at=created_at)

    async def thread(self, thread_id: str, *, deleted: bool = False) -> Thread | None:
        found = await self.session.call(_SQL["find_thread"], thread_id, None, deleted, reads=True)
        return rows.thread(found[0]) if found else None

    async def thread_by_key(self, state_key: str) -> Thread | None:
        found = await self.session.call(_SQL["find_thread"], None, state_key, False, reads=True)
        return rows.thread(found[0]) if found else None

    async def threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
        archived: bool | None = False,
        deleted: bool = False,
        matching: ThreadFilter = EVERY_THREAD,
    ) -> Page[Thread]:
        listing = f"threads of {self.session.tenant_id}/{self.session.owner_id}, archived {archived}, deleted {deleted}"
        if matching:
            listing += f", {matching}"
        below = Position(0, "") if cursor is None else decode_cursor(listing, cursor)
        found = await self.session.call(
            _SQL["filter_threads" if matching else "list_threads"],
            limit + 1,  # one more than shown tells whether there is another page
            offset,
            None if cursor is None else below.at_us,
            None if cursor is None else below.id,
            archived,
            deleted,
            *(_conditions(matching) if matching else ()),
            reads=True,
            is_large=True,
        )
        items = rows.threads(tuple(found[0].keys()), found[:limit]) if found else ()
        if len(found) <= limit or not items:
            return Page(items)
        return Page(items, encode_cursor(listing, Position(found[limit - 1]["updated_us"], items[-1].id)))

    async def tenant_threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        archived: bool | None = False,
        deleted: bool = False,
        matching: ThreadFilter = EVERY_THREAD,
    ) -> Page[Thread]:
        self.session.scope.require("system")
        listing = f"threads of {self.session.tenant_id}, archived {archived}, deleted {deleted}, {matching}"
        below = None if cursor is None else decode_cursor(listing, cursor).id
        wanted = (limit + 1, below, archived, deleted, *_conditions(matching))
        found = await self.session.call(_SQL["list_tenant_threads"], *wanted, reads=True, is_large=True)
        items = rows.threads(tuple(found[0].keys()), found[:limit]) if found else ()
        more = len(found) > limit
        return Page(items, encode_cursor(listing, Position(0, items[-1].id)) if more else None)

    @in_transaction
    async def update_thread(self, thread_id: str, changes: ThreadChanges) -> Thread:
        given = {field: getattr(changes, field) for field in _CHANGEABLE}
        if given["title"] is not msgspec.UNSET and given["title_by_person"] is msgspec.UNSET:
            given["title_by_person"] = True
        if given["metadata"] is not msgspec.UNSET:
            given["metadata"] = rows.json_bytes(given["metadata"], "metadata")
        values = [None if value is msgspec.UNSET else value for value in given.values()]
        changed = [field for field, value in given.items() if value is not msgspec.UNSET]
        row = await self.session.row(_SQL["update_thread"], thread_id, changed, *values, self.session.now())
        if row is None:
            raise NotFound("thread", thread_id)
        if {"metadata", "agent_id"}.intersection(changed):
            labelled = (row["owner_id"], thread_id, row["agent_id"], row["metadata"])
            await self.session.rows(_SQL["label_thread"], *labelled)
        self.session.notify(thread_id)
        return rows.thread(row)

    @in_transaction
    async def suggest_title(self, thread_id: str, title: CleanText) -> bool:
        if not await self.session.run(_SQL["suggest_title"], thread_id, title):
            return False
        self.session.notify(thread_id)
        return True

    @in_transaction
    async def delete_thread(self, thread_id: str) -> bool:
        if not await self.session.run(_SQL["delete_thread"], thread_id, self.session.now()):
            return False
        self.session.notify(thread_id)
        return True

    @in_transaction
    async def restore_thread(self, thread_id: str) -> Thread:
        # Locked, so that two restores of the same thread do not both find its state key free.
        found = await self.session.row(_SQL["lock_deleted_thread"], thread_id)
        if found is None:
            raise NotFound("deleted thread", thread_id)
        if await self.session.row(_SQL["is_key_taken"], found["owner_id"], found["state_key"]) is not None:
            raise DuplicateId("state key", found["state_key"])
        restored = await self.session.row(_SQL["restore_thread"], thread_id)
        assert restored is not None
        self.session.notify(thread_id, found["state_key"])
        return rows.thread(restored)

    @in_transaction
    async def prune_threads(self, *, idle_since: dt.datetime) -> int:
        done = await self.session.row(_SQL["prune_threads"], self.session.owner_id, idle_since)
        return 0 if done is None else done["pruned"] or 0


class TimelineOperations(Operations):
    async def branch(self, thread_id: str, new: NewThread, *, at: int | None = None) -> Thread:
        return await create_or_branch(self.session, new, source=thread_id, at=at)

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
        values = (new_id(), seq, timeline_id, expected_count, expected_timeline)
        return await self._switch("move_thread", thread_id, *values, seq=seq, timeline=timeline_id, at=created_at)

    async def undo(
        self, thread_id: str, *, expected_count: int | None = None, expected_timeline: str | None = None
    ) -> Thread:
        return await self._switch("undo_turn", thread_id, new_id(), expected_count, expected_timeline)

    async def switch(
        self,
        thread_id: str,
        timeline_id: str,
        *,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
    ) -> Thread:
        values = (timeline_id, expected_count, expected_timeline)
        return await self._switch("switch_timeline", thread_id, *values, timeline=timeline_id)

    async def load(
        self, thread_id: str, name: str, *, expected_count: int | None = None, expected_timeline: str | None = None
    ) -> Thread:
        return await self._switch("load_point", thread_id, new_id(), name, expected_count, expected_timeline, name=name)

    async def _switch(
        self, function: str, thread_id: str, *values: Any, at: dt.datetime | None = None, **named: Any
    ) -> Thread:
        """The last two values are the expected count and timeline."""
        now_us = self.session.now_us() if at is None else to_us(at)
        (row,) = await self.session.call(_SQL[function], now_us, thread_id, *values)
        if row[0] == "head":
            count = row["message_count"]
            raise HeadMoved(count, values[-2] if values[-2] != count else None)
        _raise_problem(row[0], thread_id, **named)
        self.session.notify(thread_id)
        return rows.thread(row)

    async def save(self, thread_id: str, name: str, *, at: int | None = None) -> SavedPoint:
        name = check_name("saved point", name)
        (row,) = await self.session.call(_SQL["save_point"], self.session.now_us(), thread_id, name, at)
        _raise_problem(row[0], thread_id, seq=at)
        return rows.saved_point(row)

    @in_transaction
    async def timelines(self, thread_id: str, *, deleted: bool = False) -> list[Timeline]:
        if await self.session.row(_SQL["is_live"], thread_id, deleted) is None:
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


class ThreadArgs(NamedTuple):
    """The composite type `threadline.thread_args`: the same fields, in the same order."""

    id: str
    state_key: str
    timeline_id: str
    title: str | None
    title_by_person: bool
    agent_id: str | None
    model: str | None
    system_prompt: str | None
    working_dir: str | None
    metadata: bytes | None


def thread_args(new: NewThread, thread_id: str, state_key: str) -> ThreadArgs:
    return ThreadArgs(
        id=thread_id,
        state_key=state_key,
        timeline_id=new_id(),
        title=new.title,
        title_by_person=new.title_by_person,
        agent_id=new.agent_id,
        model=new.model,
        system_prompt=new.system_prompt,
        working_dir=new.working_dir,
        metadata=rows.json_bytes(new.metadata, "metadata"),
    )


async def create_or_branch(
    session: ScopedSession,
    new: NewThread,
    *,
    source: str | None = None,
    at: int | None = None,
    created_at: dt.datetime | None = None,
) -> Thread:
    """With a source, the new thread is a branch of it."""
    thread_id, state_key = new.id or new_id(), new.state_key or new_state_key()
    (done,) = await session.call(
        _SQL["create_thread" if source is None else "branch_thread"],
        session.now_us() if created_at is None else to_us(created_at),
        thread_args(new, thread_id, state_key),
        *(() if source is None else (source, at)),
    )
    match done[0]:
        case None:
            session.notify(state_key)
            return rows.thread(done)
        case "source":
            raise NotFound("thread", source)
        case "seq":
            assert source is not None
            assert at is not None
            raise no_such_seq(source, at)
        case "state_key":
            raise DuplicateId("state key", state_key)
        case _:
            raise DuplicateId("thread", thread_id)


def _conditions(matching: ThreadFilter) -> tuple[Any, ...]:
    return matching.labels, matching.surface, matching.since_us, matching.until_us


def _raise_problem(problem: str | None, thread_id: str, **named: Any) -> None:
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
