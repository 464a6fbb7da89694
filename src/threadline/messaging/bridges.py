"""Bridges: what a bot needs that holds a platform's connection itself, in this process or in another over HTTP.

It delivers what arrived, claims and settles what is to be sent, and reads and restores which rooms are bound. It keeps
no state of its own about threads. Only the platforms in `ROOM_PLATFORMS` have such a bot.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from threadline.core.channels import Binding, OutboxRow
from threadline.core.errors import DuplicateId, NotFound
from threadline.core.ids import check_id, is_state_key, new_state_key
from threadline.core.platform_messages import Arrival, Outcome
from threadline.core.sealing import Sealer
from threadline.core.threads import NewThread, Scope, system_scope
from threadline.core.turns import Surface
from threadline.messaging.bindings import bound_place
from threadline.messaging.inbox import Inbox
from threadline.messaging.receipts import Receipt
from threadline.messaging.rooms import (
    NEXT_INDEX,
    ROOM_PLATFORMS,
    SENDER,
    SPACE,
    find_space,
    is_space,
    room_of,
    space_place,
)
from threadline.messaging.settlement import Settlement
from threadline.messaging.shared_rooms import SHARED
from threadline.ports import Clock, Store, Transaction

# Other processes enqueue as well, and only the database knows: look again this often while a claim waits.
_POLL_SECONDS = 0.5


class Room(msgspec.Struct, frozen=True):
    """A bound room, or a user's space."""

    place: str
    sender: str
    thread_id: str
    label: str | None = None
    is_space: bool = False
    user_id: str | None = None
    is_shared: bool = False
    """One thread for everyone in the room; it is the sender's."""


class OutboxSignal:
    """Wakes claims that wait, when this process has enqueued something."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Event] = set()

    def wake(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    async def wait(self, seconds: float) -> None:
        """Returns when woken, or after so long."""
        waiter = asyncio.Event()
        self._waiters.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`: in Python 3.11 it loses a cancellation that comes together with the wake.
                async with asyncio.timeout(seconds):
                    await waiter.wait()
        finally:
            self._waiters.discard(waiter)


class Bridges:
    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        clock: Clock,
        inbox: Inbox,
        settlement: Settlement,
        signal: OutboxSignal,
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self._inbox = inbox
        self._settlement = settlement
        self._signal = signal

    def platform(self, name: str) -> Surface:
        """NotFound for a platform that has no bot of its own."""
        for platform in ROOM_PLATFORMS:
            if platform == name:
                return platform
        raise NotFound("bridged platform", name)

    async def receive(
        self, tenant_id: str, arrival: Arrival, correlation_id: str, *, auto_link: bool = False
    ) -> Receipt:
        """Stores what arrived and what it causes, once: see `Inbox.receive`."""
        return await self._inbox.receive(tenant_id, arrival, correlation_id, auto_link=auto_link)

    async def claim(
        self,
        tenant_id: str,
        platform: Surface,
        worker: str,
        *,
        limit: int = 10,
        claim_seconds: float = 15.0,
        wait_seconds: float = 0.0,
        holding: Sequence[str] | None = None,
        stopping: asyncio.Event | None = None,
        is_gone: Callable[[], Awaitable[bool]] | None = None,
    ) -> list[OutboxRow]:
        """Claims rows that are due; waits for one up to `wait_seconds`, but not while `stopping` is set. With
        `holding`, claims of this worker on other rows are due: an earlier process made them, or their response was
        lost. Nothing is claimed any more for a bot that is gone."""
        session = self._store.scoped(system_scope(tenant_id))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        gone = () if holding is None else (worker,)
        while is_gone is None or not await is_gone():
            until = self._clock.now() + dt.timedelta(seconds=claim_seconds)
            rows = await session.claim_outbox(
                worker, until=until, limit=limit, platforms=[platform], gone=gone, holding=holding or ()
            )
            remaining = deadline - loop.time()
            if rows or remaining <= 0 or (stopping is not None and stopping.is_set()):
                return rows
            await self._signal.wait(min(remaining, _POLL_SECONDS))
        return []

    async def settle(self, tenant_id: str, platform: Surface, worker: str, outbox_id: str, outcome: Outcome) -> bool:
        """Records the outcome of a row that this worker claimed. False if it did not, or its claim expired.
        InvalidName."""
        check_id("delivery", outbox_id)
        row = await self._store.scoped(system_scope(tenant_id)).outbox_row(outbox_id)
        if row is None or row.platform != platform or row.claimed_by != worker:
            return False
        settled = await self._settlement.settle(tenant_id, row, worker, outcome)
        # The next row for its recipient, or its reply, is due now.
        self._signal.wake()
        return settled

    async def rooms(self, tenant_id: str, platform: Surface) -> list[Room]:
        """Every bound room and space of the tenant. Spaces that are not open yet are left out."""
        bindings = await self._store.scoped(system_scope(tenant_id)).bindings(surface=platform)
        return [_room(each, place) for each in bindings if (place := room_of(each)) is not None]

    async def restore(self, tenant_id: str, platform: Surface, room: Room, *, auto_link: bool = False) -> bool:
        """Binds a room again whose own state says which thread it had, if the database does not know it. The thread is
        created if it is lost as well. False if nothing was done: the sender is not linked, the room is bound already,
        or the thread is another user's."""
        session = self._store.scoped(system_scope(tenant_id))
        sender = await session.sender(platform, room.sender)
        if sender is None and auto_link:
            await session.put_link(platform, room.sender, room.sender, "verified")
            sender = await session.sender(platform, room.sender)
        if sender is None or sender.state != "verified":
            return False

        async def work(tx: Transaction) -> bool:
            return await self._restore(tx, platform, room)

        try:
            return await self._store.transact(Scope(tenant_id, sender.owner_id), work)
        except DuplicateId:
            return False

    async def _restore(self, tx: Transaction, platform: Surface, room: Room) -> bool:
        place = _bound_as(room, tx.scope.user_id)
        if await tx.binding(platform, place) is not None:
            return False
        thread_id = check_id("thread", room.thread_id)
        if await tx.thread(thread_id) is None:
            key = thread_id if is_state_key(thread_id) else new_state_key()
            await tx.create_thread(NewThread(id=thread_id, state_key=key))
        if room.is_space:
            labels = [each.label for each in await tx.bindings(surface=platform) if each.label and not is_space(each)]
            taken = [int(label[1:]) for label in labels if label[1:].isdigit()]
            metadata = {NEXT_INDEX: max(taken, default=0) + 1, SENDER: room.sender, SPACE: room.place}
            await tx.bind(platform, place, thread_id, metadata=self._sealer.json(metadata))
            return True
        space = await find_space(tx, platform, room.sender)
        metadata = {SENDER: room.sender, **({SHARED: True} if room.is_shared else {})}
        await tx.bind(platform, place, thread_id, label=room.label, metadata=self._sealer.json(metadata))
        if space is not None and room.label is not None and room.label[1:].isdigit():
            index = max(int(space.metadata[NEXT_INDEX]), int(room.label[1:]) + 1)
            clean = self._sealer.json({**space.metadata, NEXT_INDEX: index})
            await tx.bind(platform, space.place, space.thread_id, metadata=clean)
        return True


def _room(binding: Binding, place: str) -> Room:
    sender = str(binding.metadata.get(SENDER))
    is_shared = binding.metadata.get(SHARED) is True
    return Room(place, sender, binding.thread_id, binding.label, is_space(binding), binding.owner_id, is_shared)


def _bound_as(room: Room, owner_id: str) -> str:
    if room.is_space:
        return space_place(room.sender)
    return room.place if room.is_shared else bound_place(room.place, owner_id)
