"""The two commits of a turn, each in one round trip: the request with its turn and lease, the reply with its end.

Each is one SQL function (functions/turn_acceptance.sql, functions/turn_completion.sql) that gets its values by name, in
one JSON object; message bodies and chunks go beside it as bytes. What a function wrote is known here, so that a new
turn need not be read back.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, cast

import asyncpg
import msgspec

from threadline.core.errors import InvalidInput, StoreFailed
from threadline.core.ids import new_id, new_state_key
from threadline.core.messages import from_us
from threadline.core.sealing import Sealed
from threadline.core.threads import Thread
from threadline.core.turn_commits import (
    Accepted,
    AcceptRefusal,
    AcceptRefusalReason,
    FinishRefusal,
    FinishRefusalReason,
    ReplyDelivery,
    TurnAcceptance,
    refuse_system_arrival,
)
from threadline.core.turns import ACTIVE, TAKEN_BY, TRANSITIONS, Chunk, Turn, TurnEnd
from threadline.core.usage import day_number
from threadline.stores import rows
from threadline.stores.postgres.errors import refusal_reason
from threadline.stores.postgres.session import Operations
from threadline.stores.postgres.usage import usage_record
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/turn_commits.sql")
_TURNS_SQL = load_queries(__package__, "queries/turns.sql")


class TurnCommitOperations(Operations):
    async def accept_turn(self, new: TurnAcceptance) -> Accepted | AcceptRefusal:
        session = self.session
        refuse_system_arrival(session.scope, new)
        body = session.internals.bodies.pack(new.message.parts_json)
        record = _request_record(new, session.internals.limits.messages_per_thread)
        try:
            (done,) = await session.call_serialized(_SQL["accept_turn"], session.given_us(), record, body)
        except StoreFailed as error:
            if (reason := refusal_reason(error)) is None:
                raise
            # The function raises only the reasons that the type lists; a conformance test covers each one.
            return AcceptRefusal(cast("AcceptRefusalReason", reason))
        outcome, turn_id, is_created, is_leased, accepted_us, thread_id, *_ = done
        thread = None if thread_id is None else rows.thread(done)
        if outcome == "replayed" and thread is not None:
            if is_leased:
                session.notify(thread.id)
            return Accepted(await self._stored_turn(turn_id), thread, replayed=True, leased=bool(is_leased))
        if outcome != "accepted" or thread is None:
            # The function answers with the reasons of AcceptRefusalReason; the conformance suite proves each.
            return AcceptRefusal(cast("AcceptRefusalReason", outcome), thread, turn_id)
        session.note_append()
        session.notify(thread.id, *((thread.state_key,) if is_created else ()))
        turn = _new_turn(new, thread, accepted_us, is_leased=is_leased)
        # Which turn was active is not among the function's results.
        turn = await self._stored_turn(turn.id) if new.policy == "steer" and not is_leased else turn
        return Accepted(turn, thread, leased=is_leased)

    async def _stored_turn(self, turn_id: str) -> Turn:
        (row,) = await self.session.call(_TURNS_SQL["find_turn"], turn_id, reads=True)
        return rows.turn(row)

    async def finish_turn(
        self,
        turn_id: str,
        fence: int,
        end: TurnEnd,
        *,
        reply: Sealed | None = None,
        chunks: Sequence[Chunk] = (),
        tokens: int = 0,
        delivery: ReplyDelivery | None = None,
    ) -> Turn | FinishRefusal:
        session = self.session
        body = None if reply is None else session.internals.bodies.pack(reply.parts_json)
        record = {
            "turn_id": turn_id,
            "fence": fence,
            "ends_from": _statuses_before(end),
            "status": end.status,
            "error": end.error,
            "usage": _text(rows.json_bytes(end.usage, "usage")),
            "seen": _text(rows.json_bytes(end.seen, "seen")),
            "chunk_numbers": [chunk.n for chunk in chunks],
            "reply_id": None if reply is None else reply.id,
            "reply_metadata": None if reply is None else _text(reply.metadata_json),
            "tokens": tokens,
            "messages_per_thread": session.internals.limits.messages_per_thread,
            "new_timeline_id": new_id(),
        }
        if end.charge is not None:
            # Without a day the charge is stored with the turn and not counted.
            day = day_number(session.now().date()) if end.is_counted else None
            record |= usage_record(end.charge, day)
        if end.taken:
            record |= {"taken": end.taken, "taken_seen": _json({TAKEN_BY: turn_id})}
        if delivery is not None:
            record |= {"platform": delivery.platform, "arrival_key": delivery.key, "payloads": delivery.payloads}
        json, streamed = _json(record), [chunk.json for chunk in chunks]
        (done,) = await session.call(_SQL["finish_turn"], session.given_us(), json, body, streamed)
        return self._ended(done, end, has_reply=reply is not None)

    def _ended(self, done: asyncpg.Record, end: TurnEnd, *, has_reply: bool) -> Turn | FinishRefusal:
        outcome = done[0]
        if outcome == "end_invalid":
            raise InvalidInput(f"a turn that is {done['status']} cannot end as {end.status}")
        if outcome != "finished":
            # As above: every outcome but these two is a reason of the type.
            return FinishRefusal(cast("FinishRefusalReason", outcome))
        turn = rows.turn(done)
        if has_reply and turn.reply_seq is not None:
            self.session.note_append()
        self.session.notify(turn.thread_id)
        return turn


def _statuses_before(end: TurnEnd) -> list[str]:
    return [] if end.status in ACTIVE else [status for status in ACTIVE if end.status in TRANSITIONS[status]]


def _request_record(new: TurnAcceptance, messages_per_thread: int) -> str:
    """The fields of the type threadline.turn_request that are not null."""
    message, thread = new.message, new.new_thread
    record: dict[str, Any] = {
        "turn_id": new.turn_id,
        "surface": new.surface,
        "policy": new.policy,
        "status": new.status,
        "agent_id": new.agent_id,
        "model": new.model,
        "key": new.key,
        "request_hash": None if new.request_hash is None else f"\\x{new.request_hash.hex()}",
        "seen": _text(rows.json_bytes(new.seen, "seen")),
        "thread_id": new.thread_id,
        "replaces": new.replaces,
        "title": new.title,
        "message_id": message.id,
        "message_role": message.role[0],
        "message_metadata": _text(message.metadata_json),
        "message_created_us": message.created_us,
        "messages_per_thread": messages_per_thread,
        "new_timeline_id": new_id(),
    }
    if new.thread_id is None:
        record |= {
            "new_id": thread.id or new_id(),
            "new_state_key": thread.state_key or new_state_key(),
            "new_title": thread.title,
            "new_title_by_person": thread.title_by_person,
            "new_agent_id": thread.agent_id,
            "new_model": thread.model,
            "new_system_prompt": thread.system_prompt,
            "new_working_dir": thread.working_dir,
            "new_metadata": _text(rows.json_bytes(thread.metadata, "metadata")),
        }
    if new.lease is not None:
        record |= {"lease_owner": new.lease.worker, "lease_seconds": new.lease.seconds}
        record |= {"is_only_reserved": new.is_only_reserved, "must_check_holder": new.must_check_holder}
    if new.arrival is not None:
        arrival = new.arrival._asdict()
        record |= {"arrival_key": arrival.pop("key"), **arrival}
        if (home := record.pop("home")) is not None:
            record |= {"home_place": home.place, "home_keys": home.keys}
    return _json(record)


def _json(record: dict[str, Any]) -> str:
    return msgspec.json.encode(record).decode()


def _text(json: bytes | None) -> str | None:
    """JSON that is stored byte for byte travels as a string inside the record."""
    return None if json is None else json.decode()


def _new_turn(new: TurnAcceptance, thread: Thread, now_us: int, *, is_leased: bool) -> Turn:
    lease = new.lease if new.status in ACTIVE else None
    return Turn(
        id=new.turn_id,
        owner_id=thread.owner_id,
        thread_id=thread.id,
        surface=new.surface,
        agent_id=thread.agent_id if new.agent_id is None else new.agent_id,
        status="running" if is_leased else new.status,
        idempotency_key=new.key,
        request_hash=new.request_hash,
        request_seq=thread.message_count - 1,
        reply_seq=None,
        error=None,
        usage={},
        seen=new.seen,
        lease_owner=None if lease is None else lease.worker,
        lease_until=None if lease is None else from_us(now_us) + dt.timedelta(seconds=lease.seconds),
        fence=1 if is_leased else 0,
        created_at=from_us(now_us),
        finished_at=None if new.status in ACTIVE else from_us(now_us),
        model=new.model,
    )
