"""What exports read and imports write beside threads, timelines and messages (see `threadline.ports.history`)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from threadline.core.errors import NotFound, no_such_seq
from threadline.core.history import PastTurn, ThreadDates
from threadline.core.ids import check_name
from threadline.core.sealing import CleanText
from threadline.core.threads import Point, SavedPoint, segments
from threadline.core.turns import Summary, SummarySource, Turn, require_ended
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/history.sql")


class HistoryOperations(Operations):
    @in_transaction
    async def past_turns(self, thread_id: str, *, after: str | None = None, limit: int = 500) -> list[Turn]:
        found = await self.session.rows(_SQL["list_past_turns"], thread_id, after, limit)
        return [rows.turn(row) for row in found]

    @in_transaction
    async def summaries(self, thread_id: str) -> list[Summary]:
        return [rows.summary(row) for row in await self.session.rows(_SQL["list_summaries"], thread_id)]

    @in_transaction
    async def points_in(self, thread_id: str) -> list[SavedPoint]:
        return [rows.saved_point(row) for row in await self.session.rows(_SQL["list_points"], thread_id)]

    @in_transaction
    async def add_turns(self, thread_id: str, turns: Sequence[PastTurn]) -> list[str]:
        for turn in turns:
            require_ended(turn.id, turn.status)
        owner_id = await self._owner_of(thread_id)
        columns = [list(column) for column in zip(*map(_turn_values, turns), strict=True)]
        if not columns:
            return []
        await self.session.rows(_SQL["add_past_turns"], thread_id, owner_id, *columns)
        # Row security hides turns of other users, so those that cannot be found now are theirs.
        stored = {row["id"] for row in await self.session.rows(_SQL["list_own_turns"], thread_id, columns[0])}
        self.session.notify(thread_id)
        return [turn.id for turn in turns if turn.id not in stored]

    @in_transaction
    async def add_saved_point(
        self, thread_id: str, name: str, seq: int, *, timeline_id: str, created_at: dt.datetime
    ) -> bool:
        owner_id = await self._owner_of(thread_id)
        await self._require_seq(thread_id, timeline_id, seq, lowest=-1)
        values = (owner_id, check_name("saved point", name), thread_id, timeline_id, seq, created_at)
        return await self.session.run(_SQL["add_point"], *values) > 0

    @in_transaction
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
        owner_id = await self._owner_of(thread_id)
        await self._require_seq(thread_id, timeline_id, seq, lowest=0)
        row = await self.session.row(_SQL["find_lineage"], timeline_id)
        assert row is not None
        lineage = [Point(id, top) for id, top in zip(row["ancestors"], row["ancestor_seqs"], strict=True)]
        (holding,) = segments(timeline_id, lineage, seq, seq)
        values = (holding.timeline_id, seq, owner_id, text, created_at, source, model)
        return await self.session.run(_SQL["add_summary"], *values) > 0

    @in_transaction
    async def date_thread(self, thread_id: str, dates: ThreadDates) -> None:
        if not await self.session.run(_SQL["date_thread"], thread_id, *dates):
            raise NotFound("thread", thread_id)
        self.session.notify(thread_id)

    async def _owner_of(self, thread_id: str) -> str:
        """Locks the thread's row, so that a purge waits and removes what is added."""
        row = await self.session.row(_SQL["lock_owner"], thread_id)
        if row is None:
            raise NotFound("thread", thread_id)
        owner_id: str = row["owner_id"]
        return owner_id

    async def _require_seq(self, thread_id: str, timeline_id: str, seq: int, *, lowest: int) -> None:
        row = await self.session.row(_SQL["last_seq"], thread_id, timeline_id)
        if row is None or row["seq"] is None:
            raise NotFound("timeline", timeline_id)
        if not lowest <= seq <= row["seq"]:
            raise no_such_seq(thread_id, seq)


def _turn_values(turn: PastTurn) -> tuple[Any, ...]:
    usage = rows.json_bytes(turn.usage, "usage")
    return (
        turn.id, turn.surface, turn.agent_id, turn.status, turn.error, usage, turn.request_seq, turn.reply_seq,
        turn.created_at, turn.finished_at, turn.provider, turn.model,
    )  # fmt: skip
