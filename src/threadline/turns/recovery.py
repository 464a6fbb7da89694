"""Recovery: turns whose process is gone are run again or ended by the process that finds them.

A turn from a messaging surface is run again: its sender waits for an answer and cannot retry. So is any turn that was
handed over recently: its service was told to end, and its readers reconnect. Others, from a page, a program or a
terminal, are ended as interrupted, with what was shown, because the client has gone or will retry. Safe with any number
of workers: a lease decides which of them acts. Chunks of turns that ended long ago are dropped.
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
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import CHANNELS, Turn, TurnEnd, TurnStatus
from threadline.observability.metrics import Metrics
from threadline.ports import Approver, Clock, Store
from threadline.turns.acceptance import STOPPED, WENT_AWAY, Ending, Turns, find_present_request
from threadline.turns.leases import Timing
from threadline.turns.output import made_reply, stored_chunks
from threadline.turns.runner import TurnStarter

log = logging.getLogger("threadline.recovery")

_DROPS_PER_RETENTION = 60
# Grace period before an orphaned queued turn is taken over, after its thread became free: a third of a lease.
_GRACE_PERIODS_PER_LEASE = 3


class AbandonedTurns:
    """Recovers one turn. Of turns that run again, `approver` decides for those of a messaging surface and `later` for
    all others: a page or a program can be asked in a turn of its own."""

    def __init__(
        self,
        store: Store,
        turns: Turns,
        clock: Clock,
        approver: Approver,
        *,
        later: Approver | None = None,
        timing: Timing | None = None,
        metrics: Metrics | None = None,
        handover_seconds: float = 300.0,
    ) -> None:
        self._store = store
        self._turns = turns
        self._clock = clock
        self._approver = approver
        self._later = later or approver
        self._recovered = (metrics or Metrics()).counter(
            "threadline_recovered_turns_total", "Turns taken over from a process that went away.", ("surface",)
        )
        self._lease = dt.timedelta(seconds=(timing or Timing()).lease_seconds)
        self._handover_window = dt.timedelta(seconds=handover_seconds)

    async def recover_turn(self, scope: Scope, turn: Turn, runner: TurnStarter) -> bool:
        """Runs the turn in this process, or ends it. False if there is nothing to do about it. A turn that cannot be
        recovered is logged, so that it does not keep a sweep from the others."""
        # A turn that runs here is not abandoned: this process, or its database, was halted for longer than a lease.
        if runner.runs(turn.id):
            return False
        try:
            recovered = await self._recover(scope, turn, runner)
        except StoreFailed:
            raise
        except Exception:
            log.exception("turn not recovered", extra={"turn_id": turn.id})
            return False
        if recovered:
            self._recovered.add(turn.surface)
        return recovered

    async def _recover(self, scope: Scope, turn: Turn, runner: TurnStarter) -> bool:
        session = self._store.scoped(scope)
        is_wanted = self._is_wanted(turn)
        if turn.status == "accepted" and not is_wanted and self._clock.now() - turn.created_at < self._lease:
            # The process that accepted it is about to lease it.
            return False
        must_stop = await session.is_stop_requested(turn.id)
        if not must_stop and (is_wanted or turn.surface in CHANNELS):
            runner.start(scope, turn, self._approver if turn.surface in CHANNELS else self._later)
            return True
        if turn.status == "accepted" and await self._is_just_free(scope, turn.thread_id):
            return False
        worker, until = runner.new_lease()
        leased = await session.lease_turn(turn.id, worker, until=until)
        if leased is None:
            return False
        return await self._end(scope, leased, *(("stopped", STOPPED) if must_stop else ("interrupted", WENT_AWAY)))

    def _is_wanted(self, turn: Turn) -> bool:
        """Whether it was handed over so recently that its readers may reconnect. Those of a terminal do not."""
        if not turn.is_handed_over or turn.lease_until is None or turn.surface == "cli":
            return False
        return self._clock.now() - turn.lease_until < self._handover_window

    async def _is_just_free(self, scope: Scope, thread_id: str) -> bool:
        """Whether a turn of the thread ended just now. Then the process that waits with the next one is about to lease
        it, however long ago that was accepted."""
        ends = [turn.finished_at for turn in await self._store.scoped(scope).turns(thread_id) if turn.finished_at]
        return bool(ends) and self._clock.now() - max(ends) < self._lease / _GRACE_PERIODS_PER_LEASE

    async def _end(self, scope: Scope, turn: Turn, status: TurnStatus, error: str) -> bool:
        reply = made_reply(turn, await self._fold_stored(scope, turn), status)
        return await self._turns.finish(scope, turn, Ending(TurnEnd(status, error), reply, [])) is not None

    async def _fold_stored(self, scope: Scope, turn: Turn) -> Fold:
        session = self._store.scoped(scope)
        asked = await find_present_request(session, turn)
        fold = Fold(asked.parts, asked.metadata) if asked is not None and asked.role == "assistant" else Fold()
        for chunk in await stored_chunks(session, turn.id):
            try:
                fold.add(events.from_json(chunk.json))
            except msgspec.MsgspecError:
                # A newer version of this program stored it, and died.
                log.warning("chunk not understood", extra={"turn_id": turn.id, "n": chunk.n})
        return fold


class Recovery:
    """Sweeps for abandoned turns."""

    def __init__(
        self,
        store: Store,
        abandoned: AbandonedTurns,
        runner: TurnStarter,
        clock: Clock,
        *,
        replay_seconds: float = 3600.0,
    ) -> None:
        self._store = store
        self._abandoned = abandoned
        self._runner = runner
        self._clock = clock
        self._retention = dt.timedelta(seconds=replay_seconds)
        self._dropped_at: dt.datetime | None = None

    async def run(self, every_seconds: float, ending: asyncio.Event | None = None) -> None:
        """Sweeps at once and every so many seconds, until `ending` is set or this is cancelled. A process that is about
        to end must not take over what another one hands over at the same moment."""
        ending = ending or asyncio.Event()
        while not ending.is_set():
            try:
                if recovered := await self.sweep():
                    log.warning("turns recovered", extra={"turns": recovered})
            except StoreFailed:
                log.warning("recovery failed", exc_info=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(every_seconds):
                    await ending.wait()

    async def sweep(self) -> int:
        """Recovers the turns of every tenant; how many."""
        recovered = 0
        must_drop = self._must_drop()
        for tenant_id in await self._store.tenants():
            recovered += await self.recover(system_scope(tenant_id))
            if must_drop:
                await self.drop_chunks(system_scope(tenant_id))
        return recovered

    def _must_drop(self) -> bool:
        """Not in every sweep: dropping reads every stream that is stored."""
        now = self._clock.now()
        if self._dropped_at is not None and now - self._dropped_at < self._retention / _DROPS_PER_RETENTION:
            return False
        self._dropped_at = now
        return True

    async def drop_chunks(self, scope: Scope) -> int:
        """Drops the chunks of turns that ended long ago, whose replies are stored; how many chunks."""
        return await self._store.scoped(scope).drop_chunks(finished_before=self._clock.now() - self._retention)

    async def recover(self, scope: Scope) -> int:
        """The same for what one scope sees: a user's own turns or, for the system, a tenant's."""
        recovered = 0
        for turn in await self._store.scoped(scope).due_turns():
            owner = Scope(scope.tenant_id, turn.owner_id)
            recovered += await self._abandoned.recover_turn(owner, turn, self._runner)
        return recovered
