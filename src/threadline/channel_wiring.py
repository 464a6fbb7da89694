"""Builds everything about messaging platforms: inbox, outbox and its worker, links, credentials, bridges.

Codecs, the cipher and the HTTP client are extras. They are imported when a platform is first used, so that a program
without platforms does not load them.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import cast

from threadline.core.errors import ExtraMissing, NotFound, StoreFailed
from threadline.core.platform_messages import Ambiguous, HttpRequest, HttpResponse, Transient
from threadline.core.sealing import Sealer
from threadline.core.threads import system_scope
from threadline.core.turns import Policy, Surface
from threadline.messaging.approval_answers import ApprovalAnswers
from threadline.messaging.bridges import Bridges, OutboxSignal
from threadline.messaging.chat_commands import ChatCommands
from threadline.messaging.credentials import Credentials
from threadline.messaging.delivery_intake import DeliveryIntake
from threadline.messaging.diagnosis import ChannelDiagnosis
from threadline.messaging.home_threads import HomeThreads
from threadline.messaging.identities import BotIdentities
from threadline.messaging.inbox import Inbox
from threadline.messaging.links import Links
from threadline.messaging.live_views import LiveViews
from threadline.messaging.outbox import Outbox, UnansweredSweep
from threadline.messaging.outbox_worker import OutboxWorker
from threadline.messaging.polling import Polling
from threadline.messaging.rooms import ROOM_PLATFORMS
from threadline.messaging.settlement import DeliveryRetry, Settlement
from threadline.messaging.socket_mode import SocketMode
from threadline.messaging.unlinked_senders import UnlinkedSenders
from threadline.messaging.window_templates import WindowTemplates
from threadline.observability.metrics import Metrics, Reading
from threadline.ports import (
    Approver,
    Channel,
    Clock,
    Http,
    PolledChannel,
    Processes,
    Receiver,
    Socket,
    SocketChannel,
    Sockets,
    Store,
)
from threadline.settings import ChannelSettings, ChannelsSettings
from threadline.turns.acceptance import Turns
from threadline.turns.agent_directory import Directory
from threadline.turns.approvals import Approvals
from threadline.turns.runner import Runner
from threadline.turns.streams import Streams
from threadline.vault import Vault

log = logging.getLogger("threadline.messaging")

# Old rows do no harm while they wait to be deleted.
_DELETE_SECONDS = 3_600.0
# Unanswered messages are rare (see UnansweredSweep), and the search costs a query for each tenant.
_SWEEP_SECONDS = 10.0
PLATFORMS: tuple[Surface, ...] = ("slack", "telegram", "whatsapp")


class Codecs(Mapping[Surface, Channel]):
    """The enabled platforms, each with its codec."""

    def __init__(self, settings: ChannelsSettings) -> None:
        self._settings = settings
        self._made: dict[Surface, Channel] | None = None

    def __getitem__(self, platform: Surface) -> Channel:
        return self._codecs()[platform]

    def __iter__(self) -> Iterator[Surface]:
        return iter(self._codecs())

    def __len__(self) -> int:
        return len(self._codecs())

    def _codecs(self) -> dict[Surface, Channel]:
        if self._made is None:
            made = _made_codecs(self._settings)
            self._made = {
                name: codec for name, codec in made.items() if platform_settings(self._settings, name).enabled
            }
        return self._made


def _made_codecs(settings: ChannelsSettings) -> dict[Surface, Channel]:
    try:
        from threadline.channels import slack, telegram, whatsapp  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as exc:
        raise ExtraMissing("channels", "Slack, Telegram and WhatsApp") from exc
    return {
        "slack": slack.Slack(
            settings.slack.api or slack.API,
            by_thread=settings.slack.contexts == "thread",
            direct_threads=settings.slack.direct_replies == "thread",
        ),
        "telegram": telegram.Telegram(
            settings.telegram.api or telegram.API, by_thread=settings.telegram.contexts == "thread"
        ),
        "whatsapp": whatsapp.WhatsApp(
            settings.whatsapp.api or whatsapp.API,
            template=settings.whatsapp.template,
            template_language=settings.whatsapp.template_language,
        ),
    }


def platform_settings(settings: ChannelsSettings, platform: Surface) -> ChannelSettings:
    found = {"slack": settings.slack, "telegram": settings.telegram, "whatsapp": settings.whatsapp}
    return found[platform]


def _stand_ins(settings: ChannelsSettings) -> list[str]:
    return [api for name in PLATFORMS if (api := platform_settings(settings, name).api) is not None]


class LazyPlatformHttp:
    """The HTTP client for platforms, imported at its first use."""

    def __init__(self, settings: ChannelsSettings) -> None:
        self._stand_ins = _stand_ins(settings)
        self._http: Http | None = None

    async def send(self, request: HttpRequest, *, seconds: float = 20.0) -> HttpResponse | Transient | Ambiguous:
        return await self.opened().send(request, seconds=seconds)

    def opened(self) -> Http:
        if self._http is None:
            from threadline.platform_http import PlatformHttp  # noqa: PLC0415 - an extra

            self._http = PlatformHttp(self._stand_ins)
        return self._http


class LazyPlatformSockets:
    """The WebSocket client for platforms, imported at its first use."""

    def __init__(self, settings: ChannelsSettings) -> None:
        self._stand_ins = _stand_ins(settings)
        self._sockets: Sockets | None = None

    async def open(self, url: str) -> Socket | Transient:
        if self._sockets is None:
            try:
                from threadline.platform_sockets import PlatformSockets  # noqa: PLC0415 - an extra
            except ModuleNotFoundError as exc:
                raise ExtraMissing("channels", "Slack's Socket Mode") from exc
            self._sockets = PlatformSockets(self._stand_ins)
        return await self._sockets.open(url)


class Messaging:
    """Everything about messaging platforms in this process."""

    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        clock: Clock,
        metrics: Metrics,
        settings: ChannelsSettings,
        vault: Vault,
        processes: Processes,
        *,
        retry: DeliveryRetry | None = None,
        delivers: bool = True,
    ) -> None:
        """Without `delivers`, other processes send what this one enqueues."""
        self.settings = settings
        self._delivers = delivers
        self._vault = vault
        self.http = LazyPlatformHttp(settings)
        self.codecs = Codecs(settings)
        self.credentials = Credentials(store, self._vault, self.codecs)
        self.identities = BotIdentities(self.http, clock)
        self.live_views = LiveViews(self.codecs, self.credentials, self.http, settings.live_after_seconds)
        self.links = Links(store, clock, lifetime=dt.timedelta(minutes=settings.link_minutes))
        retry = retry or DeliveryRetry(give_up_seconds=settings.retry_hours * 3_600)
        templates = WindowTemplates(self.codecs, clock)
        self.settlement = Settlement(store, sealer, clock, metrics, templates, retry)
        self.outbox_worker = OutboxWorker(
            store,
            self.codecs,
            self.credentials,
            self.http,
            clock,
            self.settlement,
            platforms=PLATFORMS,
            retry=retry,
            processes=processes,
            streams=self.live_views.streams,
        )
        self._signal = OutboxSignal()
        lifetime = dt.timedelta(hours=settings.approval_hours)
        self.outbox = Outbox(store, sealer, self.codecs, self.wake, templates, question_lifetime=lifetime)
        self.unanswered_sweep = UnansweredSweep(store, self.outbox)
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self._metrics = metrics
        self._register_gauges()

    def _register_gauges(self) -> None:
        async def open_circuits() -> Reading:
            return {(platform,): self.outbox_worker.open_circuits(platform) for platform in PLATFORMS}

        async def oldest() -> Reading:
            found: dict[tuple[str, ...], float] = {}
            now = self._clock.now()
            for tenant_id in await self._store.busy_tenants():
                for each in await self._store.scoped(system_scope(tenant_id)).outbox_backlog():
                    if each.status in ("waiting", "claimed"):
                        age = (now - each.oldest_at).total_seconds()
                        found[each.platform,] = max(found.get((each.platform,), 0.0), age)
            return found

        self._metrics.gauge(
            "threadline_outbox_open_circuits",
            "Tenants whose deliveries this process has paused because the platform fails.",
            ("platform",),
            read=open_circuits,
        )
        self._metrics.gauge(
            "threadline_outbox_oldest_seconds",
            "Age of the oldest delivery that waits to be sent.",
            ("platform",),
            read=oldest,
        )

    def wake(self, tenant_id: str) -> None:
        """Something was enqueued for this tenant."""
        if self._delivers:
            self.outbox_worker.wake(tenant_id)
        else:
            self._store.announce_work(tenant_id)
        self._signal.wake()

    async def run(self) -> None:
        """Delivers, answers unanswered messages, and deletes old settled rows, until cancelled."""
        if self._vault.has_keys:
            self._prepare()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.outbox_worker.run(self.settings.sweep_seconds))
            group.create_task(self._delete_settled())
            group.create_task(self._sweep_unanswered())

    def _prepare(self) -> None:
        """Imports the extras now: the first message would wait half a second for them. A missing extra is reported when
        it is used."""
        with suppress(ExtraMissing):
            len(self.codecs)
            self.http.opened()

    async def _sweep_unanswered(self) -> None:
        while True:
            try:
                await self.unanswered_sweep.sweep()
            except StoreFailed:
                log.warning("unanswered messages not swept", exc_info=True)
            # Only what a crash left is found here, so minutes between sweeps are soon enough.
            await asyncio.sleep(_SWEEP_SECONDS)

    async def close(self) -> None:
        """After `run` was cancelled and turns have ended: delivers what they enqueued, and gives back the rest."""
        await self.live_views.close()
        await self.outbox_worker.close()

    async def _delete_settled(self) -> None:
        while True:
            try:
                before = self._clock.now() - dt.timedelta(days=self.settings.keep_days)
                for tenant_id in await self._store.tenants():
                    await self._store.scoped(system_scope(tenant_id)).drop_settled(before=before)
            except StoreFailed:
                log.warning("settled rows not dropped", exc_info=True)
            # Rows are kept for days: looking more often would find nothing more.
            await asyncio.sleep(_DELETE_SECONDS)

    def open_inbox(
        self,
        turns: Turns,
        approvals: Approvals,
        runner: Runner,
        directory: Directory,
        approver: Approver,
        streams: Streams,
        default_agent: str,
    ) -> Inbox:
        return Inbox(
            self._store,
            turns,
            runner,
            directory,
            self.outbox,
            ChatCommands(self._sealer, directory.configured_row, HomeThreads.of(self.settings, default_agent)),
            UnlinkedSenders(self._store, self.links, self.outbox),
            ApprovalAnswers(self._store, approvals, turns, self.outbox, runner, self._clock),
            approver,
            self._clock,
            self._metrics,
            agents=self._agents(default_agent),
            policies=self._policies(),
            replay_windows=dict.fromkeys(PLATFORMS, dt.timedelta(seconds=self.settings.replay_seconds)),
            live_views=self.live_views,
            streams=streams,
            wake=self.wake,
        )

    def _agents(self, default_agent: str) -> dict[Surface, str]:
        named = {name: platform_settings(self.settings, name).agent or default_agent for name in PLATFORMS}
        return {**named, **dict.fromkeys(ROOM_PLATFORMS, default_agent)}

    def _policies(self) -> dict[Surface, Policy]:
        policy: Policy = self.settings.policy
        own = {name: platform_settings(self.settings, name).policy or policy for name in PLATFORMS}
        return {**dict.fromkeys(ROOM_PLATFORMS, policy), **own}

    def open_bridges(self, inbox: Inbox) -> Bridges:
        return Bridges(self._store, self._sealer, self._clock, inbox, self.settlement, self._signal)

    def open_diagnosis(
        self, directory: Directory, default_agent: str, *, serves_public_names: bool
    ) -> ChannelDiagnosis:
        stand_ins = frozenset(name for name in PLATFORMS if platform_settings(self.settings, name).api is not None)
        return ChannelDiagnosis(
            self._store,
            self._vault,
            self.credentials,
            directory,
            self.codecs,
            platforms=PLATFORMS,
            agents=self._agents(default_agent),
            stand_ins=stand_ins,
            http=self.http,
            clock=self._clock,
            serves_public_names=serves_public_names,
        )

    def open_polling(self, inbox: Inbox, platform: str) -> Polling:
        """NotFound for a platform that cannot be polled."""
        channel = self.codecs.get("telegram")
        if platform != "telegram" or channel is None:
            raise NotFound("platform that can be polled", platform)
        intake = DeliveryIntake(inbox, self.outbox)
        # The protocol cannot be checked at run time, and Telegram's codec is the only one that can be polled.
        return Polling(cast(PolledChannel, channel), intake, self.credentials, self.identities, self.http)

    def open_receiver(self, inbox: Inbox, platform: str) -> Receiver:
        """Receives without a public address. NotFound for a platform that cannot be received from in such a way."""
        channel = self.codecs.get("slack")
        if platform != "slack" or channel is None:
            return self.open_polling(inbox, platform)
        intake = DeliveryIntake(inbox, self.outbox)
        # As above: Slack's codec is the only one that delivers over a WebSocket.
        sockets = LazyPlatformSockets(self.settings)
        return SocketMode(cast(SocketChannel, channel), intake, self.credentials, self.http, sockets)
