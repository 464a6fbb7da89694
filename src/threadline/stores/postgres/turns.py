"""Turns: accepted in order, leased by one worker at a time behind a fence, ended once.

A call with an old fence changes nothing. A turn gets its place in the thread's order while the thread's row is locked,
so that the order of places is the order in which turns became visible.

Chunks of a turn's stream, runs of its tools, and summaries of histories.

Chunks and tool runs are written only with the turn's latest fence. A summary is stored at its last message, so that
every history that contains this message shares it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import cast

import msgspec

from threadline.core.errors import Conflict, NotFound, no_such_seq
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.threads import Point, segments
from threadline.core.turns import CHANNELS, SUMMARY_CHANGED, Chunk, Summary, SummarySource, Surface, ToolRun, Turn
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/turns.sql")


class TurnOperations(Operations):
    async def turn(self, turn_id: str) -> Turn | None:
        found = await self.session.call(_SQL["find_turn"], turn_id, reads=True)
        return rows.turn(found[0]) if found else None

    @in_transaction
    async def turn_by_key(self, key: str) -> Turn | None:
        row = await self.session.row(_SQL["find_turn_by_key"], self.session.owner_id, key)
        return None if row is None else rows.turn(row)

    async def active_turns(self, thread_id: str) -> list[Turn]:
        return [rows.turn(row) for row in await self.session.call(_SQL["list_active_turns"], thread_id, reads=True)]

    @in_transaction
    async def turns(self, thread_id: str, *, limit: int = 50) -> list[Turn]:
        return [rows.turn(row) for row in await self.session.rows(_SQL["list_turns"], thread_id, limit)]

    @in_transaction
    async def surfaces(self, thread_ids: Sequence[str]) -> dict[str, tuple[Surface, ...]]:
        found = await self.session.rows(_SQL["list_surfaces"], list(thread_ids))
        return {row["id"]: tuple(row["surfaces"]) for row in found}

    async def lease_time(self) -> dt.datetime:
        if (given := self.session.given_time()) is not None:
            return given
        ((now,),) = await self.session.read_for_all(_SQL["lease_time"])
        # The driver types every column as Any; `now()` is a timestamp with time zone.
        return cast("dt.datetime", now)

    async def lease_turn(self, turn_id: str, worker: str, *, seconds: float) -> Turn | None:
        found = await self.session.call(_SQL["lease_turn"], self.session.given_us(), turn_id, worker, seconds)
        return rows.turn(found[0]) if found else None

    async def claim_turns(self, worker: str, *, seconds: float, within_seconds: float, limit: int = 32) -> list[Turn]:
        given = (self.session.given_us(), worker, seconds, within_seconds, sorted(CHANNELS), limit)
        return [rows.turn(row) for row in await self.session.call(_SQL["claim_turns"], *given)]

    async def renew_lease(self, turn_id: str, fence: int, worker: str, *, seconds: float) -> bool:
        given = (self.session.given_us(), turn_id, fence, worker, seconds)
        ((renewed,),) = await self.session.call(_SQL["renew_lease"], *given, is_urgent=True)
        return bool(renewed)

    @in_transaction
    async def release_lease(self, turn_id: str, fence: int) -> bool:
        return await self.session.row(_SQL["release_lease"], turn_id, fence, self.session.given_time()) is not None

    @in_transaction
    async def expire_leases(self, worker: str, *, turn_id: str | None = None) -> int:
        return len(await self.session.rows(_SQL["expire_leases"], worker, turn_id, self.session.given_time()))

    @in_transaction
    async def lease_workers(self) -> list[str]:
        return [row["lease_owner"] for row in await self.session.rows(_SQL["list_lease_workers"])]

    @in_transaction
    async def request_stop(self, turn_id: str) -> bool:
        asked = await self.session.row(_SQL["request_stop"], turn_id, self.session.given_time())
        if asked is None:
            return False
        self.session.notify(asked["thread_id"])
        return True

    async def is_stop_requested(self, turn_id: str) -> bool:
        ((asked,),) = await self.session.call(_SQL["is_stop_requested"], turn_id, reads=True, is_urgent=True)
        return bool(asked)

    @in_transaction
    async def due_turns(self, *, lease_seconds: float, limit: int = 100) -> list[Turn]:
        given = (self.session.given_time(), lease_seconds, limit)
        return [rows.turn(row) for row in await self.session.rows(_SQL["list_due_turns"], *given)]


class TurnOutputOperations(Operations):
    async def put_chunks(self, turn_id: str, fence: int, chunks: Sequence[Chunk]) -> bool:
        numbers, texts = [chunk.n for chunk in chunks], [chunk.json for chunk in chunks]
        ((kept,),) = await self.session.call(_SQL["put_chunks"], turn_id, fence, numbers, texts)
        return bool(kept)

    async def chunks(self, turn_id: str, *, after: int = 0, limit: int = 1000) -> list[Chunk]:
        found = await self.session.call(_SQL["read_chunks"], turn_id, after, limit, reads=True)
        return [Chunk(n, chunk) for n, chunk in found]

    @in_transaction
    async def drop_chunks(self, *, older_than: dt.timedelta) -> int:
        dropped = await self.session.row(_SQL["drop_chunks"], self.session.given_time(), older_than)
        assert dropped is not None
        return int(dropped[0])

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
    async def put_summary(
        self,
        thread_id: str,
        seq: int,
        text: CleanText,
        *,
        source: SummarySource = "extract",
        model: str | None = None,
        timeline_id: str | None = None,
        earlier: Summary | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Summary:
        # Locked, so that of two summaries at the same time the second one sees the first.
        await self.session.row(_SQL["lock_thread"], thread_id)
        count, owner_id, current_id, lineage = await self._history(thread_id)
        if not 0 <= seq < count:
            if timeline_id is not None:
                raise Conflict(SUMMARY_CHANGED)
            raise no_such_seq(thread_id, seq)
        if earlier is not msgspec.UNSET:
            shown = [Point(current_id, count - 1), *lineage]
            known = await self.session.row(_SQL["newest_summary"], *map(list, zip(*shown, strict=True)))
            if earlier != (None if known is None else rows.summary(known)):
                raise Conflict(SUMMARY_CHANGED)
        (holding,) = segments(current_id, lineage, seq, seq)
        if timeline_id not in (None, holding.timeline_id):
            raise Conflict(SUMMARY_CHANGED)
        values = (holding.timeline_id, seq, owner_id, text, self.session.now(), source, model)
        row = await self.session.row(_SQL["put_summary"], *values)
        assert row is not None
        return rows.summary(row)

    @in_transaction
    async def claim_compaction(self, thread_id: str, *, seconds: float) -> bool:
        values = (thread_id, False, self.session.now_us(), seconds)
        claimed = await self.session.row(_SQL["claim_compaction"], *values)
        if claimed is not None and claimed[0]:
            return True
        await self._history(thread_id)
        return False

    @in_transaction
    async def release_compaction(self, thread_id: str) -> None:
        await self._history(thread_id)
        await self.session.rows(_SQL["claim_compaction"], thread_id, True, self.session.now_us(), 0.0)

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
