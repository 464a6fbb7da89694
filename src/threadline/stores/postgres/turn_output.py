"""Chunks of a turn's stream, runs of its tools, and summaries of histories.

Chunks and tool runs are written only with the turn's latest fence. A summary is stored at its last message, so that
every history that contains this message shares it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from threadline.core.errors import NotFound, no_such_seq
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.threads import Point, segments
from threadline.core.turns import Chunk, Summary, ToolRun
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/running.sql")


class TurnOutputOperations(Operations):
    async def put_chunks(self, turn_id: str, fence: int, chunks: Sequence[Chunk]) -> bool:
        numbers, texts = [chunk.n for chunk in chunks], [chunk.json for chunk in chunks]
        ((kept,),) = await self.session.call(_SQL["put_chunks"], turn_id, fence, numbers, texts)
        return bool(kept)

    async def chunks(self, turn_id: str, *, after: int = 0, limit: int = 1000) -> list[Chunk]:
        found = await self.session.call(_SQL["read_chunks"], turn_id, after, limit, reads=True)
        return [Chunk(n, chunk) for n, chunk in found]

    @in_transaction
    async def drop_chunks(self, *, finished_before: dt.datetime) -> int:
        return await self.session.run(_SQL["drop_chunks"], finished_before)

    @in_transaction
    async def start_tool_run(
        self, turn_id: str, fence: int, call_id: str, name: str, input_json: CleanJson, *, repeatable: bool
    ) -> ToolRun | None:
        turn = await self.session.row(_SQL["lock_fence"], turn_id, fence)
        if turn is None:
            return None
        values = (turn_id, call_id, turn["owner_id"], name, input_json, repeatable)
        made = await self.session.row(_SQL["add_tool_run"], *values)
        if made is not None:
            return msgspec.structs.replace(rows.tool_run(made), is_new=True)
        known = await self.session.row(_SQL["find_tool_run"], turn_id, call_id)
        assert known is not None
        return rows.tool_run(known)

    @in_transaction
    async def finish_tool_run(self, turn_id: str, fence: int, call_id: str, output_json: CleanJson) -> bool:
        if await self.session.row(_SQL["lock_fence"], turn_id, fence) is None:
            return False
        values = (turn_id, call_id, output_json, self.session.now())
        return await self.session.row(_SQL["finish_tool_run"], *values) is not None

    @in_transaction
    async def tool_runs(self, turn_id: str) -> list[ToolRun]:
        return [rows.tool_run(row) for row in await self.session.rows(_SQL["list_tool_runs"], turn_id)]

    @in_transaction
    async def put_summary(self, thread_id: str, seq: int, text: CleanText) -> Summary:
        count, owner_id, timeline_id, lineage = await self._history(thread_id)
        if not 0 <= seq < count:
            raise no_such_seq(thread_id, seq)
        (holding,) = segments(timeline_id, lineage, seq, seq)
        values = (holding.timeline_id, seq, owner_id, text, self.session.now())
        row = await self.session.row(_SQL["put_summary"], *values)
        assert row is not None
        return rows.summary(row)

    async def summary(self, thread_id: str) -> Summary | None:
        found = await self.session.call(_SQL["find_summary"], thread_id, reads=True)
        if not found:
            raise NotFound("thread", thread_id)
        return rows.summary(found[0]) if found[0]["text"] is not None else None

    async def _history(self, thread_id: str) -> tuple[int, str, str, list[Point]]:
        row = await self.session.row(_SQL["find_history"], thread_id)
        if row is None:
            raise NotFound("thread", thread_id)
        count, owner_id, timeline_id, ids, tops = row
        return count, owner_id, timeline_id, [Point(id, top) for id, top in zip(ids, tops, strict=True)]
