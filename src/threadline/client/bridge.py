"""The calls of a bot that holds a platform's connection: deliver what arrived, claim and settle what is to be sent.

For tokens that act for users, on their own account.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from threadline.api_types import (
    ArrivalResponse,
    BridgeDelivery,
    ClaimedResponse,
    PlaceInfo,
    PlacesResponse,
    RestoredResponse,
    SettledResponse,
)
from threadline.client.transport import Transport
from threadline.client.values import read
from threadline.core.platform_messages import (
    Ambiguous,
    Arrival,
    Opened,
    Outcome,
    Permanent,
    Released,
    Sent,
    Transient,
)
from threadline.core.turns import Surface


class BridgeClient:
    def __init__(self, transport: Transport, platform: Surface) -> None:
        self._transport = transport
        self._path = f"/api/v1/channels/{platform}"

    async def deliver(self, arrival: Arrival, *, auto_link: bool = False) -> ArrivalResponse:
        """Stores what arrived and what it causes. Safe to repeat: the arrival's key is claimed once."""
        given = {
            "key": arrival.key,
            "sender": arrival.sender,
            "place": arrival.place,
            "recipient": arrival.recipient,
            "text": arrival.text,
            "sentAt": arrival.sent_at.isoformat(),
            "isShared": arrival.shared,
            "kind": arrival.kind,
            "target": arrival.target,
            "isAddressed": arrival.is_addressed,
            "senderName": arrival.sender_name,
            "isByModerator": arrival.is_by_moderator,
            "autoLink": auto_link,
        }
        return read(await self._transport.call("POST", f"{self._path}/arrivals", given), ArrivalResponse)

    async def claim(
        self,
        worker: str,
        *,
        limit: int = 10,
        claim_seconds: float = 15.0,
        wait_seconds: float = 0.0,
        holding: Sequence[str] | None = None,
    ) -> list[BridgeDelivery]:
        """Claims what is due; waits for it up to `wait_seconds`. With `holding`, the deliveries that this worker has,
        its other claims are claimed again: an earlier process made them, or their response was lost."""
        given: dict[str, Any] = {"worker": worker, "limit": limit, "claimSeconds": claim_seconds}
        given |= {"waitSeconds": wait_seconds, "holding": None if holding is None else list(holding)}
        return read(await self._transport.call("POST", f"{self._path}/outbox/claim", given), ClaimedResponse).deliveries

    async def settle(self, worker: str, delivery_id: str, outcome: Outcome) -> bool:
        """Records the outcome of a claimed delivery. False if the claim is no longer this worker's."""
        path = f"{self._path}/outbox/{quote(delivery_id, safe='')}/settle"
        given = {"worker": worker, **_outcome(outcome)}
        return read(await self._transport.call("POST", path, given), SettledResponse).settled

    async def places(self) -> list[PlaceInfo]:
        """Every bound place of the platform in the tenant."""
        return read(await self._transport.call("GET", f"{self._path}/places"), PlacesResponse).places

    async def restore_place(
        self,
        place: str,
        sender: str,
        thread_id: str,
        *,
        label: str | None = None,
        is_space: bool = False,
        is_shared: bool = False,
        auto_link: bool = False,
    ) -> bool:
        """Binds a place again that the service does not know. False if it does, or the sender is not linked."""
        given = {
            "place": place,
            "sender": sender,
            "threadId": thread_id,
            "label": label,
            "isSpace": is_space,
            "isShared": is_shared,
            "autoLink": auto_link,
        }
        return read(await self._transport.call("PUT", f"{self._path}/places", given), RestoredResponse).restored


def _outcome(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Sent(message_id):
            return {"outcome": "sent", "messageId": message_id}
        case Opened(place, link, space):
            return {"outcome": "opened", "place": place, "link": link, "space": space}
        case Transient(reason, retry_after):
            return {"outcome": "transient", "reason": reason, "retryAfter": retry_after}
        case Ambiguous(reason):
            return {"outcome": "ambiguous", "reason": reason}
        case Permanent(reason):
            return {"outcome": "permanent", "reason": reason}
        case Released(may_be_sent):
            return {"outcome": "released", "mayBeSent": may_be_sent}
    raise AssertionError(f"a bot does not report {outcome!r}")
