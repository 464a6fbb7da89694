"""What exports read and imports write beside threads, timelines and messages (see `threadline.ports.history`)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from threadline.core.errors import no_such_seq
from threadline.core.history import PastTurn, ThreadDates
from threadline.core.ids import check_name
from threadline.core.messages import to_us
from threadline.core.sealing import CleanText
from threadline.core.threads import SavedPoint
from threadline.core.turns import Summary, SummaryLabel, SummarySource, Turn, require_ended
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.lineage import Head, find_head, head_on, holder
from threadline.stores.sqlite.session import Row, ScopedSession

_SQL = load_queries(__package__, "queries/history.sql")


class HistoryOperations(Operations):
    async def past_turns(self, thread_id: str, *, after: str | None = None, limit: int = 500) -> list[Turn]:
        return await self._engine.read_large(list_past_turns, thread_id, after, limit)

    async def summaries(self, thread_id: str) -> list[Summary]:
        return await self._engine.read(list_summaries, thread_id)

    async def points_in(self, thread_id: str) -> list[SavedPoint]:
        return await self._engine.read(list_points, thread_id)

    async def add_turns(self, thread_id: str, turns: Sequence[PastTurn]) -> list[str]:
        return await self._engine.write_large(add_turns, thread_id, turns)

    async def add_saved_point(
        self, thread_id: str, name: str, seq: int, *, timeline_id: str, created_at: dt.datetime
    ) -> bool:
        return await self._engine.write(add_saved_point, thread_id, name, seq, timeline_id, to_us(created_at))

    async def add_summary(
        self,
        thread_id: str,
        seq: int,
        text: CleanText,
        *,
        timeline_id: str,
        created_at: dt.datetime,
        source: SummarySource = "extract",
        model: str | None = None,
    ) -> bool:
        label = SummaryLabel(source, model)
        return await self._engine.write(add_summary, thread_id, seq, text, label, timeline_id, to_us(created_at))

    async def date_thread(self, thread_id: str, dates: ThreadDates) -> None:
        await self._engine.write(date_thread, thread_id, dates)


def list_past_turns(session: ScopedSession, thread_id: str, after: str | None, limit: int) -> list[Turn]:
    return session.read_all(rows.turn, _SQL["list_past_turns"], (*_which(session, thread_id), after, limit))


def list_summaries(session: ScopedSession, thread_id: str) -> list[Summary]:
    return session.read_all(rows.summary, _SQL["list_summaries"], _which(session, thread_id))


def list_points(session: ScopedSession, thread_id: str) -> list[SavedPoint]:
    return session.read_all(rows.saved_point, _SQL["list_points"], _which(session, thread_id))


def _which(session: ScopedSession, thread_id: str) -> Row:
    return (session.tenant_id, thread_id, session.user_id, session.sees_all)


def add_turns(session: ScopedSession, thread_id: str, turns: Sequence[PastTurn]) -> list[str]:
    head, taken = find_head(session, thread_id), []
    for turn in turns:
        require_ended(turn.id, turn.status)
    for turn in turns:
        known = session.row(_SQL["find_turn_thread"], (session.tenant_id, turn.id))
        if known is None:
            session.run(_SQL["add_past_turn"], (session.tenant_id, *_turn_values(turn, head)))
        elif known[0] != head.thread_no:
            taken.append(turn.id)
    session.touch(thread_id)
    return taken


def _turn_values(turn: PastTurn, head: Head) -> Row:
    whose = (turn.id, head.owner_id, head.thread_no, turn.surface, turn.agent_id, turn.status, turn.error)
    times = (to_us(turn.created_at), rows.microseconds(turn.finished_at))
    usage = rows.json_bytes(turn.usage, "usage")
    return (*whose, usage, turn.request_seq, turn.reply_seq, *times, turn.provider, turn.model)


def add_saved_point(
    session: ScopedSession, thread_id: str, name: str, seq: int, timeline_id: str, created_us: int
) -> bool:
    head = _timeline_with(session, thread_id, timeline_id, seq, lowest=-1)
    values = (session.tenant_id, head.owner_id, check_name("saved point", name), head.timeline_no, seq, created_us)
    return session.run(_SQL["add_point"], values) > 0


def add_summary(
    session: ScopedSession,
    thread_id: str,
    seq: int,
    text: CleanText,
    label: SummaryLabel,
    timeline_id: str,
    created_us: int,
) -> bool:
    head = _timeline_with(session, thread_id, timeline_id, seq, lowest=0)
    number = holder(head.timeline_no, seq, head.ancestors)
    return session.run(_SQL["add_summary"], (number, seq, text, created_us, *label)) > 0


def _timeline_with(session: ScopedSession, thread_id: str, timeline_id: str, seq: int, *, lowest: int) -> Head:
    head = head_on(session, find_head(session, thread_id), timeline_id)
    if not lowest <= seq < head.message_count:
        raise no_such_seq(thread_id, seq)
    return head


def date_thread(session: ScopedSession, thread_id: str, dates: ThreadDates) -> None:
    times = (to_us(dates.updated_at), rows.microseconds(dates.archived_at), rows.microseconds(dates.deleted_at))
    number = find_head(session, thread_id).thread_no
    session.run(_SQL["date_thread"], (*times, dates.token_count, number))
    session.touch(thread_id)
