"""What channels store: the sealed credentials of platforms, the inbox and the outbox.

Each arrival is claimed once, and each delivery by one worker at a time; workers that claim at the same time skip each
other's rows instead of waiting for them. Only the system scope reads credentials, and nothing here can decrypt them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from threadline.core.channels import (
    ABANDONED,
    InboxRow,
    InboxStatus,
    OutboxBacklog,
    OutboxRow,
    OutboxStatus,
    SealedCredentials,
)
from threadline.core.errors import DuplicateId, NotFound, cannot_requeue
from threadline.core.ids import check_id, new_id
from threadline.core.sealing import CleanText
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/channels.sql")


class QueueOperations(Operations):
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
        values = (platform, key, fingerprint, correlation_id, reply_to, self._owner(owner_id))
        found = await self.session.call(_SQL["claim_inbox"], self.session.now_us(), *values)
        return rows.inbox_row(found[0]) if found else None

    def _owner(self, named: str | None) -> str | None:
        """Who owns the row: the user of the scope, or in the system scope the given user, or none yet."""
        session = self.session
        if named is not None and named != session.owner_id:
            session.scope.require("system")
        return named if named is not None or session.scope.role == "system" else session.owner_id

    @in_transaction
    async def settle_inbox(
        self, platform: Surface, key: str, *, status: str, decision: str | None = None, turn_id: str | None = None
    ) -> bool:
        now = self.session.now()
        return await self.session.run(_SQL["settle_inbox"], platform, key, status, decision, turn_id, now) > 0

    @in_transaction
    async def inbox_row(self, platform: Surface, key: str) -> InboxRow | None:
        row = await self.session.row(_SQL["find_inbox"], platform, key)
        return None if row is None else rows.inbox_row(row)

    @in_transaction
    async def inbox(
        self, *, status: InboxStatus | None = None, platform: Surface | None = None, limit: int = 100
    ) -> list[InboxRow]:
        found = await self.session.rows(_SQL["list_inbox"], self.session.owner_filter, status, limit, platform)
        return [rows.inbox_row(row) for row in found]

    @in_transaction
    async def unanswered(self, *, limit: int = 100) -> list[InboxRow]:
        self.session.scope.require("system")
        return [rows.inbox_row(row) for row in await self.session.rows(_SQL["list_unanswered"], limit)]

    @in_transaction
    async def drop_settled(self, *, before: dt.datetime) -> int:
        self.session.scope.require("system")
        dropped = await self.session.run(_SQL["drop_inbox"], before)
        return dropped + await self.session.run(_SQL["drop_outbox"], before)

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
        values = (outbox_id, owner_id, turn_id, platform, recipient, payload)
        found = await self.session.call(_SQL["enqueue"], self.session.now_us(), *values)
        if not found or found[0]["owner_id"] != owner_id:
            raise DuplicateId("outbox row", outbox_id)
        return rows.outbox_row(found[0])

    async def claim_outbox(
        self,
        worker: str,
        *,
        until: dt.datetime,
        limit: int = 10,
        platforms: Sequence[Surface] | None = None,
        gone: Sequence[str] = (),
        holding: Sequence[str] = (),
    ) -> list[OutboxRow]:
        self.session.scope.require("system")
        wanted = None if platforms is None else list(platforms)
        values = (worker, until, self.session.now(), limit, ABANDONED, wanted, list(gone), list(holding))
        return [rows.outbox_row(row) for row in await self.session.call(_SQL["claim_outbox"], *values)]

    async def settle_outbox(
        self,
        outbox_id: str,
        worker: str,
        *,
        status: OutboxStatus,
        next_attempt_at: dt.datetime | None = None,
        error: str | None = None,
        message_id: str | None = None,
    ) -> bool:
        values = (self.session.now(), outbox_id, worker, status, next_attempt_at, error, message_id)
        ((settled,),) = await self.session.call(_SQL["settle_outbox"], *values)
        return bool(settled)

    @in_transaction
    async def report_outbox(
        self, outbox_id: str, *, was: OutboxStatus, status: OutboxStatus, error: str | None = None
    ) -> bool:
        self.session.scope.require("system")
        values = (outbox_id, was, status, error, self.session.now())
        return await self.session.run(_SQL["report_outbox"], *values) > 0

    @in_transaction
    async def outbox(
        self, *, status: OutboxStatus | None = None, platform: Surface | None = None, limit: int = 100
    ) -> list[OutboxRow]:
        found = await self.session.rows(_SQL["list_outbox"], self.session.owner_filter, status, limit, platform)
        return [rows.outbox_row(row) for row in found]

    @in_transaction
    async def outbox_row(self, outbox_id: str) -> OutboxRow | None:
        row = await self.session.row(_SQL["find_outbox"], outbox_id)
        return None if row is None else rows.outbox_row(row)

    @in_transaction
    async def outbox_workers(self) -> list[str]:
        self.session.scope.require("system")
        return [row["claimed_by"] for row in await self.session.rows(_SQL["list_workers"])]

    @in_transaction
    async def outbox_backlog(self) -> list[OutboxBacklog]:
        self.session.scope.require("system")
        return [rows.outbox_backlog(row) for row in await self.session.rows(_SQL["list_backlog"])]

    @in_transaction
    async def requeue(self, outbox_id: str) -> OutboxRow:
        row = await self.session.row(_SQL["requeue"], outbox_id, self.session.now())
        if row is not None:
            return rows.outbox_row(row)
        found = await self.session.row(_SQL["find_outbox"], outbox_id)
        if found is None:
            raise NotFound("outbox row", outbox_id)
        raise cannot_requeue(outbox_id, found["status"])

    @in_transaction
    async def requeue_all(
        self,
        statuses: Sequence[OutboxStatus],
        *,
        platform: Surface | None = None,
        recipient: str | None = None,
        since: dt.datetime | None = None,
    ) -> int:
        which = (list(statuses), platform, recipient, since)
        return await self.session.run(_SQL["requeue_all"], self.session.now(), self.session.owner_filter, *which)


class CredentialOperations(Operations):
    @in_transaction
    async def put_credentials(self, platform: Surface, key_id: str, sealed: bytes) -> SealedCredentials:
        self.session.scope.require("system")
        await self.session.ensure_user(self.session.owner_id)
        row = await self.session.row(_SQL["put_credentials"], platform, key_id, sealed, self.session.now())
        assert row is not None
        return rows.credentials(row)

    async def credentials(self, platform: Surface) -> SealedCredentials | None:
        self.session.scope.require("system")
        found = await self.session.call(_SQL["find_credentials"], platform, reads=True)
        return rows.credentials(found[0]) if found else None

    @in_transaction
    async def all_credentials(self) -> list[SealedCredentials]:
        self.session.scope.require("system")
        return [rows.credentials(row) for row in await self.session.rows(_SQL["list_credentials"])]

    @in_transaction
    async def delete_credentials(self, platform: Surface) -> bool:
        self.session.scope.require("system")
        return await self.session.run(_SQL["delete_credentials"], platform) > 0
