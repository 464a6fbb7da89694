"""Inbox and outbox: each arrival is claimed once, each delivery belongs to one worker at a time."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence

from threadline.core.channels import (
    ABANDONED,
    REQUEUEABLE,
    InboxRow,
    InboxStatus,
    OutboxBacklog,
    OutboxRow,
    OutboxStatus,
)
from threadline.core.errors import DuplicateId, NotFound, cannot_requeue
from threadline.core.ids import check_id, new_id
from threadline.core.messages import to_us
from threadline.core.sealing import CleanText
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/queues.sql")


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
        what = (fingerprint, correlation_id, reply_to)
        return await self._engine.write(claim_inbox, platform, key, what, owner_id)

    async def settle_inbox(
        self, platform: Surface, key: str, *, status: str, decision: str | None = None, turn_id: str | None = None
    ) -> bool:
        return await self._engine.write(settle_inbox, platform, key, status, decision, turn_id)

    async def inbox_row(self, platform: Surface, key: str) -> InboxRow | None:
        return await self._engine.read(find_inbox, platform, key)

    async def inbox(
        self, *, status: InboxStatus | None = None, platform: Surface | None = None, limit: int = 100
    ) -> list[InboxRow]:
        return await self._engine.read(list_inbox, status, platform, limit)

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
        self,
        worker: str,
        *,
        until: dt.datetime,
        limit: int = 10,
        platforms: Sequence[Surface] | None = None,
        gone: Sequence[str] = (),
        holding: Sequence[str] = (),
    ) -> list[OutboxRow]:
        return await self._engine.write(claim_outbox, worker, until, limit, platforms, gone, holding)

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
        return await self._engine.write(settle_outbox, outbox_id, worker, status, next_attempt_at, error, message_id)

    async def report_outbox(
        self, outbox_id: str, *, was: OutboxStatus, status: OutboxStatus, error: str | None = None
    ) -> bool:
        return await self._engine.write(report_outbox, outbox_id, was, status, error)

    async def outbox(
        self, *, status: OutboxStatus | None = None, platform: Surface | None = None, limit: int = 100
    ) -> list[OutboxRow]:
        return await self._engine.read(list_outbox, status, platform, limit)

    async def outbox_row(self, outbox_id: str) -> OutboxRow | None:
        return await self._engine.read(find_outbox, outbox_id)

    async def outbox_workers(self) -> list[str]:
        return await self._engine.read(list_workers)

    async def outbox_backlog(self) -> list[OutboxBacklog]:
        return await self._engine.read(list_backlog)

    async def requeue(self, outbox_id: str) -> OutboxRow:
        return await self._engine.write(requeue, outbox_id)

    async def requeue_all(
        self,
        statuses: Sequence[OutboxStatus],
        *,
        platform: Surface | None = None,
        recipient: str | None = None,
        since: dt.datetime | None = None,
    ) -> int:
        return await self._engine.write(requeue_all, statuses, platform, recipient, since)


def claim_inbox(
    session: ScopedSession, platform: Surface, key: str, what: tuple[str | None, ...], owner_id: str | None
) -> InboxRow | None:
    owner = _owner(session, owner_id)
    if is_claimed(session, platform, key):
        return None
    add_inbox(session, platform, key, what, owner)
    return find_inbox(session, platform, key)


def is_claimed(session: ScopedSession, platform: Surface, key: str) -> bool:
    return session.row(_SQL["find_claim"], (session.tenant_id, platform, key)) is not None


def add_inbox(
    session: ScopedSession, platform: Surface, key: str, what: tuple[str | None, ...], owner: str | None
) -> None:
    session.ensure_owner(owner)
    now = session.now_us()
    session.run(_SQL["add_inbox"], (session.tenant_id, platform, key, *what, owner, now, now))


def _owner(session: ScopedSession, named: str | None) -> str | None:
    """The owner of a new row: the named user, else the session's user; a row of the system scope may have none."""
    if named is not None and named != session.user_id:
        session.scope.require("system")
    return named if named is not None or session.sees_all else session.user_id


def settle_inbox(
    session: ScopedSession, platform: Surface, key: str, status: str, decision: str | None, turn_id: str | None
) -> bool:
    which = (session.tenant_id, platform, key, session.user_id, session.sees_all)
    return session.run(_SQL["settle_inbox"], (status, decision, turn_id, session.now_us(), *which)) > 0


def find_inbox(session: ScopedSession, platform: Surface, key: str) -> InboxRow | None:
    return session.read(
        rows.inbox_row, _SQL["find_inbox"], (session.tenant_id, platform, key, session.user_id, session.sees_all)
    )


def list_inbox(
    session: ScopedSession, status: InboxStatus | None, platform: Surface | None, limit: int
) -> list[InboxRow]:
    wanted = (session.tenant_id, session.user_id, session.sees_all, status, limit, platform)
    return session.read_all(rows.inbox_row, _SQL["list_inbox"], wanted)


def list_unanswered(session: ScopedSession, limit: int) -> list[InboxRow]:
    session.scope.require("system")
    return session.read_all(rows.inbox_row, _SQL["list_unanswered"], (session.tenant_id, limit))


def drop_settled(session: ScopedSession, before: dt.datetime) -> int:
    session.scope.require("system")
    which = (session.tenant_id, to_us(before))
    return session.run(_SQL["drop_inbox"], which) + session.run(_SQL["drop_outbox"], which)


def enqueue(
    session: ScopedSession,
    platform: Surface,
    recipient: str,
    payload: CleanText,
    turn_id: str | None,
    owner_id: str,
    id: str | None,
) -> OutboxRow:
    _owner(session, owner_id)
    outbox_id = new_id() if id is None else check_id("outbox", id)
    known = session.row(_SQL["is_enqueued"], (session.tenant_id, outbox_id))
    if known is not None and known[0] != owner_id:
        raise DuplicateId("outbox row", outbox_id)
    if known is None:
        session.ensure_owner(owner_id)
        now = session.now_us()
        what = (session.tenant_id, outbox_id, owner_id, turn_id, platform, recipient, payload)
        session.run(_SQL["enqueue"], (*what, now, now))
    return _outbox_row(session, outbox_id)


def find_outbox(session: ScopedSession, outbox_id: str) -> OutboxRow | None:
    which = (session.tenant_id, outbox_id, session.user_id, session.sees_all)
    return session.read(rows.outbox_row, _SQL["find_outbox"], which)


def _outbox_row(session: ScopedSession, outbox_id: str) -> OutboxRow:
    row = find_outbox(session, outbox_id)
    if row is None:
        raise NotFound("outbox row", outbox_id)
    return row


def claim_outbox(
    session: ScopedSession,
    worker: str,
    until: dt.datetime,
    limit: int,
    platforms: Sequence[Surface] | None,
    gone: Sequence[str],
    holding: Sequence[str],
) -> list[OutboxRow]:
    session.scope.require("system")
    wanted = None if platforms is None else json.dumps(list(platforms))
    which = (session.tenant_id, session.now_us(), limit, wanted, json.dumps(list(gone)), json.dumps(list(holding)))
    due = [id for (id,) in session.rows(_SQL["find_due"], which)]
    for outbox_id in due:
        session.run(_SQL["claim_outbox"], (worker, to_us(until), ABANDONED, session.tenant_id, outbox_id))
    return [_outbox_row(session, outbox_id) for outbox_id in due]


def settle_outbox(
    session: ScopedSession,
    outbox_id: str,
    worker: str,
    status: OutboxStatus,
    next_attempt_at: dt.datetime | None,
    error: str | None,
    message_id: str | None,
) -> bool:
    sent_us = session.now_us() if status == "sent" else None
    what = (status, rows.microseconds(next_attempt_at), error, sent_us, message_id)
    return (
        session.run(
            _SQL["settle_outbox"], (*what, session.tenant_id, outbox_id, session.user_id, session.sees_all, worker)
        )
        > 0
    )


def report_outbox(
    session: ScopedSession, outbox_id: str, was: OutboxStatus, status: OutboxStatus, error: str | None
) -> bool:
    session.scope.require("system")
    what = (status, error, session.now_us() if status == "sent" else None)
    return session.run(_SQL["report_outbox"], (*what, session.tenant_id, outbox_id, was)) > 0


def list_outbox(
    session: ScopedSession, status: OutboxStatus | None, platform: Surface | None, limit: int
) -> list[OutboxRow]:
    wanted = (session.tenant_id, session.user_id, session.sees_all, status, limit, platform)
    return session.read_all(rows.outbox_row, _SQL["list_outbox"], wanted)


def list_workers(session: ScopedSession) -> list[str]:
    session.scope.require("system")
    return [worker for (worker,) in session.rows(_SQL["list_workers"], (session.tenant_id,))]


def list_backlog(session: ScopedSession) -> list[OutboxBacklog]:
    session.scope.require("system")
    return session.read_all(rows.outbox_backlog, _SQL["list_backlog"], (session.tenant_id,))


def requeue(session: ScopedSession, outbox_id: str) -> OutboxRow:
    row = _outbox_row(session, outbox_id)
    if row.status not in REQUEUEABLE:
        raise cannot_requeue(outbox_id, row.status)
    session.run(_SQL["requeue"], (session.now_us(), session.tenant_id, outbox_id))
    return _outbox_row(session, outbox_id)


def requeue_all(
    session: ScopedSession,
    statuses: Sequence[OutboxStatus],
    platform: Surface | None,
    recipient: str | None,
    since: dt.datetime | None,
) -> int:
    which = (json.dumps(list(statuses)), platform, recipient, rows.microseconds(since))
    who = (session.now_us(), session.tenant_id, session.user_id, session.sees_all)
    return session.run(_SQL["requeue_all"], (*who, *which))
