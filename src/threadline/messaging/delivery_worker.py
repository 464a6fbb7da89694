"""DeliveryWorker: claims deliveries of one tenant, sends them, and settles them. The only loop that does.

The queue says where deliveries come from: the store of this process, or a service over HTTP. The sender says how they
are sent: by a platform's HTTP API, or over a bot's connection. Any number of workers run at the same time: a row is
claimed by one of them, and rows for one recipient are claimed one after the other, so that they are sent in order.

A worker that stops in order gives back what it claimed and did not send. What was being sent when its time was up is
given back as ambiguous.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from threadline.core.errors import ServiceUnavailable, StoreFailed
from threadline.core.platform_messages import Outcome, Permanent, Released, Transient
from threadline.core.turns import Surface
from threadline.messaging.circuit_breaker import CircuitBreaker

log = logging.getLogger("threadline.outbox")

# Sends of one tenant at the same time: more would only meet the platform's rate limit.
_PARALLEL = 10
# When most slots are busy, wait this long for more of them to become free: claiming several rows costs no more than
# claiming one.
_BATCH_SECONDS = 0.02
# Short at first, because most outages are restarts; then long enough not to add load to a server that is starting.
_PAUSES = (0.2, 1.0, 3.0, 10.0)
# The process is ending, and a claim that is not given back only delays its row: no reason to wait for a store that is
# down.
_GIVE_BACK_SECONDS = 2.0

T = TypeVar("T")


class Delivery(Protocol):
    """A claimed row of the outbox."""

    @property
    def id(self) -> str: ...

    @property
    def platform(self) -> Surface: ...


D = TypeVar("D", bound=Delivery)
D_contra = TypeVar("D_contra", bound=Delivery, contravariant=True)


class DeliveryQueue(Protocol[D]):
    """StoreFailed and ServiceUnavailable pass: call again. Other errors do not."""

    async def claim(self, platforms: Sequence[Surface], *, limit: int, holding: Sequence[str]) -> list[D]:
        """Claims rows that are due; it may wait a few seconds for one. `holding` are the rows that this worker has."""
        ...

    async def settle(self, delivery: D, outcome: Outcome) -> bool:
        """Records the outcome. False if the claim is no longer this worker's."""
        ...

    def stop(self) -> None:
        """Claims wait no longer."""
        ...


class Sender(Protocol[D_contra]):
    async def send(self, delivery: D_contra) -> Outcome: ...


class _Sending(NamedTuple, Generic[D]):
    delivery: D
    task: asyncio.Task[None]


class DeliveryWorker(Generic[D]):
    def __init__(
        self, queue: DeliveryQueue[D], sender: Sender[D], breaker: CircuitBreaker, platforms: Sequence[Surface]
    ) -> None:
        self._queue = queue
        self._sender = sender
        self.breaker = breaker
        self._platforms = platforms
        self._sending: dict[str, _Sending[D]] = {}
        self._claiming: asyncio.Task[list[D]] | None = None
        self._changed = asyncio.Event()
        """A send has ended, or a row may be due: look again."""
        self._is_closing = False
        self._draining = asyncio.Lock()
        self._drains = 0
        self._tried = 0

    @property
    def is_idle(self) -> bool:
        """It does nothing, and no platform failed last: a new worker would know as much."""
        return not self._drains and not self._sending and not self.breaker.has_failures

    def wake(self) -> None:
        """A row may be due now."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled; call `close` after that. For a queue whose claims wait for rows."""
        while True:
            self._changed.clear()
            await self._claim()
            if len(self._sending) >= _PARALLEL or not any(self.breaker.claimable(self._platforms)):
                await self._wait()

    async def drain(self) -> int:
        """Until nothing is due and nothing is being sent. For a queue whose claims do not wait. How many rows were
        tried."""
        self._drains += 1
        try:
            # Two at the same time would claim for the same slots.
            async with self._draining:
                before = self._tried
                while not self._is_closing:
                    self._changed.clear()
                    await self._claim()
                    if not self._sending and not self._changed.is_set():
                        break
                    await self._wait()
                return self._tried - before
        finally:
            self._drains -= 1

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            # Not `wait_for`: in Python 3.11 it loses a cancellation that comes together with the event.
            async with asyncio.timeout(self.breaker.seconds_to_probe()):
                await self._changed.wait()
        if len(self._sending) > _PARALLEL / 2:
            await asyncio.wait([each.task for each in self._sending.values()], timeout=_BATCH_SECONDS)

    async def _claim(self) -> None:
        closed, to_probe = self.breaker.claimable(self._platforms)
        if closed and len(self._sending) < _PARALLEL:
            await self._claim_for(closed, _PARALLEL - len(self._sending))
        for platform in to_probe:
            if await self._claim_for([platform], 1):
                self.breaker.begin_probe(platform)

    async def _claim_for(self, platforms: Sequence[Surface], limit: int) -> int:
        """Claims and starts to send. In a task of its own: cancelling the caller must not lose the rows that a commit
        has just claimed; `close` gives them back."""
        self._claiming = asyncio.create_task(self._claim_until_up(platforms, limit), name="claim deliveries")
        await asyncio.wait({self._claiming})
        if self._is_closing:
            return 0
        claimed, self._claiming = self._claiming.result(), None
        # A slow send may outlast its claim, which its own worker then claims again: it must not be sent twice.
        fresh = [delivery for delivery in claimed if delivery.id not in self._sending]
        for delivery in fresh:
            task = asyncio.create_task(self._deliver(delivery), name=f"delivery {delivery.id}")
            self._sending[delivery.id] = _Sending(delivery, task)
            task.add_done_callback(functools.partial(self._forget, delivery.id))
        self._tried += len(fresh)
        return len(fresh)

    async def _claim_until_up(self, platforms: Sequence[Surface], limit: int) -> list[D]:
        return await retry_until_up(lambda: self._queue.claim(platforms, limit=limit, holding=list(self._sending)))

    def _forget(self, delivery_id: str, task: asyncio.Task[None]) -> None:
        self._sending.pop(delivery_id, None)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # For example a service that no longer accepts the bot's token; the next claim raises the same.
            log.error("delivery not settled: %s", error, extra={"outbox_id": delivery_id})

    async def _deliver(self, delivery: D) -> None:
        outcome = await self._send(delivery)
        self.breaker.record(delivery.platform, outcome)
        if isinstance(outcome, Transient):
            log.warning("delivery waits: %s", outcome.reason, extra={"outbox_id": delivery.id})
        if not await retry_until_up(lambda: self._queue.settle(delivery, outcome)):
            log.warning("claim lost while sending", extra={"outbox_id": delivery.id})

    async def _send(self, delivery: D) -> Outcome:
        try:
            return await self._sender.send(delivery)
        except (StoreFailed, ServiceUnavailable) as exc:
            return Transient(str(exc))
        except Exception as exc:
            # A defect must not block the rows behind it: it becomes a dead letter that an operator sees.
            log.exception("delivery failed", extra={"outbox_id": delivery.id})
            return Permanent(f"{type(exc).__name__} in the sender")

    async def close(self, seconds: float) -> None:
        """Stops claiming, waits so long for running sends, and gives back what is not sent."""
        self._is_closing = True
        self._changed.set()
        self._queue.stop()
        await self._give_back(await self._last_claim(), Released(may_be_sent=False))
        if self._sending:
            await asyncio.wait([each.task for each in self._sending.values()], timeout=seconds)
        cut_off = list(self._sending.values())
        for each in cut_off:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in cut_off), return_exceptions=True)
        await self._give_back([each.delivery for each in cut_off], Released(may_be_sent=True))

    async def _last_claim(self) -> list[D]:
        """What a claim brought that `run` no longer starts to send."""
        claiming, self._claiming = self._claiming, None
        if claiming is None:
            return []
        await asyncio.wait({claiming}, timeout=_GIVE_BACK_SECONDS)
        if not claiming.cancel() and not claiming.cancelled() and claiming.exception() is None:
            return [delivery for delivery in claiming.result() if delivery.id not in self._sending]
        return []

    async def _give_back(self, deliveries: Sequence[D], outcome: Released) -> None:
        try:
            async with asyncio.timeout(_GIVE_BACK_SECONDS):
                for delivery in deliveries:
                    await self._queue.settle(delivery, outcome)
        except (StoreFailed, ServiceUnavailable, TimeoutError):
            log.warning("claims not given back: they expire", extra={"count": len(deliveries)})


async def retry_until_up(
    call: Callable[[], Awaitable[T]], faults: tuple[type[Exception], ...] = (StoreFailed, ServiceUnavailable)
) -> T:
    """Repeats the call while the database or the service is down. Other errors are raised."""
    attempt = 0
    while True:
        try:
            return await call()
        except faults as exc:
            log.warning("waiting: %s", exc)
            await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
            attempt += 1
