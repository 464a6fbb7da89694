"""Leases: which process runs a turn, in which order the turns of a thread run, and how a turn changes hands.

A turn is leased when no earlier turn of its thread is active; a process that waits for that reserves the turn. Both are
renewed while they last, by the store's clock. A process that ends in order hands its turns over: it stores what was
shown and releases the lease without a holder, which tells the next process that the turn was given up on purpose, and
when. A process that died leaves its name. On its own machine it is known at once to have ended, elsewhere when its
lease expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from threadline.core.errors import StoreFailed
from threadline.core.threads import Scope
from threadline.core.turns import CHANNELS, Lease, Turn
from threadline.ports import Processes, Store
from threadline.turns.channel_lane import ChannelLane
from threadline.turns.streams import LiveStream

log = logging.getLogger("threadline.turns")

# A messaging platform has no stop button, and there may be thousands of such turns: they look less often.
_CHANNEL_POLL_FACTOR = 5
CHANNEL_STEPS = 4
# Two of three renewals may fail before a lease expires.
_RENEWALS_PER_LEASE = 3
# After a renewal that failed, the next one is tried so much sooner.
_RETRIES_PER_RENEWAL = 5
# A process that is known to run may be slow to renew, on a loaded machine or with a busy event loop: its turns are
# taken over only after so many leases more, when it seems to hang.
_PATIENCE_LEASES = 2
# A lease this many leases ahead was written by a clock that was wrong. Less is a clock that was set back a little.
_FARTHEST_LEASES = 2

TurnTask: TypeAlias = "asyncio.Task[Turn | None]"


class MakeWay(Protocol):
    async def __call__(self, scope: Scope, turn_id: str, *, interrupts: bool = False) -> None:
        """Ends a turn that no process runs any more, because another one needs its thread. One that its sender waits
        for is run instead, unless the other one `interrupts` it."""
        ...


class Holder(NamedTuple):
    """The process that accepts a turn in order to run it."""

    lease: Lease
    make_way: MakeWay


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


class _FarLease(NamedTuple):
    fence: int
    until: dt.datetime | None
    seen_at: float


class Leases:
    """The leases of one process."""

    def __init__(self, store: Store, processes: Processes, timing: Timing | None = None) -> None:
        self.timing = timing or Timing()
        self._store = store
        self._processes = processes
        self._far_ahead: dict[str, _FarLease] = {}
        # Agents run outside of it, all at the same time.
        self._channel_lane = ChannelLane(CHANNEL_STEPS)

    @property
    def worker(self) -> str:
        return self._processes.worker

    @property
    def length(self) -> dt.timedelta:
        return dt.timedelta(seconds=self.timing.lease_seconds)

    def new_lease(self) -> Lease:
        return Lease(self.worker, self.timing.lease_seconds)

    async def lease(self, scope: Scope, turn: Turn) -> Turn | None:
        """The turn, leased by this process; None if it cannot be leased now."""
        return await self._store.scoped(scope).lease_turn(turn.id, self.worker, seconds=self.timing.lease_seconds)

    async def is_abandoned(self, scope: Scope, turn: Turn) -> bool:
        """Whether no process runs the turn or waits to run it. The lease of a process that has ended, and one far ahead
        that is not renewed, are ended in the store, so that the turn can be leased."""
        if not turn.is_active or turn.is_handed_over:
            return turn.is_active
        session = self._store.scoped(scope)
        if turn.lease_owner is None or turn.lease_until is None:
            # It was accepted without a lease, and perhaps its process is about to lease it.
            return await session.lease_time() - turn.created_at >= self.length
        # This process may have leased it a moment ago for a request that is about to begin it.
        is_running = None if turn.lease_owner == self.worker else self._processes.is_running(turn.lease_owner)
        left = turn.lease_until - await session.lease_time() if is_running is not False else dt.timedelta(0)
        if is_running is False or (is_running is None and self._is_stale(turn, left)):
            # Checked again in the store: the turn may have another holder by now.
            await session.expire_leases(turn.lease_owner, turn_id=turn.id)
            return True
        return left <= (-self.length * _PATIENCE_LEASES if is_running else dt.timedelta(0))

    def _is_stale(self, turn: Turn, left: dt.timedelta) -> bool:
        """Whether the lease ends too far ahead and was not renewed for a whole lease since it was first seen. By the
        time of this process alone, because a clock was wrong: perhaps the one that tells how far ahead it is."""
        if left <= self.length * _FARTHEST_LEASES:
            self._far_ahead.pop(turn.id, None)
            return False
        now = asyncio.get_running_loop().time()
        first = self._far_ahead.get(turn.id)
        if first is None or (first.fence, first.until) != (turn.fence, turn.lease_until):
            first = self._far_ahead[turn.id] = _FarLease(turn.fence, turn.lease_until, now)
        return now - first.seen_at >= self.timing.lease_seconds

    async def find_due(self, scope: Scope) -> list[Turn]:
        """The turns that may be abandoned, in order of acceptance, those of processes of this machine that have ended
        included."""
        session = self._store.scoped(scope)
        for worker in await session.lease_workers():
            if self._processes.is_running(worker) is False:
                await session.expire_leases(worker)
        return await session.due_turns(lease_seconds=self.timing.lease_seconds)

    def throttle(self, turn: Turn) -> AbstractAsyncContextManager[None]:
        """Around what a turn does with the database before and after its agent runs."""
        return self._channel_lane.step() if turn.surface in CHANNELS else contextlib.nullcontext()

    @property
    def channel_wait_seconds(self) -> float:
        """How long the oldest turn of a messaging platform has waited for its next step in this process."""
        return self._channel_lane.wait_seconds

    async def acquire(self, scope: Scope, turn: Turn, previous: TurnTask | None, make_way: MakeWay) -> Turn | None:
        """Waits until no earlier turn of the thread is active, and leases the turn; reserves it until then. None if it
        has ended, or another process has it. `make_way` is called for an earlier turn, which may be abandoned."""
        if previous is not None:
            # Bounded: the lease in the database, not this wait, decides the order, and the reservation must not expire.
            await asyncio.wait((previous,), timeout=self.timing.lease_seconds * (1 - 1 / _RENEWALS_PER_LEASE))
        session, now = self._store.scoped(scope), asyncio.get_running_loop().time
        renew_at = now()
        while True:
            async with self.throttle(turn):
                leased = await self.lease(scope, turn)
            if leased is not None:
                return leased
            active = await session.active_turns(turn.thread_id)
            own = next((each for each in active if each.id == turn.id), None)
            if own is None or own.status == "running":
                return None
            if now() >= renew_at:
                renew_at = now() + self.timing.lease_seconds / _RENEWALS_PER_LEASE
                await session.renew_lease(turn.id, own.fence, self.worker, seconds=self.timing.lease_seconds)
            await make_way(scope, active[0].id)
            async with self._store.watch(scope, active[0].id) as watch:
                await watch.wait(self.timing.wait_seconds)

    async def keep(self, scope: Scope, turn: Turn, *, stop: Callable[[], None], lose: Callable[[], None]) -> None:
        """Renews the lease of a running turn until it is cancelled. Calls `stop` once when the turn was asked to stop;
        calls `lose` when another process has taken the turn over, and ends."""
        session, now = self._store.scoped(scope), asyncio.get_running_loop().time
        renew_every = self.timing.lease_seconds / _RENEWALS_PER_LEASE
        # A request to stop wakes the watch. Polling is for where notifications do not reach.
        poll_every = self.timing.wait_seconds * (_CHANNEL_POLL_FACTOR if turn.surface in CHANNELS else 1)
        renew_at, must_stop = now() + renew_every, False
        async with self._store.watch(scope, turn.id) as watch:
            while True:
                # Never past the next renewal: each notification starts this wait again.
                await watch.wait(max(0.0, min(poll_every, renew_at - now())))
                try:
                    if (sent_at := now()) >= renew_at:
                        # Until it succeeds, the next one is due soon.
                        renew_at = sent_at + renew_every / _RETRIES_PER_RENEWAL
                        seconds = self.timing.lease_seconds
                        if not await session.renew_lease(turn.id, turn.fence, self.worker, seconds=seconds):
                            log.warning("lease lost", extra={"turn_id": turn.id})
                            return lose()
                        renew_at = sent_at + renew_every
                    if not must_stop and await session.is_stop_requested(turn.id):
                        must_stop = True
                        stop()
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
            self._store.announce_work(scope.tenant_id)
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
                self._store.announce_work(scope.tenant_id)
        except StoreFailed:
            log.warning("turn not handed over", extra={"turn_id": turn.id})
