"""Turns: accepted in order, leased by one worker at a time behind a fence, ended once.

A call with an old fence changes nothing. Changes are recorded, so that watchers of the turn or its thread wake after
the commit.

Chunks of a turn's stream, runs of its tools, and summaries of histories.

Chunks and tool runs are written only with the turn's latest fence. A summary is stored at its last message, so that
every history that contains this message shares it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from threadline.core.errors import DuplicateId, KeyReused, no_such_seq
from threadline.core.ids import check_id
from threadline.core.messages import to_us
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.turns import ACTIVE, Chunk, NewTurn, Summary, Surface, ToolRun, Turn, TurnEnd, TurnStatus
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.lineage import Head, bound, find_head, holder, segments
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/turns.sql")


class TurnOperations(Operations):
    async def create_turn(self, new: NewTurn) -> Turn:
        return await self._engine.write(create_turn, new)

    async def turn(self, turn_id: str) -> Turn | None:
        return await self._engine.read(find_turn, turn_id)

    async def turn_by_key(self, key: str) -> Turn | None:
        return await self._engine.read(find_turn_by_key, key)

    async def active_turns(self, thread_id: str) -> list[Turn]:
        return await self._engine.read(list_active_turns, thread_id)

    async def turns(self, thread_id: str, *, limit: int = 50) -> list[Turn]:
        return await self._engine.read(list_turns, thread_id, limit)

    async def surfaces(self, thread_ids: Sequence[str]) -> dict[str, tuple[Surface, ...]]:
        return await self._engine.read(list_surfaces, thread_ids)

    async def lease_turn(self, turn_id: str, worker: str, *, until: dt.datetime) -> Turn | None:
        return await self._engine.write(lease_turn, turn_id, worker, until)

    async def renew_lease(self, turn_id: str, fence: int, *, until: dt.datetime) -> bool:
        return await self._engine.write(renew_lease, turn_id, fence, until)

    async def release_lease(self, turn_id: str, fence: int) -> bool:
        return await self._engine.write(release_lease, turn_id, fence)

    async def request_stop(self, turn_id: str) -> bool:
        return await self._engine.write(request_stop, turn_id)

    async def is_stop_requested(self, turn_id: str) -> bool:
        return await self._engine.read(is_stop_requested, turn_id)

    async def due_turns(self, *, limit: int = 100) -> list[Turn]:
        return await self._engine.read(list_due_turns, limit)


class Hold(NamedTuple):
    """A turn's row as those who change it need it."""

    no: int
    thread_no: int
    status: TurnStatus
    fence: int
    lease_until_us: int | None
    is_stop_requested: bool


def find_hold(session: ScopedSession, turn_id: str) -> Hold | None:
    row = session.row(_SQL["find_hold"], (session.tenant_id, turn_id, session.user_id, session.sees_all))
    return None if row is None else Hold._make(row)


def held(session: ScopedSession, turn_id: str, fence: int) -> Hold | None:
    """The turn, if this fence is its latest."""
    hold = find_hold(session, turn_id)
    return hold if hold is not None and hold.fence == fence else None


def create_turn(session: ScopedSession, new: NewTurn) -> Turn:
    check_id("turn", new.id)
    head = find_head(session, new.thread_id)
    if is_turn_known(session, new.id):
        raise DuplicateId("turn", new.id)
    key = new.idempotency_key
    if key is not None and session.row(_SQL["find_turn_key"], (session.tenant_id, head.owner_id, key)):
        raise KeyReused(key)
    now = session.now_us()
    whose = (session.tenant_id, new.id, head.owner_id, head.thread_no)
    what = (new.surface, new.agent_id, new.status, key, new.request_hash, new.request_seq, new.model)
    session.run(_SQL["add_turn"], (*whose, *what, now, None if new.status in ACTIVE else now))
    session.touch(new.thread_id)
    return _known_turn(session, new.id)


def is_turn_known(session: ScopedSession, turn_id: str) -> bool:
    """Whether any owner of the tenant has a turn with this id."""
    return session.row(_SQL["find_turn_id"], (session.tenant_id, turn_id)) is not None


def find_turn(session: ScopedSession, turn_id: str) -> Turn | None:
    return session.read(rows.turn, _SQL["find_turn"], (session.tenant_id, turn_id, session.user_id, session.sees_all))


def _known_turn(session: ScopedSession, turn_id: str) -> Turn:
    turn = find_turn(session, turn_id)
    assert turn is not None
    return turn


def find_turn_by_key(session: ScopedSession, key: str) -> Turn | None:
    return session.read(rows.turn, _SQL["find_turn_by_key"], (session.tenant_id, session.user_id, key))


def list_active_turns(session: ScopedSession, thread_id: str) -> list[Turn]:
    with session.snapshot():
        number = _find_thread_no(session, thread_id)
        return session.read_all(rows.turn, _SQL["list_active_turns"], (session.tenant_id, number))


def list_turns(session: ScopedSession, thread_id: str, limit: int) -> list[Turn]:
    with session.snapshot():
        number = _find_thread_no(session, thread_id)
        return session.read_all(rows.turn, _SQL["list_turns"], (number, limit))


def _find_thread_no(session: ScopedSession, thread_id: str) -> int | None:
    """A deleted thread keeps its turns. No turn belongs to None."""
    row = session.row(_SQL["find_thread_no"], (session.tenant_id, thread_id, session.user_id, session.sees_all))
    return None if row is None else row[0]


def list_surfaces(session: ScopedSession, thread_ids: Sequence[str]) -> dict[str, tuple[Surface, ...]]:
    wanted = (msgspec.json.encode(list(thread_ids)).decode(), session.tenant_id, session.user_id, session.sees_all)
    found = session.rows(_SQL["list_surfaces"], wanted)
    return {thread_id: tuple(surfaces.split(",")) for thread_id, surfaces in found if surfaces}


def list_due_turns(session: ScopedSession, limit: int) -> list[Turn]:
    wanted = (session.tenant_id, session.user_id, session.sees_all, session.now_us(), limit)
    return session.read_all(rows.turn, _SQL["list_due_turns"], wanted)


def lease_turn(session: ScopedSession, turn_id: str, worker: str, until: dt.datetime) -> Turn | None:
    hold = find_hold(session, turn_id)
    if hold is None or not _is_free(hold, session.now_us()):
        return None
    if session.row(_SQL["find_earlier_turn"], (session.tenant_id, hold.thread_no, hold.no)):
        return None
    session.run(_SQL["lease_turn"], (worker, to_us(until), hold.no))
    session.touch(turn_id)
    return _known_turn(session, turn_id)


def _is_free(hold: Hold, now_us: int) -> bool:
    if hold.status == "running":
        return hold.lease_until_us is None or hold.lease_until_us <= now_us
    return hold.status == "accepted"


def renew_lease(session: ScopedSession, turn_id: str, fence: int, until: dt.datetime) -> bool:
    hold = held(session, turn_id, fence)
    if hold is None or hold.status != "running":
        return False
    session.run(_SQL["renew_lease"], (to_us(until), hold.no))
    return True


def release_lease(session: ScopedSession, turn_id: str, fence: int) -> bool:
    hold = held(session, turn_id, fence)
    if hold is None or hold.status not in ACTIVE:
        return False
    session.run(_SQL["release_lease"], (session.now_us(), hold.no))
    session.touch(turn_id)
    return True


def store_end(session: ScopedSession, hold: Hold, turn_id: str, end: TurnEnd, reply_seq: int | None) -> Turn:
    usage, seen = rows.json_bytes(end.usage, "usage"), rows.json_bytes(end.seen, "seen")
    charge = end.charge
    by = (None, None) if charge is None else (charge.provider, charge.model)
    session.run(_SQL["finish_turn"], (end.status, end.error, usage, seen, reply_seq, *by, session.now_us(), hold.no))
    ended = _known_turn(session, turn_id)
    session.touch(turn_id, ended.thread_id)
    return ended


def request_stop(session: ScopedSession, turn_id: str) -> bool:
    hold = find_hold(session, turn_id)
    if hold is None or hold.status not in ACTIVE:
        return False
    session.run(_SQL["stop_turn"], (session.now_us(), hold.no))
    session.touch(turn_id, _known_turn(session, turn_id).thread_id)
    return True


def is_stop_requested(session: ScopedSession, turn_id: str) -> bool:
    hold = find_hold(session, turn_id)
    return hold is not None and bool(hold.is_stop_requested)


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
