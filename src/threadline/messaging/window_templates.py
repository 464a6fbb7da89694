"""WindowTemplates: asks people to write when the platform's window for replies is closed, with a template.

Replies that the platform refused are kept and sent when the person writes again. A template that the platform has
approved may be sent at any time; the one in the settings tells the person that there is a reply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from threadline.core.channels import OutboxRow
from threadline.core.sealing import CleanText
from threadline.core.turns import Surface
from threadline.ports import Channel, Clock, StoreSession, WindowedChannel

_ID_LENGTH = 32


class WindowTemplates:
    def __init__(self, channels: Mapping[Surface, Channel], clock: Clock) -> None:
        self._channels = channels
        self._clock = clock

    async def ask(self, tx: StoreSession, row: OutboxRow) -> None:
        """Enqueues the template for the recipient of a row that was refused, once a day: several refused replies, or
        one that is refused again, must not become several messages that the operator pays for."""
        channel = self._channels.get(row.platform)
        payload = channel.render_template() if isinstance(channel, WindowedChannel) else None
        if payload is None or row.payload == payload:
            return
        # The window is a day long. The owner is part of the id because an account may become another user's.
        day = self._clock.now().date().isoformat()
        digest = hashlib.sha256(f"{row.platform} {row.recipient} {row.owner_id} {day}".encode()).hexdigest()
        # The settings contain no secret, so the payload is clean.
        text, id = CleanText(payload), f"template-{digest[:_ID_LENGTH]}"
        await tx.enqueue(row.platform, row.recipient, text, turn_id=None, owner_id=row.owner_id, id=id)
