"""Inbox and outbox: each arrival claimed once, each delivery one worker's at a time."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence

from threadline.core.channels import ABANDONED, InboxRow, OutboxRow, OutboxStatus
from threadline.core.errors import Conflict, DuplicateId, NotFound
from threadline.core.ids import check_id, new_id
from threadline.core.messages import to_us
from threadline.core.sealing import CleanText
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Verbs
from threadline.stores.sqlite.session import Reach

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

    async def unanswered(self, *, limit: int = 100) -> list[InboxRow]:
        return await self._engine.read(list_unanswered, limit)

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

    async def claim_outbox(
        self, worker: str, *, until: dt.datetime, limit: int = 10, platforms: Sequence[Surface] | None = None
    ) -> list[OutboxRow]:
        return await self._engine.write(claim_outbox, worker, until, limit, platforms)

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

    async def report_outbox(
        self, outbox_id: str, *, was: OutboxStatus, status: OutboxStatus, error: str | None = None
    ) -> bool:
        return await self._engine.write(report_outbox, outbox_id, was, status, error)

    async def outbox(self, *, status: OutboxStatus | None = None, limit: int = 100) -> list[OutboxRow]:
        return await self._engine.read(list_outbox, status, limit)

    async def requeue(self, outbox_id: str) -> OutboxRow:
        return await self._engine.write(requeue, outbox_id)


def claim_inbox(
    reach: Reach, platform: Surface, key: str, what: tuple[str | None, ...], owner_id: str | None
) -> InboxRow | None:
    owner = _owner(reach, owner_id)
    if is_claimed(reach, platform, key):
        return None
    add_inbox(reach, platform, key, what, owner)
    return find_inbox(reach, platform, key)


def is_claimed(reach: Reach, platform: Surface, key: str) -> bool:
    return reach.row(_SQL["find_claim"], (reach.tenant_id, platform, key)) is not None


def add_inbox(reach: Reach, platform: Surface, key: str, what: tuple[str | None, ...], owner: str | None) -> None:
    reach.introduce(owner)
    now = reach.now_us()
    reach.run(_SQL["add_inbox"], (reach.tenant_id, platform, key, *what, owner, now, now))


def _owner(reach: Reach, named: str | None) -> str | None:
    """Whose row it is to be. A user's own, unless the house names somebody, or nobody yet."""
    if named is not None and named != reach.user_id:
        reach.scope.require("system")
    return named if named is not None or reach.sees_all else reach.user_id


def settle_inbox(
    reach: Reach, platform: Surface, key: str, status: str, decision: str | None, turn_id: str | None
) -> bool:
    which = (reach.tenant_id, platform, key, reach.user_id, reach.sees_all)
    return reach.run(_SQL["settle_inbox"], (status, decision, turn_id, reach.now_us(), *which)) > 0


def find_inbox(reach: Reach, platform: Surface, key: str) -> InboxRow | None:
    row = reach.row(_SQL["find_inbox"], (reach.tenant_id, platform, key, reach.user_id, reach.sees_all))
    return None if row is None else rows.inbox_row(row)


def list_unanswered(reach: Reach, limit: int) -> list[InboxRow]:
    reach.scope.require("system")
    return [rows.inbox_row(row) for row in reach.rows(_SQL["list_unanswered"], (reach.tenant_id, limit))]


def drop_settled(reach: Reach, before: dt.datetime) -> int:
    reach.scope.require("system")
    which = (reach.tenant_id, to_us(before))
    return reach.run(_SQL["drop_inbox"], which) + reach.run(_SQL["drop_outbox"], which)


def enqueue(
    reach: Reach,
    platform: Surface,
    recipient: str,
    payload: CleanText,
    turn_id: str | None,
    owner_id: str,
    id: str | None,
) -> OutboxRow:
    _owner(reach, owner_id)
    outbox_id = new_id() if id is None else check_id("outbox", id)
    known = reach.row(_SQL["is_enqueued"], (reach.tenant_id, outbox_id))
    if known is not None and known[0] != owner_id:
        raise DuplicateId("outbox row", outbox_id)
    if known is None:
        reach.introduce(owner_id)
        now = reach.now_us()
        what = (reach.tenant_id, outbox_id, owner_id, turn_id, platform, recipient, payload)
        reach.run(_SQL["enqueue"], (*what, now, now))
    return _outbox_row(reach, outbox_id)


def _outbox_row(reach: Reach, outbox_id: str) -> OutboxRow:
    row = reach.row(_SQL["find_outbox"], (reach.tenant_id, outbox_id, reach.user_id, reach.sees_all))
    if row is None:
        raise NotFound("outbox row", outbox_id)
    return rows.outbox_row(row)


def claim_outbox(
    reach: Reach, worker: str, until: dt.datetime, limit: int, platforms: Sequence[Surface] | None
) -> list[OutboxRow]:
    reach.scope.require("system")
    wanted = None if platforms is None else json.dumps(list(platforms))
    due = [id for (id,) in reach.rows(_SQL["find_due"], (reach.tenant_id, reach.now_us(), limit, wanted))]
    for outbox_id in due:
        reach.run(_SQL["claim_outbox"], (worker, to_us(until), ABANDONED, reach.tenant_id, outbox_id))
    return [_outbox_row(reach, outbox_id) for outbox_id in due]


def settle_outbox(
    reach: Reach,
    outbox_id: str,
    worker: str,
    status: OutboxStatus,
    next_attempt_at: dt.datetime | None,
    error: str | None,
) -> bool:
    what = (status, rows.microseconds(next_attempt_at), error, reach.now_us() if status == "sent" else None)
    return (
        reach.run(_SQL["settle_outbox"], (*what, reach.tenant_id, outbox_id, reach.user_id, reach.sees_all, worker)) > 0
    )


def report_outbox(reach: Reach, outbox_id: str, was: OutboxStatus, status: OutboxStatus, error: str | None) -> bool:
    reach.scope.require("system")
    what = (status, error, reach.now_us() if status == "sent" else None)
    return reach.run(_SQL["report_outbox"], (*what, reach.tenant_id, outbox_id, was)) > 0


def list_outbox(reach: Reach, status: OutboxStatus | None, limit: int) -> list[OutboxRow]:
    wanted = (reach.tenant_id, reach.user_id, reach.sees_all, status, limit)
    return [rows.outbox_row(row) for row in reach.rows(_SQL["list_outbox"], wanted)]


def requeue(reach: Reach, outbox_id: str) -> OutboxRow:
    row = _outbox_row(reach, outbox_id)
    if row.status != "dead":
        raise Conflict(f"outbox row {outbox_id!r} is {row.status}, only a dead one can be requeued")
    reach.run(_SQL["requeue"], (reach.now_us(), reach.tenant_id, outbox_id))
    return _outbox_row(reach, outbox_id)
