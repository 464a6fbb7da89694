"""The composition root: builds a running Threadline from settings. The only module that knows every adapter.

Messaging and the agents' clients are imported when they are used, so that the library starts fast.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict

import msgspec

from threadline import settings as settings_
from threadline.administration.administration import Administration
from threadline.administration.agent_secrets import AgentSecrets
from threadline.administration.tenant_agents import TenantAgents
from threadline.agents.function import as_agent
from threadline.agents.mcp.servers import McpServers
from threadline.agents.registry import build_agent
from threadline.agents.setting_secrets import SettingSecrets
from threadline.agents.tools import Tool
from threadline.clock import SystemClock
from threadline.core.errors import ExtraMissing
from threadline.core.guard import PatternGuard
from threadline.core.threads import Scope, UserRole
from threadline.core.turn_commits import ReplyDelivery
from threadline.core.turns import CHANNELS, Surface, Turn
from threadline.core.values import ValueScope
from threadline.core.windows import windows
from threadline.databases import open_store
from threadline.library import UserView
from threadline.messaging.home_threads import HomeThreads
from threadline.observability.metrics import Metrics
from threadline.ports import Admission, Agent, Clock, Guard, Processes, Store, Summariser, Tracer
from threadline.process_agents import open_directory
from threadline.processes import LocalProcesses, local_processes
from threadline.replies import Defer, UserServices
from threadline.settings import Settings
from threadline.signatures import ReceiptSigner
from threadline.threads.contexts import Contexts
from threadline.threads.transfer import Importer
from threadline.threads.usage_reports import UsageReports
from threadline.threads.user_threads import Threads
from threadline.threads.values import ValueEncoder, Values
from threadline.turns.acceptance import Turns
from threadline.turns.agent_directory import Directory
from threadline.turns.approvals import Approvals
from threadline.turns.budgets import open_budgets
from threadline.turns.dispatch import Dispatcher
from threadline.turns.follow_ups import FollowUps
from threadline.turns.gauges import register_gauges
from threadline.turns.leases import Leases, Timing, TurnTask
from threadline.turns.meters import Meters
from threadline.turns.prompts import PromptReader
from threadline.turns.recovery import AbandonedTurns, Recovery
from threadline.turns.remote_runner import RemoteRunner
from threadline.turns.runner import Runner
from threadline.turns.streams import Streams
from threadline.turns.work_queue import WorkQueue
from threadline.vault import Vault

if TYPE_CHECKING:
    from threadline.channel_wiring import Messaging
    from threadline.messaging.bridges import Bridges
    from threadline.messaging.chat_contexts import ChatContexts
    from threadline.messaging.inbox import Inbox
    from threadline.messaging.settlement import DeliveryRetry

# How long `close` waits for running turns: long enough for a short reply, short enough for Ctrl-C.
_GRACE_SECONDS = 5.0
# How long `close` waits for summaries and titles then: a model often needs a second for a title.
_FOLLOW_UP_SECONDS = 2.0


class OpenOptions(TypedDict, total=False):
    """The keyword arguments of `open`."""

    settings: Settings | None
    agents: Mapping[str, Any] | None
    tools: Sequence[Tool]
    clock: Clock | None
    read_only: bool
    admission: Admission | None
    summariser: Summariser | None
    runs_turns: bool


class Threadline:
    """A running Threadline: one store, what checks and masks its input, and the turns that run in this process."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        *,
        agents: Mapping[str, Agent] | None = None,
        tools: Sequence[Tool] = (),
        timing: Timing | None = None,
        retry: DeliveryRetry | None = None,
        tracer: Tracer | None = None,
        admission: Admission | None = None,
        processes: Processes | None = None,
        summariser: Summariser | None = None,
        runs_turns: bool = True,
    ) -> None:
        """Without `runs_turns`, turns are accepted for other processes to run."""
        self.runs_turns = runs_turns
        self.store, self.settings, self.clock = store, settings, clock
        self.guard = _guard(settings)
        self.sealer = settings.masking.build_sealer(settings.limits)
        self.metrics = Metrics()
        self.processes = processes or LocalProcesses(None)
        # The runner writes to the streams, so it is made after them.
        self.streams = Streams(store, lambda *turn: self.runner.continue_turn(*turn))  # noqa: PLW0108
        self.vault = open_vault(settings)
        self.setting_secrets = SettingSecrets(self.vault)
        self.value_encoder = ValueEncoder(self.vault, clock, settings.limits, encrypts=self.vault.has_keys)
        self._retry, self.tracer = retry, tracer
        self.mcp_servers = McpServers(settings.mcp)
        deliveries = dict.fromkeys(CHANNELS, self._render_reply)
        self.directory = open_directory(
            store, settings, self.setting_secrets, tools, self.mcp_servers, agents or {}, tracer
        )
        meters = _meters(store, settings, clock, self.directory, admission)
        self.turns = Turns(store, self.sealer, self.guard, deliveries, meters=meters, metrics=self.metrics)
        self.approvals = Approvals(store, self.turns, self.sealer, self.guard)
        shown = windows(settings.windows.reading, settings.windows.channels)
        self.follow_ups = FollowUps(store, self.sealer, self.directory, meters, settings, summariser)
        self.compaction = self.follow_ups.compaction
        self.homes = HomeThreads.of(settings.channels, settings.agent)
        self.prompts = PromptReader(store, shown, settings.agent, self.metrics, self.follow_ups.make_room)
        leases = Leases(store, self.processes, timing or Timing(lease_seconds=settings.service.lease_seconds))
        self._build_runner(leases, meters)
        masker, share = self.sealer.masker, self.streams.loop_share
        self.dispatcher = Dispatcher(store, self.prompts, self.directory, meters, self.guard, masker, share)
        register_gauges(self.metrics, store, self.runner, self.streams)

    def _build_runner(self, leases: Leases, meters: Meters) -> None:
        """What runs turns, takes them over and claims them."""
        handover = self.settings.service.handover_seconds
        abandoned = AbandonedTurns(
            self.store,
            self.turns,
            leases,
            Defer(),
            metrics=self.metrics,
            handover_seconds=handover,
            runs_turns=self.runs_turns,
        )
        self.runner = (Runner if self.runs_turns else RemoteRunner)(
            self.store,
            self.turns,
            self.streams,
            self.prompts,
            self.directory,
            self.settings.agent,
            leases,
            abandoned,
            meters,
            self._follow_turn,
        )
        self.recovery = Recovery(
            self.store, abandoned, leases, self.runner, self.clock, replay_seconds=self.settings.replay_seconds
        )
        self.work_queue = WorkQueue(
            self.store,
            self.runner,
            self.recovery,
            leases,
            self.processes,
            Defer(),
            handover_seconds=handover,
            on_begin=self._follow_claimed_turn,
            # Another process has enqueued something, or may have.
            on_work=lambda tenant_id: self.messaging.wake(tenant_id),  # noqa: PLW0108 - imported when it is needed
        )

    @cached_property
    def messaging(self) -> Messaging:
        """Messaging platforms. Imported when it is first used: most programs and the terminal use none."""
        from threadline.channel_wiring import Messaging  # noqa: PLC0415 - slow to import

        return Messaging(
            self.store,
            self.sealer,
            self.clock,
            self.metrics,
            self.settings.channels,
            self.vault,
            self.processes,
            retry=self._retry,
            delivers=self.runs_turns,
        )

    @cached_property
    def inbox(self) -> Inbox:
        return self.messaging.open_inbox(
            self.turns, self.approvals, self.runner, self.directory, Defer(), self.streams, self.settings.agent
        )

    @cached_property
    def bridges(self) -> Bridges:
        return self.messaging.open_bridges(self.inbox)

    def _follow_turn(self, scope: Scope, turn: Turn) -> None:
        """After the end of a turn that ran here."""
        self.follow_ups.follow_turn(scope, turn)
        if turn.surface in CHANNELS:
            self.messaging.wake(scope.tenant_id)

    def _follow_claimed_turn(self, scope: Scope, turn: Turn, running: TurnTask) -> None:
        if turn.surface in CHANNELS:
            stream = partial(self.streams.events, scope, turn.id)
            self.messaging.live_views.follow_turn(self.store, scope, turn, running, stream)

    def _render_reply(self, turn: Turn, text: str, parts_json: bytes | None) -> ReplyDelivery | None:
        return self.messaging.outbox.render_reply(turn, text, parts_json)

    def threads(self, scope: Scope) -> Threads:
        return Threads(self.store, self.sealer, self.clock, scope)

    def administration(self, scope: Scope, *, actor_id: str | None = None) -> Administration:
        signer = ReceiptSigner(self.settings.receipts.key)
        policies = self.settings.retention
        return Administration(
            self.store, self.sealer, self.clock, scope, actor_id=actor_id, signer=signer, retention=policies
        )

    def tenant_agents(self, scope: Scope) -> TenantAgents:
        return TenantAgents(self.store, self.sealer, build_agent, self.setting_secrets, scope)

    @property
    def agent_secrets(self) -> AgentSecrets:
        return AgentSecrets(self.store, self.vault)

    def values(self, scope: Scope, value_scope: ValueScope, scope_id: str) -> Values:
        return Values(self.store, self.value_encoder, scope, value_scope, scope_id)

    def usage_reports(self, scope: Scope) -> UsageReports:
        return UsageReports(self.store, self.clock, scope)

    def contexts(self, scope: Scope) -> Contexts:
        return Contexts(self.store, self.sealer, self.guard, scope)

    def chat_contexts(self, scope: Scope, surface: Surface) -> ChatContexts:
        """The calls of a chat surface for one user."""
        from threadline.messaging.chat_contexts import ChatContexts  # noqa: PLC0415 - only for chat surfaces

        return ChatContexts(self._view(scope, surface))

    def as_user(
        self,
        user: str | None = None,
        *,
        tenant: str | None = None,
        role: UserRole = "member",
        surface: Surface = "api",
    ) -> UserView:
        """Everything one user may reach. `surface` is where their turns come from. InvalidName, InvalidInput."""
        scope = Scope(
            self.settings.tenant if tenant is None else tenant, self.settings.user if user is None else user, role
        )
        return self._view(scope, surface)

    def _view(self, scope: Scope, surface: Surface) -> UserView:
        return UserView(
            UserServices(
                self.threads(scope),
                self.contexts(scope),
                Importer(self.store, self.sealer, self.clock, scope),
                self.compaction,
                self.turns,
                self.approvals,
                self.runner,
                self.streams,
                self.usage_reports(scope),
                self.store,
                self.value_encoder,
                self.homes,
                surface,
            )
        )

    async def close(self) -> None:
        """Waits a few seconds for running turns, then interrupts them; what they showed is stored."""
        await self.runner.close(_GRACE_SECONDS)
        await self.follow_ups.close(_FOLLOW_UP_SECONDS)
        await self.directory.close()
        await self.mcp_servers.close()
        await self.store.close()
        # Last: until then this process holds leases.
        self.processes.close()
        if self.tracer is not None:
            await self.tracer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Opening:
    """The result of `open`: await it, or use it with `async with`."""

    def __init__(self, opening: Callable[[], Awaitable[Threadline]]) -> None:
        self._opening = opening
        self._opened: Threadline | None = None

    def __await__(self) -> Generator[Any, None, Threadline]:
        return self._opening().__await__()

    async def __aenter__(self) -> Threadline:
        self._opened = await self._opening()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.close()


def open(
    database: str | Path | None = None,
    *,
    settings: Settings | None = None,
    agents: Mapping[str, Any] | None = None,
    tools: Sequence[Tool] = (),
    clock: Clock | None = None,
    read_only: bool = False,
    admission: Admission | None = None,
    summariser: Summariser | None = None,
    runs_turns: bool = True,
) -> Opening:
    """Opens a database: a path or `:memory:` for SQLite, `postgresql://…` for PostgreSQL.

    Without one, the settings say which (`threadline.toml`, `THREADLINE_DATABASE`), and without those it is a file
    in the user's own data folder. `agents` gives agents names: an object with `run`, or any function that takes a
    prompt and returns or yields what to say. `tools` are offered to the agents of the settings and of the tenants,
    beside their own, if they do not run tools themselves. `read_only` reads a SQLite file that cannot be written: its
    folder, too, may be read-only. `admission` decides which turns may call a model, in the place of the settings'
    budgets. `summariser` writes summaries of older messages, in the place of the agent's model. Without
    `runs_turns`, turns that are accepted here are run by other processes, such as `threadline worker`."""
    if settings is None:
        settings = settings_.load(overrides={"database": None if database is None else str(database)})
    elif database is not None:
        settings = msgspec.structs.replace(settings, database=str(database), database_replica="")
    chosen, ticking = settings, clock or SystemClock()
    named = {name: as_agent(agent) for name, agent in (agents or {}).items()}

    async def opening() -> Threadline:
        tracer = _tracer(chosen)
        store = await open_store(chosen, clock, read_only=read_only)
        processes = local_processes(chosen.database, chosen.process_folder)
        return Threadline(
            store,
            chosen,
            ticking,
            agents=named,
            tools=tools,
            tracer=tracer,
            admission=admission,
            processes=processes,
            summariser=summariser,
            runs_turns=runs_turns,
        )

    return Opening(opening)


def _tracer(settings: Settings) -> Tracer | None:
    if not settings.tracing.enabled:
        return None
    try:
        from threadline.observability.otel import OtelTracer  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as exc:
        raise ExtraMissing("otel", "tracing") from exc
    return OtelTracer.open()


def open_vault(settings: Settings) -> Vault:
    vault, channels = settings.vault, settings.channels
    return Vault({**channels.keys, **vault.keys}, vault.key or channels.key)


def _meters(
    store: Store, settings: Settings, clock: Clock, directory: Directory, admission: Admission | None
) -> Meters:
    admission = admission or open_budgets(store, clock, settings)
    return Meters(store, directory, settings.agent, admission, settings.prices)


def _guard(settings: Settings) -> Guard | None:
    return PatternGuard(settings.guard.patterns, settings.guard.message) if settings.guard.patterns else None
