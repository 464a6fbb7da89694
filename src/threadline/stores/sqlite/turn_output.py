"""Chunks of a turn's stream, runs of its tools, and summaries of histories.

Chunks and tool runs are written only with the turn's latest fence. A summary is stored at its last message, so that
every history that contains this message shares it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from threadline.core.errors import no_such_seq
from threadline.core.messages import to_us
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.turns import Chunk, Summary, ToolRun
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.lineage import Head, bound, find_head, holder, segments
from threadline.stores.sqlite.session import ScopedSession
from threadline.stores.sqlite.turns import held

_SQL = load_queries(__package__, "queries/turn_output.sql")


class TurnOutputOperations(Operations):
    async def put_chunks(self, turn_id: str, fence: int, chunks: Sequence[Chunk]) -> bool:
        return await self._engine.write(put_chunks, turn_id, fence, chunks)

    async def chunks(self, turn_id: str, *, after: int = 0, limit: int = 1000) -> list[Chunk]:
        return await self._engine.read(read_chunks, turn_id, after, limit)

    async def drop_chunks(self, *, finished_before: dt.datetime) -> int:
        return await self._engine.write_large(drop_chunks, finished_before)

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


def put_chunks(session: ScopedSession, turn_id: str, fence: int, chunks: Sequence[Chunk]) -> bool:
    hold = held(session, turn_id, fence)
    if hold is None:
        return False
    session.run_many(_SQL["add_chunk"], [(hold.no, chunk.n, chunk.json) for chunk in chunks])
    session.touch(turn_id)
    return True


def read_chunks(session: ScopedSession, turn_id: str, after: int, limit: int) -> list[Chunk]:
    wanted = (session.tenant_id, turn_id, session.user_id, session.sees_all, after, limit)
    return [Chunk(n, chunk) for n, chunk in session.rows(_SQL["read_chunks"], wanted)]


def drop_chunks(session: ScopedSession, finished_before: dt.datetime) -> int:
    return session.run(
        _SQL["drop_chunks"], (session.tenant_id, session.user_id, session.sees_all, to_us(finished_before))
    )


def start_tool_run(
    session: ScopedSession, turn_id: str, fence: int, call_id: str, name: str, input_json: CleanJson, repeatable: bool
) -> ToolRun | None:
    hold = held(session, turn_id, fence)
    if hold is None:
        return None
    known = session.read(rows.tool_run, _SQL["find_tool_run"], (hold.no, call_id))
    if known is not None:
        return known
    session.run(_SQL["add_tool_run"], (hold.no, call_id, name, input_json, repeatable))
    session.touch(turn_id)
    made = session.read(rows.tool_run, _SQL["find_tool_run"], (hold.no, call_id))
    assert made is not None
    return msgspec.structs.replace(made, is_new=True)


def finish_tool_run(session: ScopedSession, turn_id: str, fence: int, call_id: str, output_json: CleanJson) -> bool:
    hold = held(session, turn_id, fence)
    if hold is None:
        return False
    session.touch(turn_id)
    return session.run(_SQL["finish_tool_run"], (output_json, session.now_us(), hold.no, call_id)) > 0


def list_tool_runs(session: ScopedSession, turn_id: str) -> list[ToolRun]:
    wanted = (session.tenant_id, turn_id, session.user_id, session.sees_all)
    return session.read_all(rows.tool_run, _SQL["list_tool_runs"], wanted)


def put_summary(session: ScopedSession, thread_id: str, seq: int, text: CleanText) -> Summary:
    head = find_head(session, thread_id)
    if not 0 <= seq < head.message_count:
        raise no_such_seq(thread_id, seq)
    standing = holder(head.timeline_no, seq, head.ancestors)
    session.run(_SQL["put_summary"], (standing, seq, text, session.now_us()))
    stored = _newest_summary(session, head, seq)
    assert stored is not None
    return stored


def find_summary(session: ScopedSession, thread_id: str) -> Summary | None:
    with session.snapshot():
        head = find_head(session, thread_id)
        return _newest_summary(session, head, head.message_count - 1)


def _newest_summary(session: ScopedSession, head: Head, last: int) -> Summary | None:
    wanted = segments(head.timeline_no, last, head.ancestors)
    return session.read(rows.summary, _SQL["find_summary"], (bound(wanted),)) if wanted else None
