"""The two ends of a turn, each in one commit: the request with its turn and lease, the reply with the turn's end.

The common case and nothing else. Everything is checked before anything is written, so that a refusal leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from threadline.core.errors import DuplicateId, LimitExceeded, NotFound
from threadline.core.sealing import CleanText, Sealed
from threadline.core.threads import Appended, NewThread, Thread
from threadline.core.turns import ACTIVE, TRANSITIONS, Chunk, Lease, NewTurn, Turn, TurnEnd
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.heads import Head, find_head
from threadline.stores.sqlite.messages import ROLE_NUMBER, append
from threadline.stores.sqlite.session import ScopedSession
from threadline.stores.sqlite.threads import create_thread, existing_thread, thread_by_key
from threadline.stores.sqlite.turn_output import put_chunks
from threadline.stores.sqlite.turns import create_turn, find_turn_by_key, finish_turn, held, lease_turn

_SQL = load_queries(__package__, "queries/at_once.sql")


class TurnFastPath(Operations):
    async def accept_at_once(
        self, new: NewTurn, message: Sealed, lease: Lease, *, otherwise: NewThread | None, title: CleanText | None
    ) -> tuple[Turn, Thread] | None:
        return await self._engine.write(accept_at_once, new, message, lease, otherwise, title)

    async def finish_at_once(
        self, turn: Turn, end: TurnEnd, reply: Sealed | None, chunks: Sequence[Chunk], *, tokens: int = 0
    ) -> Turn | None:
        return await self._engine.write(finish_at_once, turn, end, reply, chunks, tokens)


def accept_at_once(
    session: ScopedSession,
    new: NewTurn,
    message: Sealed,
    lease: Lease,
    otherwise: NewThread | None,
    title: CleanText | None,
) -> tuple[Turn, Thread] | None:
    if new.idempotency_key is not None and find_turn_by_key(session, new.idempotency_key) is not None:
        return None
    known = None if otherwise is None or otherwise.state_key is None else thread_by_key(session, otherwise.state_key)
    thread_id = new.thread_id if known is None else known.id
    if otherwise is None or known is not None:
        head = _head(session, thread_id)
        if head is None or session.row(_SQL["find_active_turn"], (session.tenant_id, head.thread_no)):
            return None
    else:
        create_thread(session, msgspec.structs.replace(otherwise, id=thread_id))
    appended = _append(session, thread_id, message, new.id, title=title)
    if appended is None:
        return None
    thread = existing_thread(session, thread_id)
    agent_id = thread.agent_id if new.agent_id is None else new.agent_id
    asked = msgspec.structs.replace(new, thread_id=thread_id, agent_id=agent_id, request_seq=appended.first_seq)
    create_turn(session, asked)
    leased = lease_turn(session, new.id, lease.worker, lease.until)
    assert leased is not None
    return leased, thread


def finish_at_once(
    session: ScopedSession, turn: Turn, end: TurnEnd, reply: Sealed | None, chunks: Sequence[Chunk], tokens: int
) -> Turn | None:
    hold, head = held(session, turn.id, turn.fence), _head(session, turn.thread_id)
    if hold is None or head is None or hold.status != "running":
        return None
    if end.status in ACTIVE or end.status not in TRANSITIONS["running"]:
        return None
    if not session.row(_SQL["find_request"], (head.timeline_no, turn.request_seq, turn.id, ROLE_NUMBER["user"])):
        return None
    if reply is not None:
        appended = _append(session, turn.thread_id, reply, turn.id, tokens=tokens)
        if appended is None:
            return None
        end = msgspec.structs.replace(end, reply_seq=appended.first_seq)
    put_chunks(session, turn.id, turn.fence, chunks)
    return finish_turn(session, turn.id, turn.fence, end)


def _head(session: ScopedSession, thread_id: str) -> Head | None:
    try:
        return find_head(session, thread_id)
    except NotFound:
        return None


def _append(
    session: ScopedSession,
    thread_id: str,
    message: Sealed,
    turn_id: str,
    *,
    tokens: int = 0,
    title: CleanText | None = None,
) -> Appended | None:
    """None, and nothing is written, if the message stands there already or there is no room for it."""
    try:
        appended = append(session, thread_id, [message], None, None, turn_id, tokens, title)
    except (DuplicateId, LimitExceeded):
        return None
    return None if appended.replayed else appended
