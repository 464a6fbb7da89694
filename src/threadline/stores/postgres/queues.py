"""Inbox and outbox: each arrival claimed once, each delivery one worker's at a time.

Workers that claim at the same time skip each other's rows instead of waiting for them.
"""

from __future__ import annotations

import datetime as dt

from threadline.core.channels import ABANDONED, InboxRow, OutboxRow, OutboxStatus
from threadline.core.errors import Conflict, DuplicateId, NotFound
from threadline.core.ids import check_id, new_id
from threadline.core.sealing import CleanText
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.postgres.reach import Reach, within
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/queues.sql")


class QueueVerbs:
    reach: Reach

    @within
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
        owner = self._owner(owner_id)
        await self.reach.introduce(owner or self.reach.owner_id)
        row = await self.reach.row(
            _SQL["claim_inbox"], platform, key, fingerprint, correlation_id, reply_to, owner, self.reach.now()
        )
        return None if row is None else rows.inbox_row(row)

    def _owner(self, named: str | None) -> str | None:
        """Whose row it is to be: a user's own, unless the house names somebody, or nobody yet."""
        reach = self.reach
        if named is not None and named != reach.owner_id:
            reach.scope.require("system")
        return named if named is not None or reach.scope.role == "system" else reach.owner_id

    @within
    async def settle_inbox(
        self, platform: Surface, key: str, *, status: str, decision: str | None = None, turn_id: str | None = None
    ) -> bool:
        now = self.reach.now()
        return await self.reach.run(_SQL["settle_inbox"], platform, key, status, decision, turn_id, now) > 0

    @within
    async def inbox_row(self, platform: Surface, key: str) -> InboxRow | None:
        row = await self.reach.row(_SQL["find_inbox"], platform, key)
        return None if row is None else rows.inbox_row(row)

    @within
    async def unanswered(self, *, limit: int = 100) -> list[InboxRow]:
        self.reach.scope.require("system")
        return [rows.inbox_row(row) for row in await self.reach.rows(_SQL["list_unanswered"], limit)]

    @within
    async def drop_settled(self, *, before: dt.datetime) -> int:
        self.reach.scope.require("system")
        dropped = await self.reach.run(_SQL["drop_inbox"], before)
        return dropped + await self.reach.run(_SQL["drop_outbox"], before)

    @within
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
        self._owner(owner_id)
        outbox_id = new_id() if id is None else check_id("outbox", id)
        await self.reach.introduce(owner_id)
        values = (outbox_id, owner_id, turn_id, platform, recipient, payload, self.reach.now())
        await self.reach.run(_SQL["enqueue"], *values)
        row = await self.reach.row(_SQL["find_outbox"], outbox_id)
        if row is None or row["owner_id"] != owner_id:
            raise DuplicateId("outbox row", outbox_id)
        return rows.outbox_row(row)

    @within
    async def claim_outbox(self, worker: str, *, until: dt.datetime, limit: int = 10) -> list[OutboxRow]:
        self.reach.scope.require("system")
        values = (worker, until, self.reach.now(), limit, ABANDONED)
        claimed = await self.reach.rows(_SQL["claim_outbox"], *values)
        return [rows.outbox_row(row[:-1]) for row in sorted(claimed, key=lambda row: row["place"])]

    @within
    async def settle_outbox(
        self,
        outbox_id: str,
        worker: str,
        *,
        status: OutboxStatus,
        next_attempt_at: dt.datetime | None = None,
        error: str | None = None,
    ) -> bool:
        values = (outbox_id, worker, status, next_attempt_at, error, self.reach.now())
        return await self.reach.run(_SQL["settle_outbox"], *values) > 0

    @within
    async def report_outbox(
        self, outbox_id: str, *, was: OutboxStatus, status: OutboxStatus, error: str | None = None
    ) -> bool:
        self.reach.scope.require("system")
        values = (outbox_id, was, status, error, self.reach.now())
        return await self.reach.run(_SQL["report_outbox"], *values) > 0

    @within
    async def outbox(self, *, status: OutboxStatus | None = None, limit: int = 100) -> list[OutboxRow]:
        found = await self.reach.rows(_SQL["list_outbox"], self.reach.owner_in_sight, status, limit)
        return [rows.outbox_row(row) for row in found]

    @within
    async def requeue(self, outbox_id: str) -> OutboxRow:
        row = await self.reach.row(_SQL["requeue"], outbox_id, self.reach.now())
        if row is not None:
            return rows.outbox_row(row)
        found = await self.reach.row(_SQL["find_outbox"], outbox_id)
        if found is None:
            raise NotFound("outbox row", outbox_id)
        raise Conflict(f"outbox row {outbox_id!r} is {found['status']}, only a dead one can be requeued")
