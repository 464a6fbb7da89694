"""Purge: permanent removal of a thread, a user or a tenant, down to the bytes.

A timeline that another thread's history needs is cut down to the needed messages; other timelines are removed. Every
connection overwrites what it deletes, messages are blanked in place first, and their words are removed from the search
index. After the commit the writer empties the write-ahead log and, unless the file is large, rewrites the file.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import NamedTuple

from threadline.core import jsontext
from threadline.core.ids import new_id
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.retention import refuse_held_tenant, refuse_held_thread, refuse_held_user
from threadline.stores.sqlite.search import forget_numbers, forget_words
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/purge.sql")
_OF_THREAD = {
    "remove_chunks": "turn_chunks",
    "remove_tool_runs": "tool_runs",
    "remove_turns": "turns",
    "remove_bindings": "bindings",
    "remove_append_keys": "append_keys",
    "remove_thread_values": "stored_values",
}
_OF_USER = {
    "remove_contexts": "context_snapshots",
    "remove_links": "links",
    "remove_link_codes": "link_codes",
    "remove_inbox": "inbox",
    "remove_outbox": "outbox",
    "remove_tokens": "api_tokens",
    "remove_sign_ins": "sign_ins",
    "remove_usage": "usage_days",
    "remove_values": "stored_values",
    "remove_user": "users",
}
_OF_TENANT = {
    "remove_ownerless_inbox": "inbox",
    "remove_tenant_values": "stored_values",
    "remove_credentials": "credentials",
    "remove_agents": "agents",
    "remove_acts": "audit",
    "remove_tenant": "tenants",
}
"""Statements in an order that the foreign keys allow, and the table that each one clears."""


class PurgeOperations(Operations):
    async def purge_thread(self, thread_id: str) -> bool:
        return await self._engine.write_large(purge_thread, thread_id)

    async def purge_user(self, user_id: str) -> dict[str, int]:
        return await self._engine.write_large(purge_user, user_id)

    async def purge_tenant(self, *, actor_id: str | None = None) -> dict[str, int]:
        return await self._engine.write_large(purge_tenant, actor_id)

    async def row_counts(self) -> dict[str, int]:
        return await self._engine.read_large(row_counts)


def purge_thread(session: ScopedSession, thread_id: str) -> bool:
    row = session.row(_SQL["find_own_thread"], (session.tenant_id, thread_id, session.user_id, session.sees_all))
    if row is None:
        return False
    refuse_held_thread(session, row[0])
    remove_threads(session, [row[0]])
    session.touch(thread_id)
    return True


def purge_user(session: ScopedSession, user_id: str) -> dict[str, int]:
    if user_id != session.user_id:
        session.scope.require("system")
    refuse_held_user(session, user_id)
    return _without_zeros(_remove_users(session, [user_id]))


def purge_tenant(session: ScopedSession, actor_id: str | None) -> dict[str, int]:
    session.scope.require("system")
    refuse_held_tenant(session)
    session.run(_SQL["remove_permits"], (session.tenant_id,))
    session.run(_SQL["blank_tenant_values"], (session.tenant_id,))
    removed = _remove_users(session, [user_id for (user_id,) in session.rows(_SQL["list_users"], (session.tenant_id,))])
    _run_all(session, removed, _OF_TENANT, (session.tenant_id,))
    rows = _without_zeros(removed)
    values = (session.tenant_id, new_id(), actor_id or session.user_id, jsontext.dump({"rows": rows}), session.now_us())
    session.run(_SQL["add_tenant_purge"], values)
    return rows


def _run_all(
    session: ScopedSession, removed: Counter[str], statements: dict[str, str], values: tuple[str | int, ...]
) -> None:
    for name, table in statements.items():
        removed[table] += session.run(_SQL[name], values)


def _without_zeros(removed: Counter[str]) -> dict[str, int]:
    return {table: rows for table, rows in removed.items() if rows}


def _remove_users(session: ScopedSession, user_ids: list[str]) -> Counter[str]:
    users = [(session.tenant_id, user_id) for user_id in user_ids]
    for user in users:
        session.run(_SQL["blank_values"], user)
    removed = remove_threads(
        session, [number for user in users for (number,) in session.rows(_SQL["list_threads"], user)]
    )
    for user in users:
        _run_all(session, removed, _OF_USER, user)
    return removed


def remove_threads(session: ScopedSession, numbers: list[int]) -> Counter[str]:
    """Returns the number of removed rows of each table."""
    session.database.scrub = True
    removed: Counter[str] = Counter()
    for number in numbers:
        session.run(_SQL["blank_thread_values"], (number,))
    for number in numbers:
        _run_all(session, removed, _OF_THREAD, (number,))
    timelines = [timeline for number in numbers for (timeline,) in session.rows(_SQL["list_timelines"], (number,))]
    for timeline in timelines:
        removed["saved_points"] += session.run(_SQL["remove_saved_points"], (timeline,))
        session.run(_SQL["abandon_timeline"], (timeline,))
    removed["threads"] += sum(session.run(_SQL["remove_thread"], (number,)) for number in numbers)
    return removed + _cut(session, _cuts(session, timelines))


class Cut(NamedTuple):
    """A timeline that loses its messages after seq `last`, or is removed."""

    timeline_no: int
    last: int
    goes: bool


def _cuts(session: ScopedSession, abandoned: list[int]) -> list[Cut]:
    """The cuts to timelines that belong to no thread any more, and to their ancestors.

    A timeline's number is higher than its ancestors', so going from the highest number down visits descendants first.
    """
    cuts: dict[int, Cut] = {}
    waiting = [-number for number in abandoned]
    heapq.heapify(waiting)
    while waiting:
        number = -heapq.heappop(waiting)
        row = session.row(_SQL["find_abandoned"], (number,))
        if row is None or number in cuts:
            continue
        children = session.rows(_SQL["list_children"], (number,))
        needed = next((seq for child, seq in children if child not in cuts or not cuts[child].goes), None)
        cuts[number] = Cut(number, -1 if needed is None else needed, needed is None)
        if row[0] is not None:
            heapq.heappush(waiting, -row[0])
    return list(cuts.values())


def _cut(session: ScopedSession, cuts: list[Cut]) -> Counter[str]:
    # All messages are blanked before any row is removed: removing a row can move its neighbours within the page, and
    # SQLite does not overwrite the place a row was moved from.
    above = [(cut.timeline_no, cut.last) for cut in cuts]
    forget_words(session, [message for place in above for message in session.rows(_SQL["list_messages"], place)])
    for place in above:
        session.run(_SQL["blank_messages"], place)
    removed: Counter[str] = Counter()
    for place in above:
        removed["messages"] += session.run(_SQL["remove_messages"], place)
        removed["summaries"] += session.run(_SQL["remove_summaries"], place)
        removed["hidden_parts"] += session.run(_SQL["remove_hidden_parts"], place)
    removed["timelines"] += sum(session.run(_SQL["remove_timeline"], (cut.timeline_no,)) for cut in cuts if cut.goes)
    forget_numbers(session)
    return removed


def row_counts(session: ScopedSession) -> dict[str, int]:
    return dict(session.rows(_SQL["count_rows"], (session.tenant_id, session.user_id, session.sees_all)))
