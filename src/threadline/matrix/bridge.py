"""What the bot needs of Threadline, and its two implementations: in the same process, and over HTTP.

Threads, bindings, links, commands and retries are the service's; the bot delivers what arrived and carries out what the
outbox says. Over HTTP it has one token that acts for its users.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from threadline.bootstrap import Threadline
from threadline.client import Client
from threadline.core.events import Event
from threadline.core.ids import new_id
from threadline.core.platform_messages import Arrival, Outcome
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Surface
from threadline.messaging.bridges import Room
from threadline.settings import MatrixSettings

SURFACE: Surface = "matrix"
# The most that the service allows. A row that is enqueued in the meantime ends the wait.
_WAIT_SECONDS = 5.0
# A claim lasts this many recovery periods. After that another bot may claim the row.
CLAIM_PERIODS = 3


class RunningTurn(NamedTuple):
    """The turn that a message began: what a live view follows."""

    turn_id: str
    user_id: str


class RoomDelivery(NamedTuple):
    """A claimed row of the outbox."""

    id: str
    platform: Surface
    recipient: str
    payload: str
    turn_id: str | None
    attempts: int


class Bridge(Protocol):
    """StoreFailed and ServiceUnavailable pass: call again. TokenRefused does not. It is the queue of the bot's delivery
    worker as well."""

    async def deliver(self, arrival: Arrival) -> RunningTurn | None:
        """Stores what arrived, once. The turn that it began, if any."""
        ...

    async def claim(self, platforms: Sequence[Surface], *, limit: int, holding: Sequence[str]) -> list[RoomDelivery]:
        """Also what an earlier process of this bot had claimed: it is gone, because only one has the device."""
        ...

    async def settle(self, delivery: RoomDelivery, outcome: Outcome) -> bool: ...

    def stop(self) -> None: ...

    def stream(self, turn: RunningTurn) -> AsyncIterator[Event]:
        """The reply while it is written, from its beginning until the turn has ended."""
        ...

    async def rooms(self) -> list[Room]: ...

    async def restore(self, room: Room) -> bool: ...

    async def recover(self) -> None:
        """Continues what other processes left; called every few seconds."""
        ...


class LocalBridge:
    """The bot runs in the process that holds the threads. `worker` names the bot's device in claims."""

    def __init__(self, threadline: Threadline, settings: MatrixSettings, worker: str) -> None:
        self._threadline = threadline
        self._tenant_id = threadline.settings.tenant
        self._settings = settings
        self._worker = worker
        self._stopping = asyncio.Event()

    async def deliver(self, arrival: Arrival) -> RunningTurn | None:
        receipt = await self._threadline.bridges.receive(
            self._tenant_id, arrival, new_id(), auto_link=self._settings.auto_link
        )
        if receipt.decision != "accepted" or receipt.turn is None:
            return None
        return RunningTurn(receipt.turn.id, receipt.turn.owner_id)

    async def claim(self, platforms: Sequence[Surface], *, limit: int, holding: Sequence[str]) -> list[RoomDelivery]:
        rows = await self._threadline.bridges.claim(
            self._tenant_id,
            SURFACE,
            self._worker,
            limit=limit,
            claim_seconds=CLAIM_PERIODS * self._settings.recovery_seconds,
            wait_seconds=_WAIT_SECONDS,
            holding=holding,
            stopping=self._stopping,
        )
        return [RoomDelivery(row.id, SURFACE, row.recipient, row.payload, row.turn_id, row.attempts) for row in rows]

    async def settle(self, delivery: RoomDelivery, outcome: Outcome) -> bool:
        return await self._threadline.bridges.settle(self._tenant_id, SURFACE, self._worker, delivery.id, outcome)

    def stop(self) -> None:
        self._stopping.set()
        self._threadline.messaging.wake(self._tenant_id)

    async def stream(self, turn: RunningTurn) -> AsyncIterator[Event]:
        async for event in self._threadline.streams.events(Scope(self._tenant_id, turn.user_id), turn.turn_id):
            yield event

    async def rooms(self) -> list[Room]:
        return await self._threadline.bridges.rooms(self._tenant_id, SURFACE)

    async def restore(self, room: Room) -> bool:
        return await self._threadline.bridges.restore(
            self._tenant_id, SURFACE, room, auto_link=self._settings.auto_link
        )

    async def recover(self) -> None:
        await self._threadline.recovery.recover(system_scope(self._tenant_id))
        await self._threadline.messaging.unanswered_sweep.catch_up(self._tenant_id)


class RemoteBridge:
    """The threads are with a service. `worker` names the bot's device in claims."""

    def __init__(self, client: Client, settings: MatrixSettings, worker: str) -> None:
        self._client = client
        self._calls = client.bridge(SURFACE)
        self._settings = settings
        self._worker = worker
        self._stopping = asyncio.Event()

    async def deliver(self, arrival: Arrival) -> RunningTurn | None:
        response = await self._calls.deliver(arrival, auto_link=self._settings.auto_link)
        if response.decision != "accepted" or response.turn_id is None or response.user_id is None:
            return None
        return RunningTurn(response.turn_id, response.user_id)

    async def claim(self, platforms: Sequence[Surface], *, limit: int, holding: Sequence[str]) -> list[RoomDelivery]:
        claiming = asyncio.ensure_future(
            self._calls.claim(
                self._worker,
                limit=limit,
                claim_seconds=CLAIM_PERIODS * self._settings.recovery_seconds,
                wait_seconds=_WAIT_SECONDS,
                holding=holding,
            )
        )
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({claiming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            # If the bot stops first, what the request may still claim is claimed again by the next process.
            found = claiming.result() if claiming.done() else []
        finally:
            claiming.cancel()
            stopping.cancel()
        return [
            RoomDelivery(each.id, SURFACE, each.recipient, each.payload, each.turn_id, each.attempts) for each in found
        ]

    async def settle(self, delivery: RoomDelivery, outcome: Outcome) -> bool:
        return await self._calls.settle(self._worker, delivery.id, outcome)

    def stop(self) -> None:
        self._stopping.set()

    async def stream(self, turn: RunningTurn) -> AsyncIterator[Event]:
        async for event in self._client.acting_for(turn.user_id).reply(turn.turn_id):
            yield event

    async def rooms(self) -> list[Room]:
        return [
            Room(each.place, each.sender, each.thread_id, each.label, each.is_space, each.user_id, each.is_shared)
            for each in await self._calls.places()
        ]

    async def restore(self, room: Room) -> bool:
        return await self._calls.restore_place(
            room.place,
            room.sender,
            room.thread_id,
            label=room.label,
            is_space=room.is_space,
            is_shared=room.is_shared,
            auto_link=self._settings.auto_link,
        )

    async def recover(self) -> None:
        """The service recovers by itself."""
