"""Leases: which process runs a turn, in which order the turns of a thread run, and how a turn changes hands.

A turn is leased when no earlier turn of its thread is active. While it runs, the lease is renewed and requests to stop
are looked for. A process that ends in order hands its turns over: it stores what was shown and releases the lease
without a holder, which tells the next process that the turn was given up on purpose, and when. A process that died
leaves its name in the lease until that expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, TypeAlias

import msgspec

from threadline.core.errors import StoreFailed
from threadline.core.ids import new_id
from threadline.core.threads import Scope
from threadline.core.turns import CHANNELS, Lease, Turn
from threadline.ports import Clock, Store
from threadline.turns.streams import LiveStream

log = logging.getLogger("threadline.turns")

# A messaging platform has no stop button, and there may be thousands of such turns: they look less often.
_CHANNEL_POLL_FACTOR = 5
_CHANNEL_STEPS = 4

Recover: TypeAlias = Callable[[Scope, Turn], Awaitable[None]]
TurnTask: TypeAlias = "asyncio.Task[Turn | None]"


class Timing(msgspec.Struct, frozen=True):
    lease_seconds: float = 30.0
    flush_seconds: float = 0.1
    """How long chunks are collected before they are stored together."""
    wait_seconds: float = 1.0
    """How often to look for what no notification announced: a free thread, a request to stop."""
    retry_seconds: tuple[float, ...] = (0.2, 1.0, 3.0, 6.0)
    """Pauses between attempts to store a turn's end."""


class _Last(NamedTuple):
    request_seq: int
    task: TurnTask


class ThreadQueue:
    """The order of one thread's turns that wait in this process: each for the task before it, none for the database.

    Leases decide the order. But of a hundred requests to one thread, all but the first would ask for a lease in vain
    once a second; here each knows which task it waits for. Where the order is not certain, the leases decide alone."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], _Last] = {}

    def find_previous(self, tenant_id: str, turn: Turn) -> TurnTask | None:
        """The task of the turn that this one follows on its thread, if it runs or waits here."""
        last = self._last.get((tenant_id, turn.thread_id))
        if last is None or turn.request_seq is None or last.request_seq >= turn.request_seq:
            return None
        return last.task

    def join(self, tenant_id: str, turn: Turn, task: TurnTask) -> None:
        """The next turn of the thread follows this one, until its task is done."""
        thread = (tenant_id, turn.thread_id)
        last = self._last.get(thread)
        if turn.request_seq is None or (last is not None and last.request_seq > turn.request_seq):
            return
        joined = self._last[thread] = _Last(turn.request_seq, task)
        task.add_done_callback(lambda _: self._leave(thread, joined))

    def _leave(self, thread: tuple[str, str], joined: _Last) -> None:
        if self._last.get(thread) is joined:
            del self._last[thread]


class Leases:
    """The leases of one process."""

    def __init__(self, store: Store, clock: Clock, timing: Timing) -> None:
        self.worker = new_id()
        self.timing = timing
        self._store = store
        self._clock = clock
        # A burst of platform messages waits here before it uses the database, so that the database and the processor
        # stay free to acknowledge the next ones. Agents run outside of it, all at the same time.
        self._channel_steps = asyncio.Semaphore(_CHANNEL_STEPS)

    def new_lease(self) -> Lease:
        return Lease(self.worker, self._clock.now() + dt.timedelta(seconds=self.timing.lease_seconds))

    def is_abandoned(self, turn: Turn) -> bool:
        """Whether the process that ran the turn handed it over, or let its lease expire."""
        has_expired = turn.lease_until is not None and turn.lease_until <= self._clock.now()
        return turn.is_handed_over or (turn.status == "running" and has_expired)

    def throttle(self, turn: Turn) -> AbstractAsyncContextManager[None]:
        """Around what a turn does with the database before and after its agent runs."""
        return self._channel_steps if turn.surface in CHANNELS else contextlib.nullcontext()

    async def acquire(self, scope: Scope, turn: Turn, previous: TurnTask | None, recover: Recover) -> Turn | None:
        """Waits until no earlier turn of the thread is active, and leases the turn. None if it has ended, or another
        process has it. `recover` is called for an earlier turn, which may be abandoned."""
        if previous is not None:
            # Bounded: the lease in the database, not this wait, decides the order.
            await asyncio.wait((previous,), timeout=self.timing.lease_seconds)
        session = self._store.scoped(scope)
        while True:
            worker, until = self.new_lease()
            async with self.throttle(turn):
                leased = await session.lease_turn(turn.id, worker, until=until)
            if leased is not None:
                return leased
            active = await session.active_turns(turn.thread_id)
            own = next((each for each in active if each.id == turn.id), None)
            if own is None or own.status == "running":
                return None
            await recover(scope, active[0])
            async with self._store.watch(scope, active[0].id) as watch:
                await watch.wait(self.timing.wait_seconds)

    async def keep(self, scope: Scope, turn: Turn, *, stop: Callable[[], None], lose: Callable[[], None]) -> None:
        """Renews the lease of a running turn until it is cancelled. Calls `stop` when the turn was asked to stop,
        `lose` when another process has taken the turn over; either ends this."""
        session, now = self._store.scoped(scope), asyncio.get_running_loop().time
        # A third of a lease: two renewals may fail before the lease expires.
        renew_every = self.timing.lease_seconds / 3
        # A request to stop wakes the watch. Polling is for where notifications do not reach.
        poll_every = self.timing.wait_seconds * (_CHANNEL_POLL_FACTOR if turn.surface in CHANNELS else 1)
        renewed = now()
        async with self._store.watch(scope, turn.id) as watch:
            while True:
                await watch.wait(min(poll_every, renew_every))
                try:
                    if await session.is_stop_requested(turn.id):
                        return stop()
                    if now() - renewed < renew_every:
                        continue
                    if not await session.renew_lease(turn.id, turn.fence, until=self.new_lease().until):
                        log.warning("lease lost", extra={"turn_id": turn.id})
                        return lose()
                    renewed = now()
                except StoreFailed:
                    log.warning("lease not renewed", extra={"turn_id": turn.id})

    async def hand_over(self, scope: Scope, turn: Turn, stream: LiveStream) -> bool:
        """Gives a running turn up for another process. False if it was asked to stop: then it must end here."""
        session = self._store.scoped(scope)
        try:
            if await session.is_stop_requested(turn.id):
                return False
            await session.put_chunks(turn.id, turn.fence, stream.unstored())
            await session.release_lease(turn.id, turn.fence)
        except StoreFailed:
            # Its lease expires by itself, as if this process had died.
            log.warning("turn not handed over", extra={"turn_id": turn.id})
        return True

    async def hand_over_waiting(self, scope: Scope, turn: Turn) -> None:
        """The same for a turn that waits for its lease. It may have got the lease just when it was cancelled."""
        session = self._store.scoped(scope)
        try:
            stored = await session.turn(turn.id)
            if stored is not None and (stored.status == "accepted" or stored.lease_owner == self.worker):
                await session.release_lease(turn.id, stored.fence)
        except StoreFailed:
            log.warning("turn not handed over", extra={"turn_id": turn.id})
