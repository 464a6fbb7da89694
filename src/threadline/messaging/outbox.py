"""The outbox: deliveries to platforms.

A reply is enqueued in the transaction that stores it, one row per message that the platform accepts. Dead letters stay
listed, and an administrator can requeue them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping
from typing import get_args

from threadline.core.channels import REQUEUEABLE, InboxRow, OutboxBacklog, OutboxRow, OutboxStatus
from threadline.core.checks import check_choice, check_range
from threadline.core.messages import Message
from threadline.core.parts import decode
from threadline.core.platform_messages import Arrival, Permanent, Report, Sent, WindowClosed
from threadline.core.reply_text import arrived_as, delivered_text, reply_markdown
from threadline.core.room_messages import RoomMessage, encode
from threadline.core.sealing import CleanText, Sealer
from threadline.core.threads import Scope, system_scope
from threadline.core.turn_commits import ReplyDelivery, outbox_id
from threadline.core.turns import CHANNELS, Surface, Turn, reply_id
from threadline.messaging.rooms import NO_CHANGES, ROOM_PLATFORMS, RoomChanges
from threadline.ports import Channel, Store, Transaction

_MOST_LISTED = 1_000
# A platform's reason may quote a whole page.
_REASON_LENGTH = 300
# Platforms accept a few thousand characters per message; more than a dozen messages in a row are not read.
_LONGEST = 40_000
_CUT = "\n\n… This reply is too long for a chat. The thread has all of it."


class Outbox:
    """`wake` is called with the tenant that has something to deliver."""

    def __init__(
        self, store: Store, sealer: Sealer, channels: Mapping[Surface, Channel], wake: Callable[[str], None]
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._channels = channels
        self._wake = wake

    def render_reply(self, turn: Turn, text: str, parts_json: bytes | None) -> ReplyDelivery | None:
        """What the sender of an ended turn is sent; None if the turn came from no platform, or its platform is
        disabled: then the inbox row stays open, and the sweep delivers the reply when the platform is enabled.
        `parts_json` is the reply, if there is one: rooms also show which tools it used."""
        key = arrived_as(turn)
        if key is None:
            return None
        if turn.surface in ROOM_PLATFORMS and parts_json is not None:
            text = reply_markdown(decode(parts_json))
        is_notice = parts_json is None
        payloads = self._render(turn.surface, delivered_text(turn, text), is_notice=is_notice)
        return None if payloads is None else ReplyDelivery(turn.surface, key, payloads)

    async def enqueue_reply(self, tx: Transaction, turn: Turn, text: str, parts_json: bytes | None) -> None:
        """Enqueues the reply of a turn that has ended, in the caller's transaction; a second call does nothing."""
        delivery = self.render_reply(turn, text, parts_json)
        arrived = None if delivery is None else await tx.inbox_row(delivery.platform, delivery.key)
        if delivery is None or arrived is None or arrived.reply_to is None:
            return
        await self._enqueue(tx, arrived, delivery.payloads, owner_id=turn.owner_id, name=turn.id, turn_id=turn.id)
        await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision=turn.status, turn_id=turn.id)

    async def answer(
        self, tx: Transaction, arrived: InboxRow, text: str, *, owner_id: str, changes: RoomChanges = NO_CHANGES
    ) -> bool:
        """Enqueues the reply to an arrival that became no turn, in the caller's transaction; a second call does
        nothing. `changes` are for rooms. False if the platform is disabled, or the arrival has no recipient."""
        payloads = self._render(arrived.platform, text, is_notice=True, changes=changes)
        if payloads is None or arrived.reply_to is None:
            return False
        name = answer_id(arrived.platform, arrived.key)
        await self._enqueue(tx, arrived, payloads, owner_id=owner_id, name=name, turn_id=None)
        return True

    async def announce(self, tx: Transaction, arrival: Arrival, changes: RoomChanges, *, name: str) -> None:
        """Enqueues changes of a room without a text."""
        if changes != NO_CHANGES:
            payload = encode(RoomMessage("", name=changes.name, binding=changes.binding))
            await tx.enqueue(
                arrival.platform,
                arrival.recipient,
                payload,
                turn_id=None,
                owner_id=tx.scope.user_id,
                id=f"{name}-state",
            )

    def _render(
        self, platform: Surface, text: str, *, is_notice: bool, changes: RoomChanges = NO_CHANGES
    ) -> tuple[CleanText, ...] | None:
        channel = self._channels.get(platform) if platform not in ROOM_PLATFORMS else None
        if channel is None and platform not in ROOM_PLATFORMS:
            return None
        clean = self._sealer.text(text if len(text) <= _LONGEST else text[:_LONGEST] + _CUT, "reply")
        if channel is None:
            # The bot of a room renders the Markdown itself: only it knows how far a live view has shown it.
            message = RoomMessage(clean, is_notice=is_notice, name=changes.name, binding=changes.binding)
            return (encode(message),)
        # Rendered from a clean text, a payload is clean.
        return tuple(CleanText(payload) for payload in channel.render(clean))

    async def _enqueue(
        self,
        tx: Transaction,
        arrived: InboxRow,
        payloads: tuple[CleanText, ...],
        *,
        owner_id: str,
        name: str,
        turn_id: str | None,
    ) -> None:
        assert arrived.reply_to is not None
        for number, payload in enumerate(payloads):
            id = outbox_id(name, number)
            await tx.enqueue(arrived.platform, arrived.reply_to, payload, turn_id=turn_id, owner_id=owner_id, id=id)

    async def record_delivery_report(self, tenant_id: str, report: Report) -> bool:
        """Stores what a platform reports about a delivery later: arrived after all, or never will. False if the row
        has that status already."""
        was: OutboxStatus = "waiting" if isinstance(report.outcome, Sent) else "sent"
        status, error = _reported(report)
        tx = self._store.scoped(system_scope(tenant_id))
        return await tx.report_outbox(report.key, was=was, status=status, error=error)

    async def list_rows(
        self, scope: Scope, *, status: str | None = None, platform: str | None = None, limit: int = 100
    ) -> list[OutboxRow]:
        """The tenant's rows, newest first. Administrators only."""
        scope.require("admin")
        check_range("limit", limit, 1, _MOST_LISTED)
        session = self._store.scoped(system_scope(scope.tenant_id))
        return await session.outbox(status=_status(status), platform=_platform(platform), limit=limit)

    async def backlog(self, scope: Scope) -> list[OutboxBacklog]:
        """What is not delivered. Administrators only."""
        scope.require("admin")
        return await self._store.scoped(system_scope(scope.tenant_id)).outbox_backlog()

    async def requeue(self, scope: Scope, outbox_id: str) -> OutboxRow:
        """Queues a dead or window-closed delivery again, with its attempts reset. NotFound; Conflict if it has another
        status. Administrators only."""
        scope.require("admin")

        async def work(tx: Transaction) -> OutboxRow:
            row = await tx.requeue(outbox_id)
            await tx.record_act("outbox.requeued", outbox_id, actor_id=scope.user_id)
            return row

        row = await self._store.transact(system_scope(scope.tenant_id), work)
        self._wake(scope.tenant_id)
        return row

    async def requeue_all(
        self, scope: Scope, *, status: str | None = None, platform: str | None = None, since: dt.datetime | None = None
    ) -> int:
        """Queues undelivered rows again: dead and window-closed ones, or those with one of these statuses, for one
        platform, enqueued at or after `since`. How many. Administrators only. InvalidInput."""
        scope.require("admin")
        statuses = REQUEUEABLE if status is None else (check_choice("status", status, REQUEUEABLE),)
        wanted = _platform(platform)

        async def work(tx: Transaction) -> int:
            count = await tx.requeue_all(statuses, platform=wanted, since=since)
            if count:
                await tx.record_act("outbox.requeued", f"{count} deliveries", actor_id=scope.user_id)
            return count

        count = await self._store.transact(system_scope(scope.tenant_id), work)
        self._wake(scope.tenant_id)
        return count


class UnansweredSweep:
    """Messages whose turn has ended, and for which no reply was enqueued. A reply is enqueued in the transaction that
    ends its turn, so this is rare: the turn was stopped before it ran, or its platform was disabled when it ended. Safe
    with any number of workers, because the ids of a reply's rows are fixed."""

    def __init__(self, store: Store, outbox: Outbox) -> None:
        self._store = store
        self._outbox = outbox

    async def sweep(self) -> int:
        """Sweeps every tenant. How many messages were found."""
        return sum([await self.catch_up(tenant_id) for tenant_id in await self._store.tenants()])

    async def catch_up(self, tenant_id: str) -> int:
        rows = await self._store.scoped(system_scope(tenant_id)).unanswered()
        for row in rows:
            if row.owner_id is not None:
                await self._answer(Scope(tenant_id, row.owner_id), row)
        return len(rows)

    async def _answer(self, scope: Scope, row: InboxRow) -> None:
        async def work(tx: Transaction) -> None:
            current = await tx.inbox_row(row.platform, row.key)
            if current is None or current.status != "accepted":
                return
            turn = None if row.turn_id is None else await tx.turn(row.turn_id)
            if turn is None:
                # The thread was purged: there is nothing to answer.
                await tx.settle_inbox(row.platform, row.key, status="done", decision="gone", turn_id=row.turn_id)
            elif not turn.is_active:
                reply = await _reply(tx, turn)
                if reply is None:
                    await self._outbox.enqueue_reply(tx, turn, turn.error or "", None)
                else:
                    await self._outbox.enqueue_reply(tx, turn, reply.text, reply.parts_json)

        await self._store.transact(scope, work)


def answer_id(platform: Surface, key: str) -> str:
    """What the rows that answer an arrival are named after."""
    return hashlib.sha256(f"{platform} {key}".encode()).hexdigest()[:40]


def _reported(report: Report) -> tuple[OutboxStatus, str | None]:
    match report.outcome:
        case Sent():
            return "sent", None
        case Permanent(reason):
            return "dead", reason[:_REASON_LENGTH]
        case WindowClosed(reason):
            return "window_closed", reason[:_REASON_LENGTH]


def _status(given: str | None) -> OutboxStatus | None:
    statuses: tuple[OutboxStatus, ...] = get_args(OutboxStatus)
    return None if given is None else check_choice("status", given, statuses)


async def _reply(tx: Transaction, turn: Turn) -> Message | None:
    thread = await tx.thread(turn.thread_id)
    return None if thread is None else await tx.message(thread.id, reply_id(turn.id))


def _platform(given: str | None) -> Surface | None:
    return None if given is None else check_choice("platform", given, sorted(CHANNELS))
