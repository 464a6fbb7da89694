"""What the bot needs of Threadline, and its implementation in the same process.

`threadline.matrix.remote` has the one over HTTP. Threads, bindings, links, commands and retries are the service's; the
bot delivers what arrived and carries out what the outbox says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from threadline.bootstrap import Threadline
from threadline.core.events import Event
from threadline.core.ids import new_id
from threadline.core.platform_messages import Arrival, Outcome
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Surface
from threadline.messaging.bridges import Room
from threadline.settings import MatrixSettings

SURFACE: Surface = "matrix"
CLAIM_PERIODS = 3
"""A claim lasts this many recovery periods: what a killed bot had claimed is sent by its successor after that."""


class RunningTurn(NamedTuple):
    """The turn that a message began: what a live view follows."""

    turn_id: str
    user_id: str


class Delivery(NamedTuple):
    """A claimed row of the outbox."""

    id: str
    recipient: str
    payload: str
    turn_id: str | None
    attempts: int


class Bridge(Protocol):
    """StoreFailed and ServiceUnavailable pass: call again. TokenRefused does not."""

    async def deliver(self, arrival: Arrival) -> RunningTurn | None:
        """Stores what arrived, once. The turn that it began, if any."""
        ...

    async def claim(self, *, limit: int, wait_seconds: float) -> list[Delivery]: ...

    async def settle(self, delivery_id: str, outcome: Outcome) -> bool: ...

    def stream(self, turn: RunningTurn) -> AsyncIterator[Event]:
        """The reply while it is written, from its beginning until the turn has ended."""
        ...

    async def rooms(self) -> list[Room]: ...

    async def restore(self, room: Room) -> bool: ...

    async def recover(self) -> None:
        """Continues what other processes left; called every few seconds."""
        ...


class LocalBridge:
    """The bot runs in the process that holds the threads."""

    def __init__(self, threadline: Threadline, settings: MatrixSettings) -> None:
        self._threadline = threadline
        self._tenant_id = threadline.settings.tenant
        self._settings = settings
        self._worker = new_id()

    async def deliver(self, arrival: Arrival) -> RunningTurn | None:
        receipt = await self._threadline.bridges.receive(
            self._tenant_id, arrival, new_id(), auto_link=self._settings.auto_link
        )
        if receipt.decision != "accepted" or receipt.turn is None:
            return None
        return RunningTurn(receipt.turn.id, receipt.turn.owner_id)

    async def claim(self, *, limit: int, wait_seconds: float) -> list[Delivery]:
        rows = await self._threadline.bridges.claim(
            self._tenant_id,
            SURFACE,
            self._worker,
            limit=limit,
            claim_seconds=CLAIM_PERIODS * self._settings.recovery_seconds,
            wait_seconds=wait_seconds,
        )
        return [Delivery(row.id, row.recipient, row.payload, row.turn_id, row.attempts) for row in rows]

    async def settle(self, delivery_id: str, outcome: Outcome) -> bool:
        return await self._threadline.bridges.settle(self._tenant_id, SURFACE, self._worker, delivery_id, outcome)

    async def stream(self, turn: RunningTurn) -> AsyncIterator[Event]:
        async for streamed in self._threadline.streams.read(Scope(self._tenant_id, turn.user_id), turn.turn_id):
            yield streamed.event

    async def rooms(self) -> list[Room]:
        return await self._threadline.bridges.rooms(self._tenant_id, SURFACE)

    async def restore(self, room: Room) -> bool:
        return await self._threadline.bridges.restore(
            self._tenant_id, SURFACE, room, auto_link=self._settings.auto_link
        )

    async def recover(self) -> None:
        await self._threadline.recovery.recover(system_scope(self._tenant_id))
        await self._threadline.messaging.unanswered_sweep.catch_up(self._tenant_id)
