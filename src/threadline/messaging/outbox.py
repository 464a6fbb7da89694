"""The outbox: what is to be delivered to a platform, until it is.

A reply is enqueued in the transaction that stores it, one row for each piece that the platform takes. Rows that were
given up stay visible, and an administrator can have them tried again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import get_args

from threadline.core.channels import InboxRow, OutboxRow, OutboxStatus
from threadline.core.checks import check_choice, check_range
from threadline.core.platform_messages import Permanent, Report, Sent, WindowClosed
from threadline.core.reply_text import arrived_as, delivered_text
from threadline.core.sealing import CleanText, Sealer
from threadline.core.threads import Scope, system_scope
from threadline.core.turn_commits import ReplyDelivery, outbox_id
from threadline.core.turns import Surface, Turn
from threadline.ports import Channel, Store, Transaction

_MOST_LISTED = 1_000
_REASON_LENGTH = 300
# Platforms take some thousand characters in a message, and nobody reads dozens of them in a row.
_LONGEST = 40_000
_CUT = "\n\n… The answer is longer than fits here; all of it is in the thread."


class Outbox:
    """`wake` is told which tenant has something to deliver."""

    def __init__(
        self, store: Store, sealer: Sealer, channels: Mapping[Surface, Channel], wake: Callable[[str], None]
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._channels = channels
        self._nudge = wake

    def render_reply(self, turn: Turn, said: str) -> ReplyDelivery | None:
        """What the sender of an ended turn is sent; None if the turn came from no platform, or its platform is switched
        off: then the inbox row stays open, and the sweep delivers the reply when the platform is back."""
        key = arrived_as(turn)
        payloads = None if key is None else self._render(turn.surface, delivered_text(turn, said))
        return None if key is None or payloads is None else ReplyDelivery(turn.surface, key, payloads)

    async def enqueue_reply(self, tx: Transaction, turn: Turn, said: str) -> None:
        """Delivers the reply of a turn that has ended, inside a transaction; done twice, it is stored once."""
        delivery = self.render_reply(turn, said)
        arrived = None if delivery is None else await tx.inbox_row(delivery.platform, delivery.key)
        if delivery is None or arrived is None or arrived.reply_to is None:
            return
        await self._enqueue(tx, arrived, delivery.payloads, owner_id=turn.owner_id, name=turn.id, turn_id=turn.id)
        await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision=turn.status, turn_id=turn.id)

    async def answer(self, tx: Transaction, arrived: InboxRow, text: str, *, owner_id: str) -> bool:
        """Answers an arrival that became no turn, inside a transaction; done twice, it is stored once. False if its
        platform is switched off, or it has no place to answer to."""
        payloads = self._render(arrived.platform, text)
        if payloads is None or arrived.reply_to is None:
            return False
        name = hashlib.sha256(f"{arrived.platform} {arrived.key}".encode()).hexdigest()[:40]
        await self._enqueue(tx, arrived, payloads, owner_id=owner_id, name=name, turn_id=None)
        return True

    def _render(self, platform: Surface, text: str) -> tuple[CleanText, ...] | None:
        if (channel := self._channels.get(platform)) is None:
            return None
        clean = self._sealer.text(text if len(text) <= _LONGEST else text[:_LONGEST] + _CUT, "reply")
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

    async def hear(self, tenant_id: str, report: Report) -> bool:
        """What a platform says later of a delivery: that it arrived after all, or that it never will. False if that is
        no news."""
        was: OutboxStatus = "waiting" if isinstance(report.outcome, Sent) else "sent"
        status, error = _reported(report)
        tx = self._store.scoped(system_scope(tenant_id))
        return await tx.report_outbox(report.key, was=was, status=status, error=error)

    async def listed(self, scope: Scope, *, status: str | None = None, limit: int = 100) -> list[OutboxRow]:
        """The tenant's rows, newest first. Administrators only."""
        scope.require("admin")
        check_range("limit", limit, 1, _MOST_LISTED)
        return await self._store.scoped(system_scope(scope.tenant_id)).outbox(status=_status(status), limit=limit)

    async def requeue(self, scope: Scope, outbox_id: str) -> OutboxRow:
        """A dead row waits again, its attempts reset. NotFound; Conflict if it is not dead. Administrators only."""
        scope.require("admin")

        async def work(tx: Transaction) -> OutboxRow:
            row = await tx.requeue(outbox_id)
            await tx.record_act("outbox.requeued", outbox_id, actor_id=scope.user_id)
            return row

        row = await self._store.transact(system_scope(scope.tenant_id), work)
        self._nudge(scope.tenant_id)
        return row


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
