"""Retention: removes the threads and audit entries that are older than the policy of their tenant, and legal holds.

Threads are purged in small transactions, each with its audit entry, so that writers wait only briefly; an interrupted
run continues with the next one.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections import Counter

import msgspec

from threadline.core.errors import InvalidInput, NotFound, StoreFailed
from threadline.core.ids import check_id, check_user_id, new_id
from threadline.core.retention import LegalHold, OverdueThread, RetentionPolicy, RetentionRule, RetentionSettings
from threadline.core.sealing import Sealer
from threadline.core.threads import SYSTEM_USER, Scope, system_scope
from threadline.ports import Clock, Store, Transaction

log = logging.getLogger("threadline.retention")

_BATCH = 10
# Policies count days: looking more often would find little more.
_SWEEP_SECONDS = 3_600.0
_SIGN_INS_KEPT = dt.timedelta(days=30)
PLAN_LIMIT = 1_000
"""How many overdue threads a plan counts."""


class RetentionPlan(msgspec.Struct, frozen=True):
    """What the next run removes: threads by rule, at most PLAN_LIMIT of them."""

    policy: RetentionPolicy
    threads: dict[RetentionRule, int]


class Retention:
    """The retention of one tenant, and its holds. RoleRefused unless the scope is an administrator's."""

    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        clock: Clock,
        settings: RetentionSettings,
        scope: Scope,
        *,
        actor_id: str | None = None,
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self._scope = scope
        self._actor_id = actor_id or scope.user_id
        self._policy = settings.policy_of(scope.tenant_id)
        # Holds and threads of all users are visible to the system scope only.
        self._system = system_scope(scope.tenant_id)

    async def plan(self) -> RetentionPlan:
        """Changes nothing."""
        self._scope.require("admin")
        return RetentionPlan(self._policy, _count(await self._overdue(PLAN_LIMIT)))

    async def apply(self) -> dict[RetentionRule, int]:
        """Purges every overdue thread and drops old audit entries; how many threads by rule."""
        self._scope.require("admin")
        purged: Counter[RetentionRule] = Counter()
        while batch := await self._overdue(_BATCH):
            removed = await self._purge(batch)
            purged.update(removed)
            if not removed:
                # Another process has purged them, or a hold came in between: the next run looks again.
                break
        cutoff = self._policy.cutoffs(self._clock.now()).audit
        if cutoff is not None:
            await self._store.scoped(self._system).drop_acts(before=cutoff)
        return dict(purged)

    async def _overdue(self, limit: int) -> list[OverdueThread]:
        cutoffs = self._policy.cutoffs(self._clock.now())
        return await self._store.scoped(self._system).overdue_threads(
            age=cutoffs.age, archived=cutoffs.archived, deleted=cutoffs.deleted, limit=limit
        )

    async def _purge(self, batch: list[OverdueThread]) -> dict[RetentionRule, int]:
        async def work(tx: Transaction) -> dict[RetentionRule, int]:
            purged = _count([thread for thread in batch if await tx.purge_thread(thread.id)])
            if purged:
                details = self._sealer.json({"threads": purged}, "details")
                await tx.record_act("retention.applied", self._scope.tenant_id, details, actor_id=self._actor_id)
            return purged

        return await self._store.transact(self._system, work)

    async def add_hold(self, reason: str, *, user_id: str | None = None, thread_id: str | None = None) -> LegalHold:
        """Forbids purges of a thread, of a user or, with neither, of the whole tenant. InvalidInput for both."""
        self._scope.require("admin")
        if user_id is not None and thread_id is not None:
            raise InvalidInput("name a user or a thread, not both: add a hold for each")
        if user_id is not None:
            check_user_id(user_id)
        if thread_id is not None:
            check_id("thread", thread_id)
        sealed, hold_id = self._sealer.text(reason, "reason"), new_id()

        async def work(tx: Transaction) -> LegalHold:
            hold = await tx.add_hold(hold_id, sealed, self._actor_id, user_id=user_id, thread_id=thread_id)
            await tx.record_act("hold.added", hold_id, actor_id=self._actor_id)
            return hold

        return await self._store.transact(self._system, work)

    async def holds(self) -> list[LegalHold]:
        """Oldest first."""
        self._scope.require("admin")
        return await self._store.scoped(self._system).holds()

    async def release(self, hold_id: str) -> None:
        """NotFound."""
        self._scope.require("admin")
        check_id("hold", hold_id)

        async def work(tx: Transaction) -> None:
            if not await tx.remove_hold(hold_id):
                raise NotFound("hold", hold_id)
            await tx.record_act("hold.released", hold_id, actor_id=self._actor_id)

        await self._store.transact(self._system, work)


async def apply_policies(store: Store, sealer: Sealer, clock: Clock, settings: RetentionSettings) -> None:
    """Applies the policies of all tenants once."""
    for tenant_id in await store.tenants():
        if settings.policy_of(tenant_id) != RetentionPolicy():
            own, scope = sealer.for_tenant(tenant_id), system_scope(tenant_id)
            purged = await Retention(store, own, clock, settings, scope, actor_id=SYSTEM_USER).apply()
            if purged:
                log.info("retention applied", extra={"tenant_id": tenant_id, "threads": sum(purged.values())})


async def drop_ended_sign_ins(store: Store, clock: Clock) -> None:
    """Removes sessions and links that ended long ago. Until then they can tell who had access."""
    for tenant_id in await store.tenants():
        await store.scoped(system_scope(tenant_id)).drop_sign_ins(before=clock.now() - _SIGN_INS_KEPT)


async def run_retention(store: Store, sealer: Sealer, clock: Clock, settings: RetentionSettings) -> None:
    """Applies the policies at once and every hour, until it is cancelled."""
    while True:
        try:
            await apply_policies(store, sealer, clock, settings)
            await drop_ended_sign_ins(store, clock)
        except StoreFailed:
            log.warning("retention failed", exc_info=True)
        await asyncio.sleep(_SWEEP_SECONDS)


def _count(threads: list[OverdueThread]) -> dict[RetentionRule, int]:
    return dict(Counter(thread.rule for thread in threads))
