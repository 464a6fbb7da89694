"""The bridge over HTTP: the threads are with a service, and the bot has one token that acts for its users."""

from __future__ import annotations

from collections.abc import AsyncIterator

from threadline.client import Client
from threadline.core.events import Event
from threadline.core.ids import new_id
from threadline.core.platform_messages import Arrival, Outcome
from threadline.matrix.bridge import CLAIM_PERIODS, SURFACE, Delivery, RunningTurn
from threadline.messaging.bridges import Room
from threadline.settings import MatrixSettings


class RemoteBridge:
    """`threadline.matrix.bridge.Bridge` of a service."""

    def __init__(self, client: Client, settings: MatrixSettings) -> None:
        self._client = client
        self._calls = client.bridge(SURFACE)
        self._settings = settings
        self._worker = new_id()

    async def deliver(self, arrival: Arrival) -> RunningTurn | None:
        response = await self._calls.deliver(arrival, auto_link=self._settings.auto_link)
        if response.decision != "accepted" or response.turn_id is None or response.user_id is None:
            return None
        return RunningTurn(response.turn_id, response.user_id)

    async def claim(self, *, limit: int, wait_seconds: float) -> list[Delivery]:
        claim_seconds = CLAIM_PERIODS * self._settings.recovery_seconds
        found = await self._calls.claim(
            self._worker, limit=limit, claim_seconds=claim_seconds, wait_seconds=wait_seconds
        )
        return [Delivery(each.id, each.recipient, each.payload, each.turn_id, each.attempts) for each in found]

    async def settle(self, delivery_id: str, outcome: Outcome) -> bool:
        return await self._calls.settle(self._worker, delivery_id, outcome)

    async def stream(self, turn: RunningTurn) -> AsyncIterator[Event]:
        async for event in self._client.acting_for(turn.user_id).reply(turn.turn_id):
            yield event

    async def rooms(self) -> list[Room]:
        return [
            Room(each.place, each.sender, each.thread_id, each.label, each.is_space, each.user_id)
            for each in await self._calls.places()
        ]

    async def restore(self, room: Room) -> bool:
        return await self._calls.restore_place(
            room.place,
            room.sender,
            room.thread_id,
            label=room.label,
            is_space=room.is_space,
            auto_link=self._settings.auto_link,
        )

    async def recover(self) -> None:
        """The service recovers by itself."""
