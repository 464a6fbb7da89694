"""OutboxWorker: claims rows of the outbox, sends them to their platform over HTTP, and settles them.

Any number of workers run at the same time: a row is claimed by one of them, and rows for one recipient are sent in
order. Platforms whose bot delivers itself (`bridges`) are not claimed here.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import logging
from collections.abc import Mapping
from typing import NamedTuple

from threadline.core.channels import OutboxRow
from threadline.core.errors import NotFound, SettingsInvalid, StoreFailed
from threadline.core.ids import new_id
from threadline.core.platform_messages import HttpResponse, Outcome, Permanent, Transient
from threadline.core.threads import system_scope
from threadline.core.turns import Surface
from threadline.messaging.credentials import Credentials
from threadline.messaging.settlement import DeliveryRetry, Settlement
from threadline.ports import Channel, Clock, Http, Store

log = logging.getLogger("threadline.outbox")

_PARALLEL = 10
# When most slots are busy, wait this long for more of them to become free: claiming several rows costs no more than
# claiming one.
_BATCH_SECONDS = 0.02


class OpenChannel(NamedTuple):
    """A codec with the tenant's credentials."""

    channel: Channel
    secrets: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<open channel {self.channel.platform}>"


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
    ) -> None:
        self.worker = new_id()
        self._store = store
        self._channels = channels
        self._credentials = credentials
        self._http = http
        self._clock = clock
        self._settlement = settlement
        self._platforms = platforms
        self._retry = retry
        self._waiting: set[str] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()

    def wake(self, tenant_id: str) -> None:
        """Rows of this tenant may be due now."""
        self._waiting.add(tenant_id)
        self._woken.set()

    async def run(self, every_seconds: float) -> None:
        """Sends what this process enqueues immediately, and every `every_seconds` what other processes left or what is
        due again. Each tenant has a task of its own, so that a slow platform of one delays no other."""
        tasks: dict[str, asyncio.Task[int]] = {}
        loop = asyncio.get_running_loop()
        sweep_at = loop.time()
        async with asyncio.TaskGroup() as group:
            while True:
                tenants = await self._wait_until(sweep_at)
                if loop.time() >= sweep_at:
                    tenants |= await self._all_tenants()
                    sweep_at = loop.time() + every_seconds
                tasks = {tenant_id: task for tenant_id, task in tasks.items() if not task.done()}
                for tenant_id in tenants:
                    if tenant_id in tasks:
                        # The task may have claimed before this row was enqueued: claim again when it is done.
                        tasks[tenant_id].add_done_callback(functools.partial(self._wake_after, tenant_id))
                    else:
                        tasks[tenant_id] = group.create_task(self._deliver_safely(tenant_id))

    def _wake_after(self, tenant_id: str, _: asyncio.Task[int]) -> None:
        self.wake(tenant_id)

    async def _wait_until(self, sweep_at: float) -> set[str]:
        """The tenants that were woken before the next sweep."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(sweep_at):
                await self._woken.wait()
        self._woken.clear()
        woken, self._waiting = self._waiting, set()
        return woken

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
        """Claims and sends what is due in one tenant, a few rows at a time, until nothing is. How many were tried."""
        session = self._store.scoped(system_scope(tenant_id))
        sending: set[asyncio.Task[None]] = set()
        tried = 0
        while True:
            until = self._clock.now() + dt.timedelta(seconds=self._retry.claim_seconds)
            rows = await session.claim_outbox(
                self.worker, until=until, limit=_PARALLEL - len(sending), platforms=self._platforms
            )
            tried += len(rows)
            channels = {platform: await self._open(tenant_id, platform) for platform in {row.platform for row in rows}}
            sending |= {self._start(tenant_id, row, channels[row.platform]) for row in rows}
            if not sending:
                return tried
            _, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
            if len(sending) > _PARALLEL / 2:
                _, sending = await asyncio.wait(sending, timeout=_BATCH_SECONDS)

    async def _open(self, tenant_id: str, platform: Surface) -> OpenChannel | Transient | Permanent:
        """The channel, or the outcome for its rows where it cannot be used."""
        channel = self._channels.get(platform)
        if channel is None:
            return Transient("the platform is disabled")
        try:
            return OpenChannel(channel, await self._credentials.open(tenant_id, platform))
        except NotFound:
            return Transient("the platform has no credentials")
        except SettingsInvalid as exc:
            return Permanent(str(exc))

    def _start(
        self, tenant_id: str, row: OutboxRow, channel: OpenChannel | Transient | Permanent
    ) -> asyncio.Task[None]:
        """The send has a task of its own and survives cancellation of the caller: its outcome would be unknown."""
        task = asyncio.create_task(self._deliver(tenant_id, row, channel), name=f"delivery {row.id}")
        self._sending.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("delivery failed: %s", type(error).__name__)

    async def close(self) -> None:
        """Waits for running sends; nothing is claimed any more once `run` is cancelled."""
        if self._sending:
            # No longer than a claim: after that another worker sends the row anyway.
            await asyncio.wait(self._sending, timeout=self._retry.claim_seconds)

    async def _deliver(self, tenant_id: str, row: OutboxRow, channel: OpenChannel | Transient | Permanent) -> None:
        outcome = await self._send(row, channel) if isinstance(channel, OpenChannel) else channel
        try:
            settled = await self._settlement.settle(tenant_id, row, self.worker, outcome)
        except StoreFailed:
            # The claim expires and the row is sent again, marked as ambiguous.
            log.warning("delivery not recorded", extra={"outbox_id": row.id})
            return
        if not settled:
            log.warning("claim lost while sending", extra={"outbox_id": row.id})

    async def _send(self, row: OutboxRow, open_channel: OpenChannel) -> Outcome:
        channel, secrets = open_channel
        try:
            request = channel.build_request(secrets, row.recipient, row.payload, row.id)
        except SettingsInvalid as exc:
            return Permanent(str(exc))
        response = await self._http.send(request, seconds=self._retry.send_seconds)
        return channel.parse_response(response) if isinstance(response, HttpResponse) else response
