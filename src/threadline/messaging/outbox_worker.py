"""OutboxWorker: rows of the outbox are claimed, sent, and settled by what the platform said.

Any number of workers may do this; each row is one worker's at a time, and what waits for one recipient goes out in
order. A fault that may pass is tried again, ever later; what can never be delivered is dead at once. A send that nobody
knows the end of is repeated and marked: better twice than never, and once where the platform knows our key.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import logging
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from threadline.core.channels import AMBIGUOUS, OutboxRow
from threadline.core.errors import NotFound, SettingsInvalid, StoreFailed
from threadline.core.ids import new_id
from threadline.core.platform_messages import Ambiguous, HttpResponse, Outcome, Permanent, Sent, Transient, WindowClosed
from threadline.core.threads import system_scope
from threadline.core.turns import Surface
from threadline.messaging.credentials import Credentials
from threadline.observability.metrics import Metrics
from threadline.ports import Channel, Clock, Http, Store, Transaction

log = logging.getLogger("threadline.outbox")

_AT_ONCE = 10
_REASON_LENGTH = 300
_COMPANY_SECONDS = 0.02


class Opened(NamedTuple):
    """What a platform's messages are sent with."""

    channel: Channel
    secrets: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<opened {self.channel.platform}>"


class Retrying(msgspec.Struct, frozen=True):
    """How often and when a delivery is tried again."""

    attempts: int = 5
    first_seconds: float = 5.0
    longest_seconds: float = 120.0
    claim_seconds: float = 30.0
    send_seconds: float = 20.0

    def wait(self, failed: int, asked: float | None, chance: float) -> float:
        """Seconds until the next attempt after so many failed ones: doubled each time, spread by chance, never sooner
        than the platform asked for, never later than the longest."""
        backoff = self.first_seconds * 2.0 ** min(failed - 1, 16) * (1.0 + 0.2 * chance)
        return min(max(backoff, asked or 0.0), self.longest_seconds)


class OutboxWorker:
    def __init__(
        self,
        store: Store,
        channels: Mapping[Surface, Channel],
        credentials: Credentials,
        http: Http,
        clock: Clock,
        metrics: Metrics,
        *,
        retrying: Retrying | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.worker = new_id()
        self._store = store
        self._channels = channels
        self._credentials = credentials
        self._http = http
        self._clock = clock
        self._deliveries = metrics.counter(
            "threadline_outbox_deliveries_total", "Attempts to deliver, by what came of them.", ("platform", "outcome")
        )
        self._waits = metrics.histogram(
            "threadline_outbox_wait_seconds", "How long a reply waited until it was sent.", ("platform",)
        )
        self._retrying = retrying or Retrying()
        self._chance = chance
        self._nudged: set[str] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()

    def wake(self, tenant_id: str) -> None:
        """Something of this tenant's may be due now."""
        self._nudged.add(tenant_id)
        self._woken.set()

    async def run(self, every_seconds: float) -> None:
        """Delivers what this process enqueues at once, and every so many seconds what others left or what is due
        again. Each tenant has a task of its own: one whose platform is slow holds up nobody else."""
        tasks: dict[str, asyncio.Task[int]] = {}
        loop = asyncio.get_running_loop()
        sweep_at = loop.time()
        async with asyncio.TaskGroup() as group:
            while True:
                tenants = await self._nudged_before(sweep_at)
                if loop.time() >= sweep_at:
                    tenants |= await self._all_tenants()
                    sweep_at = loop.time() + every_seconds
                tasks = {tenant_id: task for tenant_id, task in tasks.items() if not task.done()}
                for tenant_id in tenants:
                    if tenant_id in tasks:
                        # It may have looked before this was enqueued: look again when it is done.
                        tasks[tenant_id].add_done_callback(functools.partial(self._nudge_again, tenant_id))
                    else:
                        tasks[tenant_id] = group.create_task(self._deliver_safely(tenant_id))

    def _nudge_again(self, tenant_id: str, _: asyncio.Task[int]) -> None:
        self.wake(tenant_id)

    async def _nudged_before(self, sweep_at: float) -> set[str]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(sweep_at):
                await self._woken.wait()
        self._woken.clear()
        nudged, self._nudged = self._nudged, set()
        return nudged

    async def _all_tenants(self) -> set[str]:
        try:
            return set(await self._store.tenants())
        except StoreFailed:
            log.warning("outbox not read", exc_info=True)
            return set()

    async def _deliver_safely(self, tenant_id: str) -> int:
        try:
            return await self.deliver(tenant_id)
        except StoreFailed:
            log.warning("outbox not read", exc_info=True)
            return 0

    async def deliver(self, tenant_id: str) -> int:
        """Claims and sends what is due in one tenant, a few at a time, until nothing is. How many were tried."""
        tx = self._store.scoped(system_scope(tenant_id))
        sending: set[asyncio.Task[None]] = set()
        tried = 0
        while True:
            until = self._clock.now() + dt.timedelta(seconds=self._retrying.claim_seconds)
            rows = await tx.claim_outbox(self.worker, until=until, limit=_AT_ONCE - len(sending))
            tried += len(rows)
            opened = {platform: await self._open(tenant_id, platform) for platform in {row.platform for row in rows}}
            sending |= {self._start(tx, row, opened[row.platform]) for row in rows}
            if not sending:
                return tried
            _, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
            if len(sending) > _AT_ONCE / 2:
                # Others are about to end, and to claim for several costs no more than for one.
                _, sending = await asyncio.wait(sending, timeout=_COMPANY_SECONDS)

    async def _open(self, tenant_id: str, platform: Surface) -> Opened | Transient | Permanent:
        """Or what comes of a platform's messages without it."""
        channel = self._channels.get(platform)
        if channel is None:
            return Transient("the platform is switched off")
        try:
            return Opened(channel, await self._credentials.open(tenant_id, platform))
        except NotFound:
            return Transient("there are no credentials for the platform")
        except SettingsInvalid as exc:
            return Permanent(str(exc))

    def _start(self, tx: Transaction, row: OutboxRow, opened: Opened | Transient | Permanent) -> asyncio.Task[None]:
        """A send goes on when whoever waits for it is cancelled: cut off, nobody would know what came of it."""
        task = asyncio.create_task(self._deliver(tx, row, opened), name=f"delivery {row.id}")
        self._sending.add(task)
        task.add_done_callback(self._sent)
        return task

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("delivery failed: %s", type(error).__name__)

    async def close(self) -> None:
        """Waits for what is being sent; nothing is claimed any more once `run` is cancelled."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=self._retrying.claim_seconds)

    async def _deliver(self, tx: Transaction, row: OutboxRow, opened: Opened | Transient | Permanent) -> None:
        outcome = await self._send(row, opened) if isinstance(opened, Opened) else opened
        try:
            settled = await self._settle(tx, row, outcome)
        except StoreFailed:
            # The claim runs out and the row is sent again, marked: it may have been sent now.
            log.warning("delivery not recorded", extra={"outbox_id": row.id})
            return
        if not settled:
            log.warning("claim lost while sending", extra={"outbox_id": row.id})

    async def _send(self, row: OutboxRow, opened: Opened) -> Outcome:
        channel = opened.channel
        try:
            request = channel.build_request(opened.secrets, row.recipient, row.payload, row.id)
        except SettingsInvalid as exc:
            return Permanent(str(exc))
        answered = await self._http.send(request, seconds=self._retrying.send_seconds)
        return channel.parse_response(answered) if isinstance(answered, HttpResponse) else answered

    async def _settle(self, tx: Transaction, row: OutboxRow, outcome: Outcome) -> bool:
        doubtful = row.last_error if (row.last_error or "").startswith(AMBIGUOUS) else None
        match outcome:
            case Sent():
                self._deliveries.add(row.platform, "sent")
                self._waits.observe((self._clock.now() - row.created_at).total_seconds(), row.platform)
                return await tx.settle_outbox(row.id, self.worker, status="sent", error=doubtful)
            case WindowClosed(reason):
                self._deliveries.add(row.platform, "window_closed")
                return await tx.settle_outbox(row.id, self.worker, status="window_closed", error=_short(reason))
            case Permanent(reason):
                return await self._dead_letter(tx, row, _short(reason))
            case Transient(reason, retry_after):
                return await self._reschedule(tx, row, doubtful or _short(reason), retry_after)
            case Ambiguous(reason):
                return await self._reschedule(tx, row, f"{AMBIGUOUS}: {_short(reason)}", None)

    async def _reschedule(self, tx: Transaction, row: OutboxRow, error: str, asked: float | None) -> bool:
        failed = row.attempts + 1
        if failed >= self._retrying.attempts:
            return await self._dead_letter(tx, row, error)
        self._deliveries.add(row.platform, "put_off")
        wait = self._retrying.wait(failed, asked, self._chance())
        next_attempt_at = self._clock.now() + dt.timedelta(seconds=wait)
        return await tx.settle_outbox(
            row.id, self.worker, status="waiting", next_attempt_at=next_attempt_at, error=error
        )

    async def _dead_letter(self, tx: Transaction, row: OutboxRow, error: str) -> bool:
        self._deliveries.add(row.platform, "dead")
        log.error("delivery given up", extra={"outbox_id": row.id, "platform": row.platform})
        return await tx.settle_outbox(row.id, self.worker, status="dead", error=error)


def _short(reason: str) -> str:
    return reason[:_REASON_LENGTH]
