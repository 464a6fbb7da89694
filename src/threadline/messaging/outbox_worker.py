"""OutboxWorker: delivers the outbox of every tenant to the platforms that this process sends to over HTTP.

Each tenant has a delivery worker of its own, so that a slow platform of one delays no other. Platforms whose bot
delivers itself (`bridges`) are not claimed here.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from threadline.core.channels import OutboxRow
from threadline.core.errors import StoreFailed
from threadline.core.platform_messages import Outcome
from threadline.core.threads import system_scope
from threadline.core.turns import Surface
from threadline.messaging.circuit_breaker import CircuitBreaker
from threadline.messaging.credentials import Credentials
from threadline.messaging.delivery_worker import DeliveryWorker
from threadline.messaging.live_streams import LiveStreams
from threadline.messaging.platform_sender import PlatformSender
from threadline.messaging.settlement import DeliveryRetry, Settlement
from threadline.messaging.stream_finisher import StreamFinisher
from threadline.ports import Channel, Clock, Http, Processes, Store

log = logging.getLogger("threadline.outbox")

# How long a process that ends waits for deliveries: a normal send takes well under a second. The service's parent waits
# ten seconds longer than the grace period of turns before it kills a worker.
_CLOSE_SECONDS = 5.0


class TenantQueue:
    """The outbox of one tenant in the store of this process. Claims do not wait: the tenant is woken."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settlement: Settlement,
        retry: DeliveryRetry,
        processes: Processes,
        tenant_id: str,
    ) -> None:
        self._session = store.scoped(system_scope(tenant_id))
        self._clock = clock
        self._settlement = settlement
        self._retry = retry
        self._tenant_id = tenant_id
        self._processes = processes
        self._worker = processes.worker
        self._gone: list[str] = []

    async def look_for_gone_workers(self) -> None:
        """Finds claims of processes of this machine that have ended, so that the next claim takes them over."""
        try:
            workers = await self._session.outbox_workers()
        except StoreFailed:
            # The claim that follows waits for the store, and the next sweep looks again.
            return
        self._gone = [worker for worker in workers if self._processes.is_running(worker) is False]

    async def claim(self, platforms: Sequence[Surface], *, limit: int, holding: Sequence[str]) -> list[OutboxRow]:
        until = self._clock.now() + dt.timedelta(seconds=self._retry.claim_seconds)
        # Claims of its own that it does not hold are due: the response to their commit was lost.
        gone = [self._worker, *self._gone]
        return await self._session.claim_outbox(
            self._worker,
            until=until,
            limit=limit,
            platforms=platforms,
            gone=gone,
            holding=holding,
        )

    async def settle(self, delivery: OutboxRow, outcome: Outcome) -> bool:
        return await self._settlement.settle(self._tenant_id, delivery, self._worker, outcome)

    def stop(self) -> None:
        """Nothing waits."""


class OutboxWorker:
    """`platforms` are those it sends to, enabled or not: rows of a disabled one are retried until it is enabled."""

    def __init__(
        self,
        store: Store,
        channels: Mapping[Surface, Channel],
        credentials: Credentials,
        http: Http,
        clock: Clock,
        settlement: Settlement,
        *,
        platforms: tuple[Surface, ...],
        retry: DeliveryRetry,
        processes: Processes,
        streams: LiveStreams,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._processes = processes
        self._chance = chance
        self._finisher = StreamFinisher(streams, http, retry.send_seconds)
        self._store = store
        self._channels = channels
        self._credentials = credentials
        self._http = http
        self._clock = clock
        self._settlement = settlement
        self._platforms = platforms
        self._retry = retry
        self._woken: set[str] = set()
        self._wakes = asyncio.Event()
        self._queues: dict[str, TenantQueue] = {}
        self._workers: dict[str, DeliveryWorker[OutboxRow]] = {}
        self._draining: dict[str, asyncio.Task[None]] = {}

    def wake(self, tenant_id: str) -> None:
        """Rows of this tenant may be due now."""
        self._woken.add(tenant_id)
        self._wakes.set()

    async def run(self, every_seconds: float) -> None:
        """Sends what this process enqueues immediately, and every `every_seconds` what other processes left or what is
        due again. Until cancelled; call `close` after that."""
        loop = asyncio.get_running_loop()
        sweep_at = loop.time()
        while True:
            self._drain_all(await self._wait_until(sweep_at), is_sweep=False)
            if loop.time() >= sweep_at:
                self._drain_all(await self._busy_tenants(), is_sweep=True)
                sweep_at = loop.time() + every_seconds

    async def _wait_until(self, sweep_at: float) -> set[str]:
        """The tenants that were woken before the next sweep."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(sweep_at):
                await self._wakes.wait()
        self._wakes.clear()
        woken, self._woken = self._woken, set()
        return woken

    async def _busy_tenants(self) -> set[str]:
        try:
            return set(await self._store.busy_tenants())
        except StoreFailed:
            log.warning("outbox not read", exc_info=True)
            return set()

    def _drain_all(self, tenants: Iterable[str], *, is_sweep: bool) -> None:
        for tenant_id in tenants:
            if tenant_id not in self._draining:
                task = asyncio.create_task(self._drain(tenant_id, is_sweep=is_sweep), name=f"outbox of {tenant_id}")
                self._draining[tenant_id] = task
            elif tenant_id in self._workers:
                # It may have claimed before this row was enqueued.
                self._workers[tenant_id].wake()

    async def _drain(self, tenant_id: str, *, is_sweep: bool) -> None:
        try:
            await self.deliver(tenant_id, is_sweep=is_sweep)
        except Exception:
            # One tenant's failure must not end the deliveries of the others. The next sweep tries again.
            log.exception("outbox not delivered")
        finally:
            del self._draining[tenant_id]

    async def deliver(self, tenant_id: str, *, is_sweep: bool = False) -> int:
        """Claims and sends what is due in one tenant, a few rows at a time, until nothing is. How many were tried. A
        sweep also takes over the claims of processes that have ended."""
        queue = self._queues.get(tenant_id)
        if queue is None:
            queue = self._queues[tenant_id] = self._new_queue(tenant_id)
            self._workers[tenant_id] = self._new_worker(tenant_id, queue)
        worker = self._workers[tenant_id]
        if is_sweep:
            await queue.look_for_gone_workers()
        tried = await worker.drain()
        if worker.is_idle:
            # Tenants come and go: only those whose deliveries fail are remembered.
            self._queues.pop(tenant_id, None)
            self._workers.pop(tenant_id, None)
        return tried

    def _new_queue(self, tenant_id: str) -> TenantQueue:
        return TenantQueue(self._store, self._clock, self._settlement, self._retry, self._processes, tenant_id)

    def _new_worker(self, tenant_id: str, queue: TenantQueue) -> DeliveryWorker[OutboxRow]:
        session = self._store.scoped(system_scope(tenant_id))
        sender = PlatformSender(
            tenant_id, session, self._channels, self._credentials, self._http, self._clock, self._retry, self._finisher
        )
        return DeliveryWorker(queue, sender, CircuitBreaker(self._clock, self._retry, self._chance), self._platforms)

    def open_circuits(self, platform: Surface) -> int:
        """In how many tenants deliveries to this platform are paused."""
        return sum(platform in worker.breaker.open_platforms for worker in self._workers.values())

    async def close(self) -> None:
        """Sends what was enqueued by turns that ended just now, waits for running sends, and gives back the rest."""
        self._drain_all(self._woken, is_sweep=False)
        if self._draining:
            await asyncio.wait(self._draining.values(), timeout=_CLOSE_SECONDS)
        # What is left took its time already.
        await asyncio.gather(*(worker.close(0.0) for worker in self._workers.values()))
        await asyncio.gather(*self._draining.values(), return_exceptions=True)
