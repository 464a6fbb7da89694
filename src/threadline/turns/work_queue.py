"""WorkQueue: claims the turns that other processes have accepted or handed over, as soon as they are announced.

A process that only accepts requests hands each turn over, and one that ends hands over what it runs. Any number of
processes may claim: the store gives each turn to one of them. The sweep of `recovery` finds what an announcement did
not reach, and what a crashed process left; here a crash on this machine starts that sweep at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from threadline.core.errors import StoreFailed
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Turn
from threadline.ports import Approver, Processes, Store, WorkWatch
from threadline.turns.leases import Leases, TurnTask
from threadline.turns.recovery import Recovery
from threadline.turns.runner import Runner

log = logging.getLogger("threadline.turns")

# So often it looks whether a process of this machine has crashed.
_CRASH_CHECK_SECONDS = 1.0
# Turns of one claim: many enough for a burst, few enough to leave some to other processes.
_CLAIMED_AT_ONCE = 32
# A process whose turns wait longer than this for their next step leaves further ones to others.
_BUSY_SECONDS = 0.5
_BUSY_PAUSE_SECONDS = 0.05
# Where announcements do not name the tenant, all that are busy are asked. The pause after that is so many times as
# long, so that a database with many tenants is not asked without end.
_PAUSES_PER_ROUND = 4
_RETRY_SECONDS = 1.0


class WorkQueue:
    def __init__(
        self,
        store: Store,
        runner: Runner,
        recovery: Recovery,
        leases: Leases,
        processes: Processes,
        approver: Approver,
        *,
        handover_seconds: float,
        on_begin: Callable[[Scope, Turn, TurnTask], None],
        on_work: Callable[[str], None],
    ) -> None:
        """`on_begin` is called for each turn that it starts; `on_work` with each tenant in which work was announced,
        which may be deliveries. Neither may wait."""
        self._store = store
        self._runner = runner
        self._recovery = recovery
        self._leases = leases
        self._processes = processes
        self._approver = approver
        self._handover_seconds = handover_seconds
        self._on_begin = on_begin
        self._on_work = on_work

    async def run(self, ending: asyncio.Event) -> None:
        """Until `ending` is set. It must not be cancelled before: a claim that was committed would be lost until its
        leases expire."""
        must_end = asyncio.create_task(ending.wait(), name="end of the work queue")
        try:
            async with self._store.watch_work() as watch:
                tenants: Collection[str] | None = None
                while not ending.is_set():
                    tenants = await self._take(tenants, watch, must_end)
        finally:
            must_end.cancel()

    async def _take(
        self, tenants: Collection[str] | None, watch: WorkWatch, must_end: asyncio.Task[bool]
    ) -> Collection[str] | None:
        """Claims in these tenants, or in all; returns those in which work was announced next."""
        clock = asyncio.get_running_loop().time
        began_at, is_everywhere = clock(), tenants is None
        try:
            for tenant_id in await self._store.busy_tenants() if tenants is None else tenants:
                self._on_work(tenant_id)
                await self._claim(tenant_id, must_end)
            if self._processes.has_new_crash():
                await self._recovery.sweep()
        except Exception as exc:
            # Whatever it is, turns must not stay unclaimed for ever.
            log.log(
                logging.WARNING if isinstance(exc, StoreFailed) else logging.ERROR, "turns not claimed", exc_info=exc
            )
            await asyncio.wait({must_end}, timeout=_RETRY_SECONDS)
            return None
        if is_everywhere:
            await asyncio.wait({must_end}, timeout=_PAUSES_PER_ROUND * (clock() - began_at))
        waiting = asyncio.create_task(watch.wait(_CRASH_CHECK_SECONDS), name="wait for work")
        await asyncio.wait({waiting, must_end}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            return ()
        return waiting.result()

    async def _claim(self, tenant_id: str, must_end: asyncio.Task[bool]) -> None:
        session, lease = self._store.scoped(system_scope(tenant_id)), self._leases.new_lease()
        claimed: list[Turn] | None = None
        while not must_end.done() and (claimed is None or len(claimed) == _CLAIMED_AT_ONCE):
            if self._runner.channel_wait_seconds > _BUSY_SECONDS:
                await asyncio.wait({must_end}, timeout=_BUSY_PAUSE_SECONDS)
                continue
            claimed = await session.claim_turns(
                self._leases.worker,
                seconds=lease.seconds,
                within_seconds=self._handover_seconds,
                limit=_CLAIMED_AT_ONCE,
            )
            for turn in claimed:
                scope = Scope(tenant_id, turn.owner_id)
                task = self._runner.start(scope, turn, self._approver, is_leased=turn.status == "running")
                self._on_begin(scope, turn, task)
