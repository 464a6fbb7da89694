"""Threads: made, found, listed, changed, hidden, brought back, pruned."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

import msgspec

from threadline.core.errors import DuplicateId, NotFound, no_such_seq
from threadline.core.ids import new_id, new_state_key
from threadline.core.threads import NewThread, Page, Thread, ThreadChanges
from threadline.stores import rows
from threadline.stores.cursors import Position, decode_cursor, encode_cursor
from threadline.stores.postgres.session import ScopedSession, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/threads.sql")
_CHANGEABLE = ("title", "title_by_person", "agent_id", "model", "system_prompt", "working_dir", "metadata", "archived")


class ThreadOperations:
    session: ScopedSession

    async def create_thread(self, new: NewThread) -> Thread:
        return await begin_thread(self.session, new)

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
    ) -> Page[Thread]:
        listing = f"threads of {self.session.tenant_id}/{self.session.owner_id}, archived {archived}, deleted {deleted}"
        below = Position(0, "") if cursor is None else decode_cursor(listing, cursor)
        found = await self.session.call(
            _SQL["list_threads"],
            limit + 1,
            offset,
            None if cursor is None else below.at_us,
            None if cursor is None else below.id,
            archived,
            deleted,
            reads=True,
        )
        items = rows.threads(found[:limit])
        if len(found) <= limit or not items:
            return Page(items)
        return Page(items, encode_cursor(listing, Position(found[limit - 1]["updated_us"], items[-1].id)))

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
        self.session.touch(thread_id)
        return rows.thread(row)

    @in_transaction
    async def delete_thread(self, thread_id: str) -> bool:
        if not await self.session.run(_SQL["delete_thread"], thread_id, self.session.now()):
            return False
        self.session.touch(thread_id)
        return True

    @in_transaction
    async def restore_thread(self, thread_id: str) -> Thread:
        found = await self.session.row(_SQL["lock_deleted_thread"], thread_id)
        if found is None:
            raise NotFound("deleted thread", thread_id)
        if await self.session.row(_SQL["is_key_taken"], found["owner_id"], found["state_key"]) is not None:
            raise DuplicateId("state key", found["state_key"])
        restored = await self.session.row(_SQL["restore_thread"], thread_id)
        assert restored is not None
        self.session.touch(thread_id, found["state_key"])
        return rows.thread(restored)

    @in_transaction
    async def prune_threads(self, *, idle_since: dt.datetime) -> int:
        done = await self.session.row(_SQL["prune_threads"], self.session.owner_id, idle_since)
        return 0 if done is None else done["pruned"] or 0


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


async def begin_thread(
    session: ScopedSession, new: NewThread, *, source: str | None = None, at: int | None = None
) -> Thread:
    """A new thread; with a source, a branch of it."""
    thread_id, state_key = new.id or new_id(), new.state_key or new_state_key()
    (done,) = await session.call(
        _SQL["create_thread" if source is None else "branch_thread"],
        session.now_us(),
        thread_args(new, thread_id, state_key),
        *(() if source is None else (source, at)),
    )
    problem, *row = done
    match problem:
        case None:
            session.touch(state_key)
            return rows.thread(row)
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
