"""Recovery: turns whose process is gone are run again or ended by the process that finds them.

A reader of its stream, and a request that is repeated, run such a turn again. A turn from a
messaging surface is always run again: its sender waits for an answer and cannot retry. So is any turn that was handed
over recently: its service was told to end, and its readers reconnect. Others end as interrupted, with what was shown:
at once when a new question needs their thread, and otherwise in a sweep, which leaves their readers time to reconnect.
A terminal's turns end at once, because the person at it has gone with it. Safe with any number of processes: a lease
decides which of them acts. Chunks of turns that ended long ago are dropped, and so are
values that have expired.
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
from threadline.core.turns import CHANNELS, Surface, Turn, TurnEnd, TurnStatus
from threadline.observability.metrics import Metrics
from threadline.ports import Approver, Clock, Store
from threadline.turns.acceptance import STOPPED, WENT_AWAY, Ending, Turns, find_present_request
from threadline.turns.leases import Leases
from threadline.turns.output import add_unshown_runs, made_reply, stored_chunks
from threadline.turns.runner import RecoveryReason, TurnStarter

log = logging.getLogger("threadline.recovery")

_NO_WORKER = "no worker took the turn"
_DROPS_PER_RETENTION = 60
# A sweep leaves a turn to its readers, which look once a second, for this part of a lease after the lease expired.
_GRACE_PERIODS_PER_LEASE = 3


class AbandonedTurns:
    """Recovers one turn. `approver` decides for turns that run again and whose caller brings none."""

    def __init__(
        self,
        store: Store,
        turns: Turns,
        leases: Leases,
        approver: Approver,
        *,
        metrics: Metrics | None = None,
        handover_seconds: float = 300.0,
        runs_turns: bool = True,
    ) -> None:
        """Without `runs_turns`, the runner hands turns over to other processes."""
        self._store = store
        self._turns = turns
        self._leases = leases
        self._approver = approver
        self._recovered = (metrics or Metrics()).counter(
            "threadline_recovered_turns_total", "Turns taken over from a process that went away.", ("surface",)
        )
        self._runs_turns = runs_turns
        self._handover_window = dt.timedelta(seconds=handover_seconds)

    async def recover_turn(
        self,
        scope: Scope,
        turn: Turn,
        runner: TurnStarter,
        reason: RecoveryReason,
        approver: Approver | None = None,
    ) -> bool:
        """Runs an abandoned turn in this process, or ends it. False if there is nothing to do about it. A turn that
        cannot be recovered is logged, so that it does not keep a sweep from the others."""
        # A turn that runs here is not abandoned: this process, or its database, was halted for longer than a lease.
        if runner.runs(turn.id):
            return False
        try:
            recovered = await self._recover(scope, turn, runner, reason, approver)
        except StoreFailed:
            raise
        except Exception:
            log.exception("turn not recovered", extra={"turn_id": turn.id})
            return False
        if recovered and (self._runs_turns or not turn.is_handed_over):
            self._recovered.add(turn.surface)
        return recovered

    async def _recover(
        self, scope: Scope, turn: Turn, runner: TurnStarter, reason: RecoveryReason, approver: Approver | None
    ) -> bool:
        if not await self._leases.is_abandoned(scope, turn):
            return False
        must_stop = reason == "interrupt" or await self._store.scoped(scope).is_stop_requested(turn.id)
        if not must_stop and await self._runs_again(scope, turn, reason):
            runner.start(scope, turn, approver or self._approver)
            return True
        if reason == "sweep" and not must_stop and await self._is_awaited(scope, turn):
            return False
        leased = await self._leases.lease(scope, turn)
        if leased is None:
            return False
        went_away = WENT_AWAY if self._runs_turns or not turn.is_handed_over else _NO_WORKER
        return await self._end(scope, leased, *(("stopped", STOPPED) if must_stop else ("interrupted", went_away)))

    async def _runs_again(self, scope: Scope, turn: Turn, reason: RecoveryReason) -> bool:
        if turn.surface in CHANNELS:
            return True
        if turn.surface == "cli":
            # Without a key no one can ask for it again, and its tools may have run unrecorded.
            return reason == "wait" and turn.idempotency_key is not None
        if turn.is_handed_over and not self._runs_turns:
            # It was handed over for workers already: a reader waits for one, but not for ever.
            return await self._is_handed_over(scope, turn)
        return reason == "wait" or await self._is_handed_over(scope, turn)

    async def _is_handed_over(self, scope: Scope, turn: Turn) -> bool:
        """Whether it was handed over so recently that its readers may reconnect."""
        return turn.is_handed_over and await self._expired_within(scope, turn, self._handover_window)

    async def _is_awaited(self, scope: Scope, turn: Turn) -> bool:
        """Whether its lease expired so recently that its readers may not have noticed."""
        return turn.surface != "cli" and await self._expired_within(
            scope, turn, self._leases.length / _GRACE_PERIODS_PER_LEASE
        )

    async def _expired_within(self, scope: Scope, turn: Turn, window: dt.timedelta) -> bool:
        session = self._store.scoped(scope)
        # Read again: the lease may have been ended a moment ago, because its process has.
        stored = await session.turn(turn.id)
        if stored is None or stored.lease_until is None:
            return False
        return await session.lease_time() - stored.lease_until < window

    async def _end(self, scope: Scope, turn: Turn, status: TurnStatus, error: str) -> bool:
        reply = made_reply(turn, await self._fold_stored(scope, turn), status)
        return (
            await self._turns.finish(scope, turn, Ending(TurnEnd(status, error, seen=turn.seen), reply, [])) is not None
        )

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
        add_unshown_runs(fold, await session.tool_runs(turn.id))
        return fold


class Recovery:
    """Sweeps for abandoned turns."""

    def __init__(
        self,
        store: Store,
        abandoned: AbandonedTurns,
        leases: Leases,
        runner: TurnStarter,
        clock: Clock,
        *,
        replay_seconds: float = 3600.0,
    ) -> None:
        self._store = store
        self._abandoned = abandoned
        self._leases = leases
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
                # The pause between sweeps; the end of the process ends it.
                async with asyncio.timeout(every_seconds):
                    await ending.wait()

    async def sweep(self) -> int:
        """Recovers the turns of every tenant; how many."""
        recovered = 0
        for tenant_id in await self._store.busy_tenants():
            recovered += await self.recover(system_scope(tenant_id))
        if self._must_drop():
            for tenant_id in await self._store.tenants():
                await self.drop_chunks(system_scope(tenant_id))
                await self._store.scoped(system_scope(tenant_id)).drop_expired_values()
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
        return await self._store.scoped(scope).drop_chunks(older_than=self._retention)

    async def recover(self, scope: Scope, *, surface: Surface | None = None) -> int:
        """The same for what one scope sees: a user's own turns or, for the system, a tenant's. With a surface, only its
        turns."""
        recovered = 0
        for turn in await self._leases.find_due(scope):
            if surface is not None and turn.surface != surface:
                continue
            owner = Scope(scope.tenant_id, turn.owner_id)
            recovered += await self._abandoned.recover_turn(owner, turn, self._runner, "sweep")
        return recovered
