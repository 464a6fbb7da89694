"""What a turn leaves while it runs: chunks of its stream and runs of its tools; and summaries of histories.

Chunks and tool runs are written only behind the turn's latest fence. A summary is kept where its last message stands,
so that every history which shows that message shares it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from threadline.core.errors import InvalidInput
from threadline.core.messages import to_us
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.turns import Chunk, Summary, ToolRun
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Verbs
from threadline.stores.sqlite.heads import Head, find_head
from threadline.stores.sqlite.lineage import bound, holder, segments
from threadline.stores.sqlite.session import Reach
from threadline.stores.sqlite.turns import held

_SQL = load_queries(__package__, "queries/running.sql")


class RunningVerbs(Verbs):
    async def put_chunks(self, turn_id: str, fence: int, chunks: Sequence[Chunk]) -> bool:
        return await self._engine.write(put_chunks, turn_id, fence, chunks)

    async def chunks(self, turn_id: str, *, after: int = 0, limit: int = 1000) -> list[Chunk]:
        return await self._engine.read(read_chunks, turn_id, after, limit)

    async def drop_chunks(self, *, finished_before: dt.datetime) -> int:
        return await self._engine.write_much(drop_chunks, finished_before)

    async def start_tool_run(
        self, turn_id: str, fence: int, call_id: str, name: str, input_json: CleanJson, *, repeatable: bool
    ) -> ToolRun | None:
        return await self._engine.write(start_tool_run, turn_id, fence, call_id, name, input_json, repeatable)

    async def finish_tool_run(self, turn_id: str, fence: int, call_id: str, output_json: CleanJson) -> bool:
        return await self._engine.write(finish_tool_run, turn_id, fence, call_id, output_json)

    async def tool_runs(self, turn_id: str) -> list[ToolRun]:
        return await self._engine.read(list_tool_runs, turn_id)

    async def put_summary(self, thread_id: str, seq: int, text: CleanText) -> Summary:
        return await self._engine.write(put_summary, thread_id, seq, text)

    async def summary(self, thread_id: str) -> Summary | None:
        return await self._engine.read(find_summary, thread_id)


def put_chunks(reach: Reach, turn_id: str, fence: int, chunks: Sequence[Chunk]) -> bool:
    hold = held(reach, turn_id, fence)
    if hold is None:
        return False
    reach.run_many(_SQL["add_chunk"], [(hold.no, chunk.n, chunk.json) for chunk in chunks])
    reach.touch(turn_id)
    return True


def read_chunks(reach: Reach, turn_id: str, after: int, limit: int) -> list[Chunk]:
    wanted = (reach.tenant_id, turn_id, reach.user_id, reach.sees_all, after, limit)
    return [Chunk(n, chunk) for n, chunk in reach.rows(_SQL["read_chunks"], wanted)]


def drop_chunks(reach: Reach, finished_before: dt.datetime) -> int:
    return reach.run(_SQL["drop_chunks"], (reach.tenant_id, reach.user_id, reach.sees_all, to_us(finished_before)))


def start_tool_run(
    reach: Reach, turn_id: str, fence: int, call_id: str, name: str, input_json: CleanJson, repeatable: bool
) -> ToolRun | None:
    hold = held(reach, turn_id, fence)
    if hold is None:
        return None
    known = reach.row(_SQL["find_tool_run"], (hold.no, call_id))
    if known is not None:
        return rows.tool_run(known)
    reach.run(_SQL["add_tool_run"], (hold.no, call_id, name, input_json, repeatable))
    reach.touch(turn_id)
    made = reach.row(_SQL["find_tool_run"], (hold.no, call_id))
    assert made is not None
    return msgspec.structs.replace(rows.tool_run(made), is_new=True)


def finish_tool_run(reach: Reach, turn_id: str, fence: int, call_id: str, output_json: CleanJson) -> bool:
    hold = held(reach, turn_id, fence)
    if hold is None:
        return False
    reach.touch(turn_id)
    return reach.run(_SQL["finish_tool_run"], (output_json, reach.now_us(), hold.no, call_id)) > 0


def list_tool_runs(reach: Reach, turn_id: str) -> list[ToolRun]:
    wanted = (reach.tenant_id, turn_id, reach.user_id, reach.sees_all)
    return [rows.tool_run(row) for row in reach.rows(_SQL["list_tool_runs"], wanted)]


def put_summary(reach: Reach, thread_id: str, seq: int, text: CleanText) -> Summary:
    head = find_head(reach, thread_id)
    if not 0 <= seq < head.message_count:
        raise InvalidInput(f"there is no seq {seq} in a history of {head.message_count} messages")
    standing = holder(head.timeline_no, seq, head.ancestors)
    reach.run(_SQL["put_summary"], (standing, seq, text, reach.now_us()))
    stored = _newest_summary(reach, head, seq)
    assert stored is not None
    return stored


def find_summary(reach: Reach, thread_id: str) -> Summary | None:
    with reach.snapshot():
        head = find_head(reach, thread_id)
        return _newest_summary(reach, head, head.message_count - 1)


def _newest_summary(reach: Reach, head: Head, last: int) -> Summary | None:
    wanted = segments(head.timeline_no, last, head.ancestors)
    row = reach.row(_SQL["find_summary"], (bound(wanted),)) if wanted else None
    return None if row is None else rows.summary(row)
