"""Inbox and outbox: each arrival claimed once, each delivery one worker's at a time."""

from __future__ import annotations

import datetime as dt

from threadline.core.channels import ABANDONED, InboxRow, OutboxRow, OutboxStatus
from threadline.core.errors import Conflict, DuplicateId, NotFound
from threadline.core.ids import check_id, new_id
from threadline.core.messages import to_us
from threadline.core.sealing import CleanText
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Verbs
from threadline.stores.sqlite.session import Session

_SQL = load_queries(__package__, "queries/queues.sql")


class QueueVerbs(Verbs):
    async def claim_inbox(
        self,
        platform: Surface,
        key: str,
        *,
        fingerprint: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        owner_id: str | None = None,
    ) -> InboxRow | None:
        what = (fingerprint, correlation_id, reply_to)
        return await self._engine.write(claim_inbox, platform, key, what, owner_id)

    async def settle_inbox(
        self, platform: Surface, key: str, *, status: str, decision: str | None = None, turn_id: str | None = None
    ) -> bool:
        return await self._engine.write(settle_inbox, platform, key, status, decision, turn_id)

    async def inbox_row(self, platform: Surface, key: str) -> InboxRow | None:
        return await self._engine.read(find_inbox, platform, key)

    async def drop_settled(self, *, before: dt.datetime) -> int:
        return await self._engine.write(drop_settled, before)

    async def enqueue(
        self,
        platform: Surface,
        recipient: str,
        payload: CleanText,
        *,
        turn_id: str | None,
        owner_id: str,
        id: str | None = None,
    ) -> OutboxRow:
        return await self._engine.write(enqueue, platform, recipient, payload, turn_id, owner_id, id)

    async def claim_outbox(self, worker: str, *, until: dt.datetime, limit: int = 10) -> list[OutboxRow]:
        return await self._engine.write(claim_outbox, worker, until, limit)

    async def settle_outbox(
        self,
        outbox_id: str,
        worker: str,
        *,
        status: OutboxStatus,
        next_attempt_at: dt.datetime | None = None,
        error: str | None = None,
    ) -> bool:
        return await self._engine.write(settle_outbox, outbox_id, worker, status, next_attempt_at, error)

    async def outbox(self, *, status: OutboxStatus | None = None, limit: int = 100) -> list[OutboxRow]:
        return await self._engine.read(list_outbox, status, limit)

    async def requeue(self, outbox_id: str) -> OutboxRow:
        return await self._engine.write(requeue, outbox_id)


def claim_inbox(
    s: Session, platform: Surface, key: str, what: tuple[str | None, ...], owner_id: str | None
) -> InboxRow | None:
    owner = _owner(s, owner_id)
    if s.row(_SQL["find_claim"], (s.tenant_id, platform, key)):
        return None
    s.introduce(owner)
    now = s.now_us()
    s.run(_SQL["add_inbox"], (s.tenant_id, platform, key, *what, owner, now, now))
    return find_inbox(s, platform, key)


def _owner(s: Session, named: str | None) -> str | None:
    """Whose row it is to be. A user's own, unless the house names somebody, or nobody yet."""
    if named is not None and named != s.user_id:
        s.scope.require("system")
    return named if named is not None or s.sees_all else s.user_id


def settle_inbox(
    s: Session, platform: Surface, key: str, status: str, decision: str | None, turn_id: str | None
) -> bool:
    which = (s.tenant_id, platform, key, s.user_id, s.sees_all)
    return s.run(_SQL["settle_inbox"], (status, decision, turn_id, s.now_us(), *which)) > 0


def find_inbox(s: Session, platform: Surface, key: str) -> InboxRow | None:
    row = s.row(_SQL["find_inbox"], (s.tenant_id, platform, key, s.user_id, s.sees_all))
    return None if row is None else rows.inbox_row(row)


def drop_settled(s: Session, before: dt.datetime) -> int:
    s.scope.require("system")
    which = (s.tenant_id, to_us(before))
    return s.run(_SQL["drop_inbox"], which) + s.run(_SQL["drop_outbox"], which)


def enqueue(
    s: Session,
    platform: Surface,
    recipient: str,
    payload: CleanText,
    turn_id: str | None,
    owner_id: str,
    id: str | None,
) -> OutboxRow:
    _owner(s, owner_id)
    outbox_id = new_id() if id is None else check_id("outbox", id)
    known = s.row(_SQL["is_enqueued"], (s.tenant_id, outbox_id))
    if known is not None and known[0] != owner_id:
        raise DuplicateId("outbox row", outbox_id)
    if known is None:
        s.introduce(owner_id)
        now = s.now_us()
        what = (s.tenant_id, outbox_id, owner_id, turn_id, platform, recipient, payload)
        s.run(_SQL["enqueue"], (*what, now, now))
    return _outbox_row(s, outbox_id)


def _outbox_row(s: Session, outbox_id: str) -> OutboxRow:
    row = s.row(_SQL["find_outbox"], (s.tenant_id, outbox_id, s.user_id, s.sees_all))
    if row is None:
        raise NotFound("outbox row", outbox_id)
    return rows.outbox_row(row)


def claim_outbox(s: Session, worker: str, until: dt.datetime, limit: int) -> list[OutboxRow]:
    s.scope.require("system")
    due = [id for (id,) in s.rows(_SQL["find_due"], (s.tenant_id, s.now_us(), limit))]
    for outbox_id in due:
        s.run(_SQL["claim_outbox"], (worker, to_us(until), ABANDONED, s.tenant_id, outbox_id))
    return [_outbox_row(s, outbox_id) for outbox_id in due]


def settle_outbox(
    s: Session,
    outbox_id: str,
    worker: str,
    status: OutboxStatus,
    next_attempt_at: dt.datetime | None,
    error: str | None,
) -> bool:
    what = (status, rows.microseconds(next_attempt_at), error, s.now_us() if status == "sent" else None)
    return s.run(_SQL["settle_outbox"], (*what, s.tenant_id, outbox_id, s.user_id, s.sees_all, worker)) > 0


def list_outbox(s: Session, status: OutboxStatus | None, limit: int) -> list[OutboxRow]:
    wanted = (s.tenant_id, s.user_id, s.sees_all, status, limit)
    return [rows.outbox_row(row) for row in s.rows(_SQL["list_outbox"], wanted)]


def requeue(s: Session, outbox_id: str) -> OutboxRow:
    row = _outbox_row(s, outbox_id)
    if row.status != "dead":
        raise Conflict(f"outbox row {outbox_id!r} is {row.status}, only a dead one can be requeued")
    s.run(_SQL["requeue"], (s.now_us(), s.tenant_id, outbox_id))
    return _outbox_row(s, outbox_id)
