"""Turns: accepted in order, leased by one worker at a time behind a fence, ended once.

A call with an old fence changes nothing. Changes are recorded, so that watchers of the turn or its thread wake after
the commit.

Chunks of a turn's stream and runs of its tools are written only with the turn's latest fence.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from threadline.core.messages import from_us, to_us
from threadline.core.sealing import CleanJson
from threadline.core.threads import Thread
from threadline.core.turn_commits import TurnAcceptance
from threadline.core.turns import ACTIVE, CHANNELS, TAKEN_BY, Chunk, Lease, Surface, ToolRun, Turn, TurnEnd, TurnStatus
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.lineage import find_head
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/turns.sql")
_SECOND_US = 1_000_000


class TurnOperations(Operations):
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

    async def lease_time(self) -> dt.datetime:
        return await self._engine.read(lease_time)

    async def lease_turn(self, turn_id: str, worker: str, *, seconds: float) -> Turn | None:
        return await self._engine.write(lease_turn, turn_id, Lease(worker, seconds))

    async def claim_turns(self, worker: str, *, seconds: float, within_seconds: float, limit: int = 32) -> list[Turn]:
        # Read first: most of the calls find nothing, and a write would wait for the file's other writers.
        if not await self._engine.read(_list_handed_over, within_seconds, limit):
            return []
        return await self._engine.write(claim_turns, Lease(worker, seconds), within_seconds, limit)

    async def renew_lease(self, turn_id: str, fence: int, worker: str, *, seconds: float) -> bool:
        return await self._engine.write(renew_lease, turn_id, fence, Lease(worker, seconds))

    async def release_lease(self, turn_id: str, fence: int) -> bool:
        return await self._engine.write(release_lease, turn_id, fence)

    async def expire_leases(self, worker: str, *, turn_id: str | None = None) -> int:
        return await self._engine.write(expire_leases, worker, turn_id)

    async def lease_workers(self) -> list[str]:
        return await self._engine.read(list_lease_workers)

    async def request_stop(self, turn_id: str) -> bool:
        return await self._engine.write(request_stop, turn_id)

    async def is_stop_requested(self, turn_id: str) -> bool:
        return await self._engine.read(is_stop_requested, turn_id)

    async def due_turns(self, *, lease_seconds: float, limit: int = 100) -> list[Turn]:
        return await self._engine.read(list_due_turns, lease_seconds, limit)


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


def add_turn(
    session: ScopedSession, new: TurnAcceptance, thread: Thread, request_seq: int, steers: str | None = None
) -> Turn:
    """Stores the turn of a request, reserved for the process that is going to run it."""
    now, is_active = session.now_us(), new.status in ACTIVE
    agent_id = thread.agent_id if new.agent_id is None else new.agent_id
    whose = (session.tenant_id, new.turn_id, thread.owner_id, find_head(session, thread.id).thread_no)
    seen = rows.json_bytes(new.seen, "seen")
    what = (new.surface, agent_id, new.status, new.key, new.request_hash, request_seq, new.model, seen)
    holder = (None, None) if new.lease is None or not is_active else (new.lease.worker, _until(session, new.lease))
    session.run(_SQL["add_turn"], (*whose, *what, *holder, now, None if is_active else now, steers))
    session.touch(thread.id)
    return _known_turn(session, new.turn_id)


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


def list_due_turns(session: ScopedSession, lease_seconds: float, limit: int) -> list[Turn]:
    now = session.now_us()
    farthest = now + 2 * int(lease_seconds * _SECOND_US)
    wanted = (session.tenant_id, session.user_id, session.sees_all, now, farthest, limit)
    return session.read_all(rows.turn, _SQL["list_due_turns"], wanted)


def lease_time(session: ScopedSession) -> dt.datetime:
    return from_us(session.now_us())


def _until(session: ScopedSession, lease: Lease) -> int:
    return session.now_us() + int(lease.seconds * _SECOND_US)


def lease_turn(session: ScopedSession, turn_id: str, lease: Lease) -> Turn | None:
    hold = find_hold(session, turn_id)
    if hold is None or not _is_free(hold, session.now_us()):
        return None
    if session.row(_SQL["find_earlier_turn"], (session.tenant_id, hold.thread_no, hold.no)):
        return None
    session.run(_SQL["lease_turn"], (lease.worker, _until(session, lease), hold.no))
    session.touch(turn_id)
    return _known_turn(session, turn_id)


def _is_free(hold: Hold, now_us: int) -> bool:
    if hold.status == "running":
        return hold.lease_until_us is None or hold.lease_until_us <= now_us
    return hold.status == "accepted"


def claim_turns(session: ScopedSession, lease: Lease, within_seconds: float, limit: int) -> list[Turn]:
    claimed = []
    for turn_id in _list_handed_over(session, within_seconds, limit):
        if (leased := lease_turn(session, turn_id, lease)) is not None:
            claimed.append(leased)
            continue
        hold = find_hold(session, turn_id)
        if hold is not None and hold.status == "accepted":
            session.run(_SQL["renew_lease"], (lease.worker, _until(session, lease), hold.no))
            claimed.append(_known_turn(session, turn_id))
    return claimed


def _list_handed_over(session: ScopedSession, within_seconds: float, limit: int) -> list[str]:
    now = session.now_us()
    since = now - int(within_seconds * _SECOND_US)
    surfaces = msgspec.json.encode(sorted(CHANNELS)).decode()
    wanted = (session.tenant_id, session.user_id, session.sees_all, now, since, surfaces, limit)
    return [turn_id for (turn_id,) in session.rows(_SQL["list_handed_over"], wanted)]


def renew_lease(session: ScopedSession, turn_id: str, fence: int, lease: Lease) -> bool:
    hold = held(session, turn_id, fence)
    if hold is None or hold.status not in ACTIVE:
        return False
    session.run(_SQL["renew_lease"], (lease.worker, _until(session, lease), hold.no))
    return True


def expire_leases(session: ScopedSession, worker: str, turn_id: str | None) -> int:
    now = session.now_us()
    whose = (session.tenant_id, worker, session.user_id, session.sees_all)
    expired = session.rows(_SQL["find_leases"], (*whose, now, turn_id, turn_id))
    session.run_many(_SQL["expire_lease"], [(now, no) for no, _ in expired])
    session.touch(*(id for _, id in expired))
    return len(expired)


def list_lease_workers(session: ScopedSession) -> list[str]:
    found = session.rows(_SQL["list_lease_workers"], (session.tenant_id, session.user_id, session.sees_all))
    return [worker for (worker,) in found]


def continue_interrupted(session: ScopedSession, turn: Turn, lease: Lease) -> Turn:
    """An interrupted turn, leased to run again. The caller has checked that no turn of the thread is active."""
    hold = find_hold(session, turn.id)
    assert hold is not None
    session.run(_SQL["continue_interrupted"], (lease.worker, _until(session, lease), hold.no))
    session.touch(turn.id, turn.thread_id)
    return _known_turn(session, turn.id)


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


def end_taken_turns(session: ScopedSession, hold: Hold, ended: Turn, end: TurnEnd) -> None:
    """Ends the turns whose messages the ended one took in, and settles their arrivals."""
    seen = rows.json_bytes({TAKEN_BY: ended.id}, "seen")
    for taken_id in end.taken:
        what = (end.status, seen, ended.reply_seq, session.now_us())
        if session.run(_SQL["end_taken_turn"], (*what, session.tenant_id, hold.thread_no, taken_id, ended.id)):
            session.run(_SQL["settle_taken_arrival"], (end.status, session.now_us(), session.tenant_id, taken_id))
            session.touch(taken_id)


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

    async def drop_chunks(self, *, older_than: dt.timedelta) -> int:
        return await self._engine.write_large(drop_chunks, older_than)

    async def start_tool_run(
        self, turn_id: str, fence: int, call_id: str, name: str, input_json: CleanJson, *, repeatable: bool
    ) -> ToolRun | None:
        return await self._engine.write(start_tool_run, turn_id, fence, call_id, name, input_json, repeatable)

    async def finish_tool_run(self, turn_id: str, fence: int, call_id: str, output_json: CleanJson) -> bool:
        return await self._engine.write(finish_tool_run, turn_id, fence, call_id, output_json)

    async def tool_runs(self, turn_id: str) -> list[ToolRun]:
        return await self._engine.read(list_tool_runs, turn_id)


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


def drop_chunks(session: ScopedSession, older_than: dt.timedelta) -> int:
    finished_before = to_us(from_us(session.now_us()) - older_than)
    return session.run(_SQL["drop_chunks"], (session.tenant_id, session.user_id, session.sees_all, finished_before))


def start_tool_run(
    session: ScopedSession, turn_id: str, fence: int, call_id: str, name: str, input_json: CleanJson, repeatable: bool
) -> ToolRun | None:
    hold = held(session, turn_id, fence)
    if hold is None:
        return None
    if session.run(_SQL["add_tool_run"], (hold.no, call_id, name, input_json, repeatable)) > 0:
        return ToolRun(turn_id, call_id, name, input_json, repeatable, None, None, is_new=True)
    return session.read(rows.tool_run, _SQL["find_tool_run"], (hold.no, call_id))


def finish_tool_run(session: ScopedSession, turn_id: str, fence: int, call_id: str, output_json: CleanJson) -> bool:
    hold = held(session, turn_id, fence)
    if hold is None:
        return False
    return session.run(_SQL["finish_tool_run"], (output_json, session.now_us(), hold.no, call_id)) > 0


def list_tool_runs(session: ScopedSession, turn_id: str) -> list[ToolRun]:
    wanted = (session.tenant_id, turn_id, session.user_id, session.sees_all)
    return session.read_all(rows.tool_run, _SQL["list_tool_runs"], wanted)
