"""Settlement: records what came of a delivery, for the outbox worker and for bots that deliver themselves.

A transient fault is retried with exponential backoff until the delivery is too old; what is refused is a dead letter at
once. A send with an unknown outcome is retried and marked as ambiguous, so that its sender looks for it first. A room
that was opened is bound, one that was refused is discarded (see `rooms`).
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import random
from collections.abc import Callable

import msgspec

from threadline.core.channels import AMBIGUOUS, OutboxRow
from threadline.core.errors import InvalidInput
from threadline.core.platform_messages import (
    Ambiguous,
    Opened,
    Outcome,
    Permanent,
    Released,
    Sent,
    Transient,
    WindowClosed,
)
from threadline.core.room_messages import RoomRequest, decode
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope, system_scope
from threadline.messaging.rooms import ROOM_PLATFORMS, bind_opened, discard_refused
from threadline.messaging.window_templates import WindowTemplates
from threadline.observability.metrics import Metrics
from threadline.ports import Clock, Store, StoreSession, Transaction

log = logging.getLogger("threadline.outbox")

# A platform's reason may quote a whole page.
_REASON_LENGTH = 300


class DeliveryRetry(msgspec.Struct, frozen=True):
    """When a delivery is retried, and for how long."""

    give_up_seconds: float = 86_400.0
    """A delivery that fails this long after it was enqueued or requeued is a dead letter. Outages of platforms last
    hours, and WhatsApp accepts replies for a day."""
    first_seconds: float = 5.0
    longest_seconds: float = 120.0
    claim_seconds: float = 30.0
    """Longer than a send may take, so that another worker claims a row only if its worker is gone."""
    send_seconds: float = 20.0

    def wait(self, failed: int, asked: float | None, chance: float) -> float:
        """Seconds until the next attempt after so many failed ones: doubled each time, with jitter, never sooner than
        the platform asked for, never later than the longest."""
        backoff = self.first_seconds * 2.0 ** min(failed - 1, 16) * (1.0 + 0.2 * chance)
        return min(max(backoff, asked or 0.0), self.longest_seconds)


# A homeserver that is down is usually the user's own: replies wait for it instead of becoming dead letters.
ROOM_RETRY = DeliveryRetry(give_up_seconds=math.inf, first_seconds=0.25, longest_seconds=30.0)


class Settlement:
    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        clock: Clock,
        metrics: Metrics,
        templates: WindowTemplates,
        retry: DeliveryRetry,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self._templates = templates
        self._retry = retry
        self._chance = chance
        self._deliveries = metrics.counter(
            "threadline_outbox_deliveries_total", "Delivery attempts, by outcome.", ("platform", "outcome")
        )
        self._waits = metrics.histogram(
            "threadline_outbox_wait_seconds", "Seconds from enqueueing a reply to sending it.", ("platform",)
        )

    async def settle(self, tenant_id: str, row: OutboxRow, worker: str, outcome: Outcome) -> bool:
        """Records the outcome of a claimed row. False if the claim is no longer this worker's."""
        payload = decode(row.payload) if row.platform in ROOM_PLATFORMS else None
        if isinstance(payload, RoomRequest):
            return await self._settle_room(Scope(tenant_id, row.owner_id), row, worker, payload, outcome)
        return await self._settle(self._store.scoped(system_scope(tenant_id)), row, worker, outcome)

    async def _settle_room(
        self, scope: Scope, row: OutboxRow, worker: str, request: RoomRequest, outcome: Outcome
    ) -> bool:
        """In the owner's scope: the thread and the bindings are theirs."""

        async def work(tx: Transaction) -> bool:
            match outcome:
                case Opened():
                    await bind_opened(tx, self._sealer, row, request, outcome)
                    return await tx.settle_outbox(row.id, worker, status="sent")
                case Permanent(reason):
                    await discard_refused(tx, self._sealer, row, request, reason)
                    # Not a dead letter: the user is told, and there is nothing left to retry.
                    return await tx.settle_outbox(row.id, worker, status="sent", error=f"refused: {_short(reason)}")
            return await self._settle(tx, row, worker, outcome)

        return await self._store.transact(scope, work)

    async def _settle(self, tx: StoreSession, row: OutboxRow, worker: str, outcome: Outcome) -> bool:
        doubtful = row.last_error if row.is_ambiguous else None
        match outcome:
            case Sent(message_id):
                self._deliveries.add(row.platform, "sent")
                self._waits.observe((self._clock.now() - row.created_at).total_seconds(), row.platform)
                return await tx.settle_outbox(row.id, worker, status="sent", error=doubtful, message_id=message_id)
            case WindowClosed(reason):
                self._deliveries.add(row.platform, "window_closed")
                # First: a crash after it refuses the row again, which enqueues nothing more.
                await self._templates.ask(tx, row)
                return await tx.settle_outbox(row.id, worker, status="window_closed", error=_short(reason))
            case Permanent(reason):
                return await self._dead_letter(tx, row, worker, _short(reason))
            case Transient(reason, retry_after):
                return await self._reschedule(tx, row, worker, doubtful or _short(reason), retry_after)
            case Ambiguous(reason):
                return await self._reschedule(tx, row, worker, f"{AMBIGUOUS}: {_short(reason)}", None)
            case Released(may_be_sent):
                error = f"{AMBIGUOUS}: the worker stopped while it was sending" if may_be_sent else row.last_error
                now = self._clock.now()
                return await tx.settle_outbox(row.id, worker, status="waiting", next_attempt_at=now, error=error)
            case Opened():
                raise InvalidInput(f"delivery {row.id!r} does not request a room")

    async def _reschedule(self, tx: StoreSession, row: OutboxRow, worker: str, error: str, asked: float | None) -> bool:
        retry = ROOM_RETRY if row.platform in ROOM_PLATFORMS else self._retry
        now = self._clock.now()
        if (now - row.queued_at).total_seconds() >= retry.give_up_seconds:
            return await self._dead_letter(tx, row, worker, error)
        self._deliveries.add(row.platform, "rescheduled")
        next_attempt_at = now + dt.timedelta(seconds=retry.wait(row.attempts + 1, asked, self._chance()))
        return await tx.settle_outbox(row.id, worker, status="waiting", next_attempt_at=next_attempt_at, error=error)

    async def _dead_letter(self, tx: StoreSession, row: OutboxRow, worker: str, error: str) -> bool:
        self._deliveries.add(row.platform, "dead")
        log.error("delivery is a dead letter", extra={"outbox_id": row.id, "platform": row.platform})
        return await tx.settle_outbox(row.id, worker, status="dead", error=error)


def _short(reason: str) -> str:
    return reason[:_REASON_LENGTH]
