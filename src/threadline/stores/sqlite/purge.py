"""Purging: removal for good, of a thread, a user or a tenant, down to the bytes.

Timelines that another thread's history still needs stay, cut down to what it shows; the rest go. Every connection
overwrites what it deletes; a message is blanked in place before its row goes, because SQLite may copy a row aside when
it tidies a page. Words leave the search index with their message, and the write-ahead log is emptied after the commit.
"""

from __future__ import annotations

import heapq

from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Verbs
from threadline.stores.sqlite.indexing import forget_numbers, forget_words
from threadline.stores.sqlite.session import Session

_SQL = load_queries(__package__, "queries/purge.sql")
_OF_THREAD = (
    "remove_chunks",
    "remove_tool_runs",
    "remove_turns",
    "remove_bindings",
    "remove_append_keys",
    "remove_saved_points",
)
_OF_USER = (
    "remove_contexts",
    "remove_links",
    "remove_link_codes",
    "remove_inbox",
    "remove_outbox",
    "remove_user",
)
_OF_TENANT = ("remove_ownerless_inbox", "remove_agents", "remove_tenant")


class PurgeVerbs(Verbs):
    async def purge_thread(self, thread_id: str) -> bool:
        return await self._engine.write(purge_thread, thread_id)

    async def purge_user(self, user_id: str) -> int:
        return await self._engine.write(purge_user, user_id)

    async def purge_tenant(self) -> int:
        return await self._engine.write(purge_tenant)

    async def row_counts(self) -> dict[str, int]:
        return await self._engine.read_much(row_counts)


def purge_thread(s: Session, thread_id: str) -> bool:
    row = s.row(_SQL["find_own_thread"], (s.tenant_id, thread_id, s.user_id, s.sees_all))
    if row is None:
        return False
    remove_thread(s, row[0])
    return True


def purge_user(s: Session, user_id: str) -> int:
    if user_id != s.user_id:
        s.scope.require("system")
    return _remove_user(s, user_id)


def purge_tenant(s: Session) -> int:
    s.scope.require("system")
    removed = sum(_remove_user(s, user_id) for (user_id,) in s.rows(_SQL["list_users"], (s.tenant_id,)))
    return removed + sum(s.run(_SQL[name], (s.tenant_id,)) for name in _OF_TENANT)


def _remove_user(s: Session, user_id: str) -> int:
    s.database.scrub = True
    threads = s.rows(_SQL["list_threads"], (s.tenant_id, user_id))
    removed = sum(remove_thread(s, number) for (number,) in threads)
    return removed + sum(s.run(_SQL[name], (s.tenant_id, user_id)) for name in _OF_USER)


def remove_thread(s: Session, thread_no: int) -> int:
    """How many rows went, of all tables."""
    s.database.scrub = True
    removed = sum(s.run(_SQL[name], (thread_no,)) for name in _OF_THREAD)
    timelines = [number for (number,) in s.rows(_SQL["list_timelines"], (thread_no,))]
    s.run(_SQL["abandon_timelines"], (thread_no,))
    removed += s.run(_SQL["remove_thread"], (thread_no,))
    return removed + _collect(s, timelines)


def _collect(s: Session, abandoned: list[int]) -> int:
    """Removes timelines that belong to no thread, as far as no descendant needs them, and then their ancestors.

    A timeline's number is higher than those it stems from, so taking the highest first meets descendants first.
    """
    removed = 0
    waiting = [-number for number in abandoned]
    heapq.heapify(waiting)
    while waiting:
        number = -heapq.heappop(waiting)
        row = s.row(_SQL["find_abandoned"], (number,))
        if row is None:
            continue
        base_no, needed = row
        removed += _cut(s, number, -1 if needed is None else needed)
        if needed is None:
            removed += s.run(_SQL["remove_timeline"], (number,))
        if base_no is not None:
            heapq.heappush(waiting, -base_no)
    return removed


def _cut(s: Session, timeline_no: int, last: int) -> int:
    """Removes what a timeline holds after seq `last`."""
    above = (timeline_no, last)
    forget_words(s, s.rows(_SQL["list_messages"], above))
    s.run(_SQL["blank_messages"], above)
    removed = s.run(_SQL["remove_messages"], above) + s.run(_SQL["remove_summaries"], above)
    forget_numbers(s)
    return removed


def row_counts(s: Session) -> dict[str, int]:
    return dict(s.rows(_SQL["count_rows"], (s.tenant_id, s.user_id, s.sees_all)))
