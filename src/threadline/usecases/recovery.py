"""Recovery: turns whose process died are finished by whoever finds them.

A turn from a messaging surface is run again: its sender waits for an answer and cannot ask again. A turn from a page, a
program or a terminal is ended as interrupted, with what was shown, because whoever asked has gone or will retry. Safe
with any number of workers: a lease decides which of them acts. Streams of turns that ended long ago are dropped.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging

import msgspec

from threadline.core import events
from threadline.core.errors import StoreFailed
from threadline.core.folding import Fold
from threadline.core.messages import NewMessage
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import CHANNELS, Turn, TurnEnd
from threadline.ports import Approver, Clock, Store
from threadline.usecases.metrics import Metrics
from threadline.usecases.running import Runner, Timing
from threadline.usecases.takeover import stored_chunks
from threadline.usecases.turns import Ending, Turns, reply_id, standing_request

log = logging.getLogger("threadline.recovery")


_DROPS_PER_KEEP = 60
_WAITS_PER_LEASE = 3
"""As often as leases are renewed: each of the requests that the dead left waiting costs its thread so much."""


class Recovery:
    def __init__(
        self,
        store: Store,
        turns: Turns,
        runner: Runner,
        clock: Clock,
        approver: Approver,
        *,
        timing: Timing | None = None,
        metrics: Metrics | None = None,
        replay_seconds: float = 3600.0,
    ) -> None:
        self._store = store
        self._turns = turns
        self._runner = runner
        self._clock = clock
        self._approver = approver
        self._taken = (metrics or Metrics()).counter(
            "threadline_recovered_turns_total", "Turns taken over from a process that went away.", ("surface",)
        )
        self._lease = dt.timedelta(seconds=(timing or Timing()).lease_seconds)
        self._kept = dt.timedelta(seconds=replay_seconds)
        self._dropped_at: dt.datetime | None = None

    async def run(self, every_seconds: float) -> None:
        """Sweeps every so many seconds, until cancelled."""
        while True:
            try:
                if taken := await self.sweep():
                    log.warning("turns recovered", extra={"turns": taken})
            except StoreFailed:
                log.warning("recovery failed", exc_info=True)
            await asyncio.sleep(every_seconds)

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
            # One that runs here has not been left: this process, or its database, stood still for longer than a lease.
            if self._runner.runs(turn.id):
                continue
            if await self._taken_up(Scope(scope.tenant_id, turn.owner_id), turn):
                self._taken.add(turn.surface)
                taken += 1
        return taken

    async def _taken_up(self, scope: Scope, turn: Turn) -> bool:
        """One turn that cannot be recovered must not keep all others from it."""
        try:
            return await self._take_up(scope, turn)
        except StoreFailed:
            raise
        except Exception:
            log.exception("turn not recovered", extra={"turn_id": turn.id})
            return False

    async def _take_up(self, scope: Scope, turn: Turn) -> bool:
        if turn.status == "accepted" and self._clock.now() - turn.created_at < self._lease:
            # Whoever accepted it is about to lease it.
            return False
        if turn.surface in CHANNELS:
            self._runner.start(scope, turn, self._approver)
            return True
        if turn.status == "accepted" and await self._was_freed_just_now(scope, turn.thread_id):
            return False
        leased = await self._store.scoped(scope).lease_turn(
            turn.id, self._runner.worker, until=self._clock.now() + self._lease
        )
        return leased is not None and await self._interrupt(scope, leased)

    async def _was_freed_just_now(self, scope: Scope, thread_id: str) -> bool:
        """Then whoever waits with the next request is about to lease it, however long ago it was accepted."""
        ends = [turn.finished_at for turn in await self._store.scoped(scope).turns(thread_id) if turn.finished_at]
        return bool(ends) and self._clock.now() - max(ends) < self._lease / _WAITS_PER_LEASE

    async def _interrupt(self, scope: Scope, turn: Turn) -> bool:
        fold = await self._shown(scope, turn)
        parts = fold.parts()
        end = TurnEnd(status="interrupted", error="the process that ran it went away")
        metadata = {"status": "interrupted"}
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
