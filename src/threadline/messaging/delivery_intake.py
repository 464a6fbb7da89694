"""DeliveryIntake: stores what one authentic delivery of a platform contains, however it arrived: by webhook, by polling
or over a WebSocket."""

from __future__ import annotations

import hashlib
import logging

from threadline.core.platform_messages import Delivery
from threadline.core.turns import Surface
from threadline.messaging.inbox import Inbox
from threadline.messaging.outbox import Outbox
from threadline.messaging.receipts import Receipt

log = logging.getLogger("threadline.inbox")


class DeliveryIntake:
    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self._inbox = inbox
        self._outbox = outbox

    async def take(
        self, tenant_id: str, platform: Surface, delivery: Delivery, content: bytes, correlation_id: str
    ) -> list[Receipt]:
        """Returns when everything is stored: then the platform may forget the delivery. `content` are its bytes. Raises
        only StoreFailed; the platform must deliver it again then, and what was stored is recognised."""
        for number, ignored in enumerate(delivery.ignored):
            log.info(
                "delivery ignored",
                extra={"platform": platform, "reason": ignored.reason, "correlation_id": correlation_id},
            )
            if ignored.reason == "broken":
                # The hash as key: a delivery that is sent again is stored once.
                key = f"broken-{hashlib.sha256(content).hexdigest()}-{number}"
                await self._inbox.dead_letter(tenant_id, platform, key, ignored.detail, correlation_id)
        for report in delivery.reports:
            await self._outbox.record_delivery_report(tenant_id, report)
        # One after another, so that messages of a thread keep the order in which they were written.
        return [await self._inbox.receive(tenant_id, arrival, correlation_id) for arrival in delivery.arrivals]
