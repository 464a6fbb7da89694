"""Threads: create, read, list, change, delete, restore, prune.

A list walks one index from its end and reads only the rows it returns; a cursor is the activity and id of the last row.
Every check comes before the first write, so an operation that raises has changed nothing.
"""

from __future__ import annotations

import datetime as dt
from operator import itemgetter

import msgspec
from msgspec import UNSET

from threadline.core.errors import DuplicateId, NotFound
from threadline.core.ids import new_id, new_state_key
from threadline.core.messages import to_us
from threadline.core.sealing import CleanText
from threadline.core.thread_filters import EVERY_THREAD, ThreadFilter
from threadline.core.threads import NewThread, Page, Thread, ThreadChanges
from threadline.stores import rows
from threadline.stores.rows import Position, decode_cursor, encode_cursor
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.lineage import NewTimeline, TimelineOwner, add_timeline, new_timeline
from threadline.stores.sqlite.purge import remove_threads
from threadline.stores.sqlite.session import Columns, Row, ScopedSession

_SQL = load_queries(__package__, "queries/threads.sql")
_BEFORE_ALL = Position(2**63 - 1, "")
_ABOVE_EVERY_ID = "\U0010ffff"
_FEW_THREADS = 2_000
"""Threads with a label are looked up and sorted if there are no more than these."""


class ThreadOperations(Operations):
    async def create_thread(self, new: NewThread, *, created_at: dt.datetime | None = None) -> Thread:
        return await self._engine.write(create_thread, new, rows.microseconds(created_at))

    async def thread(self, thread_id: str, *, deleted: bool = False) -> Thread | None:
        return await self._engine.read(find_thread, thread_id, deleted=deleted)

    async def thread_by_key(self, state_key: str) -> Thread | None:
        return await self._engine.read(thread_by_key, state_key)

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
        return await self._engine.read(
            list_threads,
            matching,
            limit=limit,
            cursor=cursor,
            offset=offset,
            archived=archived,
            deleted=deleted,
        )

    async def tenant_threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        archived: bool | None = False,
        deleted: bool = False,
        matching: ThreadFilter = EVERY_THREAD,
    ) -> Page[Thread]:
        return await self._engine.read(
            list_tenant_threads, matching, limit=limit, cursor=cursor, archived=archived, deleted=deleted
        )

    async def update_thread(self, thread_id: str, changes: ThreadChanges) -> Thread:
        return await self._engine.write(update_thread, thread_id, changes)

    async def suggest_title(self, thread_id: str, title: CleanText) -> bool:
        return await self._engine.write(suggest_title, thread_id, title)

    async def delete_thread(self, thread_id: str) -> bool:
        return await self._engine.write(delete_thread, thread_id)

    async def restore_thread(self, thread_id: str) -> Thread:
        return await self._engine.write(restore_thread, thread_id)

    async def prune_threads(self, *, idle_since: dt.datetime) -> int:
        return await self._engine.write_large(prune_threads, idle_since)


def create_thread(session: ScopedSession, new: NewThread, created_us: int | None = None) -> Thread:
    return add_thread(session, new, new_timeline(session.user_id), 0, created_us)


def add_thread(
    session: ScopedSession, new: NewThread, timeline: NewTimeline, message_count: int, created_us: int | None = None
) -> Thread:
    """A thread on a new timeline, of the timeline's owner."""
    thread_id, state_key = new.id or new_id(), new.state_key or new_state_key()
    metadata = rows.json_bytes(new.metadata, "metadata")
    if not session.has_user(timeline.owner_id):
        if refusal := _find_duplicate(session, thread_id, timeline.owner_id, state_key):
            raise refusal
        session.ensure_owner(timeline.owner_id)
    now = session.now_us() if created_us is None else created_us
    values = (
        thread_id, timeline.owner_id, state_key, timeline.id, new.title, new.title_by_person, new.agent_id, new.model,
        new.system_prompt, new.working_dir, metadata, message_count, 0, now, now,
    )  # fmt: skip
    if not session.run(_SQL["add_thread"], (session.tenant_id, *values)):
        refusal = _find_duplicate(session, thread_id, timeline.owner_id, state_key)
        assert refusal is not None
        raise refusal
    add_timeline(session, TimelineOwner(session.last_number()), timeline, now)
    session.touch(state_key)
    return rows.thread.from_fields(*values, None, None)


def _find_duplicate(session: ScopedSession, thread_id: str, owner_id: str, state_key: str) -> DuplicateId | None:
    found = session.row(_SQL["find_taken"], (session.tenant_id, thread_id, owner_id, state_key))
    assert found is not None
    if found[0]:
        return DuplicateId("thread", thread_id)
    return DuplicateId("state key", state_key) if found[1] else None


def find_thread(session: ScopedSession, thread_id: str, *, deleted: bool = False) -> Thread | None:
    return session.read(
        rows.thread, _SQL["find_thread"], (session.tenant_id, thread_id, session.user_id, session.sees_all, deleted)
    )


def existing_thread(session: ScopedSession, thread_id: str) -> Thread:
    found = find_thread(session, thread_id)
    if found is None:
        raise NotFound("thread", thread_id)
    return found


def thread_by_key(session: ScopedSession, state_key: str) -> Thread | None:
    return session.read(rows.thread, _SQL["find_thread_by_key"], (session.tenant_id, session.user_id, state_key))


def list_threads(
    session: ScopedSession,
    matching: ThreadFilter,
    *,
    limit: int,
    cursor: str | None,
    offset: int,
    archived: bool | None,
    deleted: bool,
) -> Page[Thread]:
    listing = repr(("threads", session.tenant_id, session.user_id, archived, deleted))
    if matching:
        listing += repr(matching)
    after = _BEFORE_ALL if cursor is None else decode_cursor(listing, cursor)
    if matching.until_us is not None:
        after = min(after, Position(matching.until_us, ""))
    columns, found = _page(session, matching, after, limit + 1, offset, archived, deleted)
    if not found:
        return Page(())
    items = rows.threads(columns, found[:limit])
    if len(found) <= limit:
        return Page(items)
    return Page(items, encode_cursor(listing, Position(to_us(items[-1].updated_at), items[-1].id)))


def _page(
    session: ScopedSession,
    matching: ThreadFilter,
    after: Position,
    limit: int,
    offset: int,
    archived: bool | None,
    deleted: bool,
) -> tuple[Columns, list[Row]]:
    whose, which = (session.tenant_id, session.user_id, *after), _conditions(matching)
    rare = _rare_label(session, matching.labels)
    if rare is not None:
        values = (*whose, limit, offset, archived, *which, rare, deleted)
        return session.rows_and_columns(_SQL["list_labelled_threads"], values)
    if deleted:
        return session.rows_and_columns(_SQL["list_deleted_threads"], (*whose, limit, offset, archived, *which))
    if archived is not None:
        name = "list_archived_threads" if archived else "list_open_threads"
        return session.rows_and_columns(_SQL[name], (*whose, limit, offset, None, *which))
    part = (*whose, offset + limit, 0, None, *which)
    with session.snapshot():
        columns, either = session.rows_and_columns(_SQL["list_open_threads"], part)
        also, archived_rows = session.rows_and_columns(_SQL["list_archived_threads"], part)
    # Both queries return the same columns; an empty result has none.
    columns, either = columns or also, either + archived_rows
    if either:
        either.sort(key=itemgetter(columns.index("updated_us"), columns.index("id")), reverse=True)
    return columns, either[offset : offset + limit]


def _conditions(matching: ThreadFilter) -> tuple[int | None, str | None, str | None]:
    labels = msgspec.json.encode(matching.labels).decode() if matching.labels else None
    return matching.since_us, matching.surface, labels


def _rare_label(session: ScopedSession, labels: tuple[str, ...]) -> str | None:
    """The label that the fewest threads have; None if each is on many: then a walk along the list finds matching
    threads soon."""
    whose, rare, fewest = session.user_id, None, _FEW_THREADS + 1
    for label in labels:
        values = (session.tenant_id, label, whose, _FEW_THREADS + 1)
        ((count,),) = session.rows(_SQL["count_labelled_threads"], values)
        if count < fewest:
            rare, fewest = label, count
    return rare


def list_tenant_threads(
    session: ScopedSession,
    matching: ThreadFilter,
    *,
    limit: int,
    cursor: str | None,
    archived: bool | None,
    deleted: bool,
) -> Page[Thread]:
    session.scope.require("system")
    listing = repr(("tenant", session.tenant_id, archived, deleted, matching))
    below = _ABOVE_EVERY_ID if cursor is None else decode_cursor(listing, cursor).id
    until = _BEFORE_ALL.at_us if matching.until_us is None else matching.until_us
    label = matching.labels[0] if matching.labels else None
    values = (session.tenant_id, below, archived, deleted, until, label, limit + 1, *_conditions(matching))
    columns, found = session.rows_and_columns(_SQL["list_tenant_threads"], values)
    if not found:
        return Page(())
    items = rows.threads(columns, found[:limit])
    return Page(items, encode_cursor(listing, Position(0, items[-1].id)) if len(found) > limit else None)


def update_thread(session: ScopedSession, thread_id: str, changes: ThreadChanges) -> Thread:
    before = existing_thread(session, thread_id)
    given = {field: value for field in changes.__struct_fields__ if (value := getattr(changes, field)) is not UNSET}
    title = given.get("title", before.title)
    by_person = given.get("title_by_person", title is not None if "title" in given else before.title_by_person)
    archived_us = rows.microseconds(before.archived_at)
    if "archived" in given:
        archived_us = (archived_us or session.now_us()) if given["archived"] else None
    session.run(
        _SQL["change_thread"],
        (
            title,
            by_person,
            *(given.get(field, getattr(before, field)) for field in ("agent_id", "model", "system_prompt")),
            given.get("working_dir", before.working_dir),
            rows.json_bytes(given.get("metadata", before.metadata), "metadata"),
            archived_us,
            session.tenant_id,
            thread_id,
        ),
    )
    session.touch(thread_id)
    return existing_thread(session, thread_id)


def suggest_title(session: ScopedSession, thread_id: str, title: CleanText) -> bool:
    which = (title, session.tenant_id, thread_id, session.user_id, session.sees_all)
    if not session.run(_SQL["suggest_title"], which):
        return False
    session.touch(thread_id)
    return True


def delete_thread(session: ScopedSession, thread_id: str) -> bool:
    which = (session.tenant_id, thread_id, session.user_id, session.sees_all)
    if not session.run(_SQL["delete_thread"], (session.now_us(), *which)):
        return False
    session.touch(thread_id)
    return True


def restore_thread(session: ScopedSession, thread_id: str) -> Thread:
    found = find_thread(session, thread_id, deleted=True)
    if found is None or found.deleted_at is None:
        raise NotFound("deleted thread", thread_id)
    if session.row(_SQL["find_key"], (session.tenant_id, found.owner_id, found.state_key)):
        raise DuplicateId("state key", found.state_key)
    session.run(_SQL["restore_thread"], (session.tenant_id, thread_id))
    session.touch(thread_id, found.state_key)
    return existing_thread(session, thread_id)


def prune_threads(session: ScopedSession, idle_since: dt.datetime) -> int:
    idle = session.rows(_SQL["find_idle_threads"], (session.tenant_id, session.user_id, to_us(idle_since)))
    remove_threads(session, [number for (number,) in idle])
    return len(idle)
