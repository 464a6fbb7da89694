"""The two ends of a turn, each in one round trip: the request with its turn and lease, the reply with the turn's end.

The schema's functions do the common case and write nothing in any other. What they wrote is known here, so that a turn
need not be read back.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from threadline.core.errors import StoreFailed
from threadline.core.ids import check_id, new_id, new_state_key
from threadline.core.messages import from_us
from threadline.core.sealing import CleanText, Sealed
from threadline.core.threads import NewThread, Thread
from threadline.core.turns import ACTIVE, TRANSITIONS, Chunk, Lease, NewTurn, Turn, TurnEnd
from threadline.stores import rows
from threadline.stores.postgres.errors import stands_in_the_way
from threadline.stores.postgres.session import ScopedSession
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/at_once.sql")
_NO_THREAD = NewThread()


class TurnFastPath:
    session: ScopedSession

    async def accept_at_once(
        self, new: NewTurn, message: Sealed, lease: Lease, *, otherwise: NewThread | None, title: CleanText | None
    ) -> tuple[Turn, Thread] | None:
        session, now_us = self.session, self.session.now_us()
        made = otherwise or _NO_THREAD
        values = (
            now_us,
            check_id("thread", new.thread_id),
            None if otherwise is None else otherwise.state_key or new_state_key(),
            new_id(),
            made.title,
            made.title_by_person,
            made.agent_id,
            made.model,
            made.system_prompt,
            made.working_dir,
            rows.json_bytes(made.metadata, "metadata"),
            message.id,
            session.internals.bodies.pack(message.parts_json),
            message.metadata_json,
            message.created_us,
            title,
            session.internals.limits.messages_per_thread,
            check_id("turn", new.id),
            new.surface,
            new.agent_id,
            new.idempotency_key,
            new.request_hash,
            *lease,
        )
        try:
            found = await session.call_in_line(_SQL["accept"], *values)
        except StoreFailed as error:
            if not stands_in_the_way(error):
                raise
            found = []
        if not found:
            return None
        session.note_append()
        thread = rows.thread(found[0])
        # Its first message may have come with the thread itself.
        session.touch(thread.id, *((thread.state_key,) if thread.message_count == 1 else ()))
        return _leased(new, lease, thread, now_us), thread

    async def finish_at_once(
        self, turn: Turn, end: TurnEnd, reply: Sealed | None, chunks: Sequence[Chunk], *, tokens: int = 0
    ) -> Turn | None:
        if end.status in ACTIVE or end.status not in TRANSITIONS["running"]:
            return None
        session, now_us = self.session, self.session.now_us()
        ((seq,),) = await session.call(
            _SQL["finish"],
            now_us,
            turn.thread_id,
            turn.id,
            turn.fence,
            turn.request_seq,
            [chunk.n for chunk in chunks],
            [chunk.json for chunk in chunks],
            None if reply is None else reply.id,
            None if reply is None else session.internals.bodies.pack(reply.parts_json),
            None if reply is None else reply.metadata_json,
            session.internals.limits.messages_per_thread,
            tokens,
            end.status,
            end.error,
            rows.json_bytes(end.usage, "usage"),
            rows.json_bytes(end.seen, "seen"),
        )
        if seq is None:
            return None
        if reply is not None:
            session.note_append()
        session.touch(turn.thread_id)
        return msgspec.structs.replace(
            turn,
            status=end.status,
            error=end.error,
            usage=end.usage,
            seen=end.seen,
            reply_seq=None if reply is None else seq,
            finished_at=from_us(now_us),
        )


def _leased(new: NewTurn, lease: Lease, thread: Thread, now_us: int) -> Turn:
    return Turn(
        id=new.id,
        owner_id=thread.owner_id,
        thread_id=thread.id,
        surface=new.surface,
        agent_id=thread.agent_id if new.agent_id is None else new.agent_id,
        status="running",
        idempotency_key=new.idempotency_key,
        request_hash=new.request_hash,
        request_seq=thread.message_count - 1,
        reply_seq=None,
        error=None,
        usage={},
        seen={},
        lease_owner=lease.worker,
        lease_until=lease.until,
        fence=1,
        created_at=from_us(now_us),
        finished_at=None,
    )
