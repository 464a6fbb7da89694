"""Recovery: turns whose process is gone are finished by whoever finds them.

A turn from a messaging surface is run again: its sender waits for an answer and cannot ask again. So is any turn that
was handed over a moment ago: a service was told to end, and its readers come back. Others, from a page, a program or a
terminal, are ended as interrupted, with what was shown, because whoever asked has gone or will retry. Safe with any
number of workers: a lease decides which of them acts. Streams of turns that ended long ago are dropped.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from contextlib import suppress

import msgspec

from threadline.core import events
from threadline.core.errors import StoreFailed
from threadline.core.event_fold import Fold
from threadline.core.messages import NewMessage
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import CHANNELS, Turn, TurnEnd, TurnStatus
from threadline.observability.metrics import Metrics
from threadline.ports import Approver, Clock, Store
from threadline.turns.acceptance import STOPPED, WENT_AWAY, Ending, Turns, reply_id, standing_request
from threadline.turns.runner import Runner, Timing
from threadline.turns.takeover import stored_chunks

log = logging.getLogger("threadline.recovery")


_DROPS_PER_KEEP = 60
_WAITS_PER_LEASE = 3
"""As often as leases are renewed: each of the requests that the dead left waiting costs its thread so much."""


class Recovery:
    """Of turns that run again, `approver` decides for those of a messaging surface, and `later` for all others: a page
    or a program can be asked in a turn of its own."""

    def __init__(
        self,
        store: Store,
        turns: Turns,
        runner: Runner,
        clock: Clock,
        approver: Approver,
        *,
        later: Approver | None = None,
        timing: Timing | None = None,
        metrics: Metrics | None = None,
        replay_seconds: float = 3600.0,
        handover_seconds: float = 300.0,
    ) -> None:
        self._store = store
        self._turns = turns
        self._runner = runner
        self._clock = clock
        self._approver = approver
        self._later = later or approver
        self._taken = (metrics or Metrics()).counter(
            "threadline_recovered_turns_total", "Turns taken over from a process that went away.", ("surface",)
        )
        self._lease = dt.timedelta(seconds=(timing or Timing()).lease_seconds)
        self._kept = dt.timedelta(seconds=replay_seconds)
        self._wanted = dt.timedelta(seconds=handover_seconds)
        self._dropped_at: dt.datetime | None = None
        runner.take_up = self.take_up

    async def run(self, every_seconds: float, ending: asyncio.Event | None = None) -> None:
        """Sweeps at once and every so many seconds, until `ending` is set or this is cancelled. A process that is about
        to end must not take up what another one, in the same moment, hands over."""
        ending = ending or asyncio.Event()
        while not ending.is_set():
            try:
                if taken := await self.sweep():
                    log.warning("turns recovered", extra={"turns": taken})
            except StoreFailed:
                log.warning("recovery failed", exc_info=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(every_seconds):
                    await ending.wait()

    async def sweep(self) -> int:
        """Looks after every tenant. How many turns were taken up."""
        taken = 0
        drops = self._is_time_to_drop()
        for tenant_id in await self._store.tenants():
            taken += await self.recover(system_scope(tenant_id))
            if drops:
                await self.drop_chunks(system_scope(tenant_id))
        return taken

    def _is_time_to_drop(self) -> bool:
        """Not in every sweep: dropping looks at every stream that is kept."""
        now = self._clock.now()
        if self._dropped_at is not None and now - self._dropped_at < self._kept / _DROPS_PER_KEEP:
            return False
        self._dropped_at = now
        return True

    async def drop_chunks(self, scope: Scope) -> int:
        """Forgets the streams of turns that ended long ago: their replies are stored. How many chunks."""
        return await self._store.scoped(scope).drop_chunks(finished_before=self._clock.now() - self._kept)

    async def recover(self, scope: Scope) -> int:
        """The same for what one scope can see: a user's own turns, or, for the system, a tenant's."""
        taken = 0
        for turn in await self._store.scoped(scope).due_turns():
            taken += await self.take_up(Scope(scope.tenant_id, turn.owner_id), turn)
        return taken

    async def take_up(self, scope: Scope, turn: Turn) -> bool:
        """One turn, which is due. One that cannot be recovered must not keep all others from it."""
        # One that runs here has not been left: this process, or its database, stood still for longer than a lease.
        if self._runner.runs(turn.id):
            return False
        try:
            taken = await self._take_up(scope, turn)
        except StoreFailed:
            raise
        except Exception:
            log.exception("turn not recovered", extra={"turn_id": turn.id})
            return False
        if taken:
            self._taken.add(turn.surface)
        return taken

    async def _take_up(self, scope: Scope, turn: Turn) -> bool:
        tx = self._store.scoped(scope)
        is_wanted = self._is_wanted(turn)
        if turn.status == "accepted" and not is_wanted and self._clock.now() - turn.created_at < self._lease:
            # Whoever accepted it is about to lease it.
            return False
        is_to_stop = await tx.is_stop_requested(turn.id)
        if not is_to_stop and (is_wanted or turn.surface in CHANNELS):
            self._runner.start(scope, turn, self._approver if turn.surface in CHANNELS else self._later)
            return True
        if turn.status == "accepted" and await self._was_freed_just_now(scope, turn.thread_id):
            return False
        worker, until = self._runner.lease()
        leased = await tx.lease_turn(turn.id, worker, until=until)
        if leased is None:
            return False
        return await self._end(scope, leased, *(("stopped", STOPPED) if is_to_stop else ("interrupted", WENT_AWAY)))

    def _is_wanted(self, turn: Turn) -> bool:
        """Whether it was handed over so lately that its readers can be expected back. Those of a terminal are gone."""
        if not turn.is_handed_over or turn.lease_until is None or turn.surface == "cli":
            return False
        return self._clock.now() - turn.lease_until < self._wanted

    async def _was_freed_just_now(self, scope: Scope, thread_id: str) -> bool:
        """Then whoever waits with the next request is about to lease it, however long ago it was accepted."""
        ends = [turn.finished_at for turn in await self._store.scoped(scope).turns(thread_id) if turn.finished_at]
        return bool(ends) and self._clock.now() - max(ends) < self._lease / _WAITS_PER_LEASE

    async def _end(self, scope: Scope, turn: Turn, status: TurnStatus, error: str) -> bool:
        fold = await self._shown(scope, turn)
        parts = fold.parts()
        end = TurnEnd(status=status, error=error)
        metadata = {"status": status}
        reply = NewMessage("assistant", parts, id=reply_id(turn.id), metadata=metadata) if parts else None
        return await self._turns.finish(scope, turn, Ending(end, reply, [])) is not None

    async def _shown(self, scope: Scope, turn: Turn) -> Fold:
        tx = self._store.scoped(scope)
        asked = await standing_request(tx, turn)
        fold = Fold(asked.parts if asked is not None and asked.role == "assistant" else ())
        for chunk in await stored_chunks(tx, turn.id):
            try:
                fold.add(events.from_json(chunk.json))
            except msgspec.MsgspecError:
                # A newer version of this program may have shown it, and died.
                log.warning("chunk not understood", extra={"turn_id": turn.id, "n": chunk.n})
        return fold
