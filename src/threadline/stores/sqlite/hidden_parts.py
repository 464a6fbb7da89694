"""Hidden messages and parts: the marks, and their use by every read of messages.

Nearly always there is no mark at all, so a read first asks that, and looks its messages up only if there is one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from threadline.core.errors import NotFound
from threadline.core.hidden_parts import HiddenPart, without_hidden
from threadline.core.messages import Message
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.lineage import Head, bound, find_head, holder, segments, tops, unpack
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/hidden_parts.sql")


class HiddenPartOperations(Operations):
    async def hide_parts(self, thread_id: str, parts: Sequence[HiddenPart], *, turn_id: str | None = None) -> int:
        return await self._engine.write(hide_parts, thread_id, parts, turn_id)

    async def is_turn_hidden(self, turn_id: str) -> bool:
        return await self._engine.read(is_turn_hidden, turn_id)


def hide_parts(session: ScopedSession, thread_id: str, parts: Sequence[HiddenPart], turn_id: str | None) -> int:
    head, added, now_us = find_head(session, thread_id), 0, session.now_us()
    places = _find_places(session, head, parts)
    for timeline_no, seq, part in places:
        added += session.run(_SQL["add_hidden"], (timeline_no, seq, part, turn_id, now_us))
        if turn_id is not None:
            session.run(_SQL["mark_turn"], (timeline_no, seq, part, turn_id))
    summaries = session.rows(_SQL["list_summaries"], (session.tenant_id, head.owner_id))
    for number, timeline_no, last, ancestors in summaries:
        if any(seq <= last and holder(timeline_no, seq, ancestors) == place for place, seq, _ in places):
            session.run(_SQL["remove_summary"], (number,))
    session.touch(thread_id)
    return added


def _find_places(session: ScopedSession, head: Head, parts: Sequence[HiddenPart]) -> list[tuple[int, int, int]]:
    """The numbers of the timelines with seq and part. NotFound."""
    own = session.rows(_SQL["list_own_timelines"], (head.newest_no,))
    numbers = {no for no, _ in own} | {place.timeline_no for _, ancestors in own for place in unpack(ancestors)}
    by_id = {id: no for no, id in session.rows(_SQL["name_timelines"], (bound(array("q", numbers)),))}
    shown = [tops(no, ancestors) for no, ancestors in own]
    found = []
    for timeline_id, seq, part in parts:
        no = by_id.get(timeline_id, -1)
        is_shown = any(seq <= each.get(no, -1) for each in shown)
        if not is_shown or session.row(_SQL["has_message"], (no, seq)) is None:
            raise NotFound("message", f"{timeline_id} {seq}")
        found.append((no, seq, part))
    return found


def is_turn_hidden(session: ScopedSession, turn_id: str) -> bool:
    whose = (session.tenant_id, session.user_id, session.sees_all)
    return session.row(_SQL["is_turn_hidden"], (turn_id, *whose)) is not None


def visible(session: ScopedSession, thread_id: str, messages: list[Message], head: Head | None = None) -> list[Message]:
    """The messages as a reader gets them. They are in order; `head` is where their history ends, by default that of the
    thread."""
    if not messages or session.row(_SQL["has_any"]) is None:
        return messages
    head = head or find_head(session, thread_id)
    first = messages[0].seq
    wanted = segments(head.timeline_no, messages[-1].seq, head.ancestors, first=first)
    marks: dict[tuple[str, int], list[int]] = {}
    for timeline_id, seq, part in session.rows(_SQL["list_hidden"], (bound(wanted), first)):
        marks.setdefault((timeline_id, seq), []).append(part)
    return without_hidden(messages, marks) if marks else messages


def hidden_of(session: ScopedSession, message_no: int) -> list[int]:
    return [part for (part,) in session.rows(_SQL["list_hidden_of_message"], (message_no,))]


def copy_hidden(session: ScopedSession, origin: Head, after: int, timeline_no: int) -> None:
    """Hides the copies, on another timeline and under the same seqs, of what is hidden after a seq of a history."""
    wanted = segments(origin.timeline_no, origin.message_count - 1, origin.ancestors, first=after + 1)
    if wanted:
        session.run(_SQL["copy_hidden"], (timeline_no, bound(wanted), after))
