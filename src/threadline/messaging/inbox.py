"""The inbox: what a platform delivered becomes a turn, a command or a refusal, once.

The guards stand in this order: signature (before anything comes here), link, verified link, replay window, idempotency.
The claim on a message commits together with all that it brings about: the user's message and its turn, or what a
command did, and whatever is to be said at once. So a crash loses nothing that was acknowledged, and a message that is
delivered again, or a hundred times at once, does nothing more. The turn itself runs afterwards, in the runner's task.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol, TypeAlias

from threadline.core.channels import InboxRow, NewArrival
from threadline.core.commands import Command, find_spec, parse
from threadline.core.errors import (
    Conflict,
    ExtraMissing,
    GuardRefused,
    InvalidInput,
    InvalidText,
    NotFound,
    RoleRefused,
    SettingsInvalid,
)
from threadline.core.messages import user
from threadline.core.open_questions import question_in
from threadline.core.platform_messages import Arrival
from threadline.core.reply_text import NO_AGENT_TEXT, NOT_ALLOWED_TEXT, inbox_key, turn_key
from threadline.core.sanitize import sanitize_text
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Surface, Turn, TurnStatus
from threadline.messaging.bindings import bound_place, current_thread, home_key
from threadline.messaging.command_executor import Hint, interpret
from threadline.messaging.outbox import Outbox
from threadline.messaging.place_threads import ChatCommands, CommandContext
from threadline.messaging.unlinked_senders import UnlinkedSenders, claim
from threadline.observability.metrics import Metrics
from threadline.ports import Agent, Approver, Clock, Store, Transaction
from threadline.threads.user_threads import first_title
from threadline.turns.acceptance import SealedRequest, TurnRequest, Turns
from threadline.turns.runner import Runner

log = logging.getLogger("threadline.inbox")

Decision: TypeAlias = Literal[
    "accepted",
    "command",
    "denied_rbac",
    "denied_no_agent",
    "denied_sentinel",
    "denied_unverified",
    "duplicate",
    "replay_blocked",
    "refused",
    "blank",
    "linked",
    "link_refused",
    "link_limited",
]
"""What became of a message when it arrived. How an accepted one ended is on its turn."""


_SAYS_NOTHING_YET: frozenset[Decision] = frozenset(("accepted", "duplicate", "replay_blocked", "blank"))


class Receipt(NamedTuple):
    decision: Decision
    turn: Turn | None = None

    @property
    def turn_id(self) -> str | None:
        return None if self.turn is None else self.turn.id


class Denial(NamedTuple):
    status: TurnStatus
    said: str


class AgentFinder(Protocol):
    async def find(self, scope: Scope, agent_id: str) -> Agent:
        """NotFound if there is none under this id."""
        ...


class Inbox:
    """`agents` names who answers on which platform."""

    def __init__(
        self,
        store: Store,
        turns: Turns,
        runner: Runner,
        directory: AgentFinder,
        outbox: Outbox,
        commands: ChatCommands,
        strangers: UnlinkedSenders,
        approver: Approver,
        clock: Clock,
        metrics: Metrics,
        *,
        agents: Mapping[Surface, str],
        replay_window: dt.timedelta,
        wake: Callable[[str], None],
    ) -> None:
        self._store = store
        self._turns = turns
        self._runner = runner
        self._directory = directory
        self._outbox = outbox
        self._commands = commands
        self._strangers = strangers
        self._approver = approver
        self._clock = clock
        self._received = metrics.counter(
            "threadline_inbox_messages_total",
            "Messages from platforms, by what became of them.",
            ("platform", "decision"),
        )
        self._ages = metrics.histogram(
            "threadline_inbox_age_seconds",
            "How old messages are when they arrive, by the platform's clock.",
            ("platform",),
        )
        self._agents = agents
        self._replay_window = replay_window
        self._nudge = wake

    async def receive(self, tenant_id: str, arrival: Arrival, correlation_id: str) -> Receipt:
        """Stores what a verified message brings about and says what that was; the answer follows. Only StoreFailed
        is raised: then nothing is known to be stored, and the platform will deliver again."""
        receipt = await self._receive(tenant_id, arrival, correlation_id)
        self._received.add(arrival.platform, receipt.decision)
        self._ages.observe(max(0.0, (self._clock.now() - arrival.sent_at).total_seconds()), arrival.platform)
        log.info(
            "message received",
            extra={"decision": receipt.decision, "platform": arrival.platform, "correlation_id": correlation_id},
        )
        if receipt.decision not in _SAYS_NOTHING_YET:
            self._nudge(tenant_id)
        return receipt

    async def dead_letter(self, tenant_id: str, platform: Surface, key: str, detail: str, correlation_id: str) -> None:
        """Keeps a trace of what a platform signed and nobody can read: where it broke, never what it held."""

        async def work(tx: Transaction) -> None:
            if await tx.claim_inbox(platform, key, fingerprint=detail[:200], correlation_id=correlation_id) is not None:
                await tx.settle_inbox(platform, key, status="dead", decision="broken")

        await self._store.transact(system_scope(tenant_id), work)
        self._received.add(platform, "broken")

    async def _receive(self, tenant_id: str, arrival: Arrival, correlation_id: str) -> Receipt:
        command = parse(arrival.text)
        sender = await self._store.scoped(system_scope(tenant_id)).sender(arrival.platform, arrival.sender)
        is_linked = sender is not None and sender.state == "verified"
        if not is_linked and isinstance(command, Command) and command.name == "link" and command.argument:
            if self._is_replay(arrival):
                return Receipt("replay_blocked")
            return Receipt(await self._strangers.link(tenant_id, arrival, command.argument, correlation_id))
        if sender is None or not is_linked:
            await self._strangers.hint(tenant_id, arrival, correlation_id)
            return Receipt("denied_unverified")
        if self._is_replay(arrival):
            return Receipt("replay_blocked")
        scope = Scope(tenant_id, sender.owner_id, sender.role)
        return await self._take(scope, arrival, correlation_id, is_command=command is not None)

    def _is_replay(self, arrival: Arrival) -> bool:
        return abs(self._clock.now() - arrival.sent_at) > self._replay_window

    async def _take(self, scope: Scope, arrival: Arrival, correlation_id: str, *, is_command: bool) -> Receipt:
        agent_id = self._agents[arrival.platform]
        try:
            sealed = self._turns.seal(_request(arrival, agent_id))
        except InvalidText:
            return Receipt("blank")
        except InvalidInput as exc:
            return await self._refuse(scope, arrival, correlation_id, str(exc))
        denial = await self._denial(scope, sealed.request, agent_id)
        if denial is None and not is_command:
            new = _new_arrival(scope, arrival, correlation_id, sealed, agent_id)
            turn = await self._store.scoped(scope).take_arrival(
                new, sealed.message, title=first_title([sealed.message])
            )
            if turn is not None:
                self._start(scope, turn)
                return Receipt("accepted", turn)
        return await self._take_carefully(scope, arrival, correlation_id, sealed, agent_id, denial)

    async def _take_carefully(
        self,
        scope: Scope,
        arrival: Arrival,
        correlation_id: str,
        sealed: SealedRequest,
        agent_id: str,
        denial: Denial | None,
    ) -> Receipt:
        """Step by step: a command, an answer to a question, a refusal, a repeat, or the first words where others read
        along."""

        async def work(tx: Transaction) -> Receipt:
            arrived = await claim(tx, arrival, correlation_id, owner_id=scope.user_id)
            if arrived is None:
                return Receipt("duplicate")
            receipt = await self._command(tx, arrived, arrival, agent_id, denial)
            receipt = receipt or await self._turn(tx, arrived, arrival, sealed, agent_id, denial)
            # What was accepted is done when it is answered.
            status = "accepted" if receipt.decision == "accepted" else "done"
            await tx.settle_inbox(
                arrived.platform, arrived.key, status=status, decision=receipt.decision, turn_id=receipt.turn_id
            )
            return receipt

        try:
            receipt = await self._store.transact(scope, work)
        except (InvalidInput, NotFound, Conflict) as exc:
            return await self._refuse(scope, arrival, correlation_id, str(exc))
        if receipt.decision == "accepted" and receipt.turn is not None:
            self._start(scope, receipt.turn)
        return receipt

    def _start(self, scope: Scope, turn: Turn) -> None:
        running = self._runner.start(scope, turn, self._approver)
        running.add_done_callback(lambda _: self._nudge(scope.tenant_id))

    async def _denial(self, scope: Scope, request: TurnRequest, agent_id: str) -> Denial | None:
        try:
            await self._turns.check(scope, request)
            await self._directory.find(scope, agent_id)
        except RoleRefused:
            return Denial("denied_rbac", NOT_ALLOWED_TEXT)
        except GuardRefused as exc:
            return Denial("denied_sentinel", str(exc))
        except NotFound:
            return Denial("denied_no_agent", NO_AGENT_TEXT)
        except (SettingsInvalid, ExtraMissing):
            # The agent is there and cannot be made: the turn will fail, and say so.
            return None
        return None

    async def _command(
        self, tx: Transaction, arrived: InboxRow, arrival: Arrival, agent_id: str, denial: Denial | None
    ) -> Receipt | None:
        """What a command, or an answer to a question, did; None if the text is for the agent."""
        owner_id, place, now = tx.scope.user_id, bound_place(arrival.place, tx.scope.user_id), self._clock.now()
        binding = await tx.binding(arrival.platform, place)
        question = None if binding is None else question_in(binding.metadata)
        context = CommandContext(arrival.platform, place, arrival.sender, agent_id, now, arrival.shared)
        command = interpret(arrival.text, question, user_id=owner_id, now=now, place=context.kind)
        if command is None:
            return None
        if denial is not None and denial.status == "denied_rbac" and not _is_for_viewers(command, context):
            await self._outbox.answer(tx, arrived, denial.said, owner_id=owner_id)
            return Receipt("denied_rbac")
        reply = command.text if isinstance(command, Hint) else await self._commands.execute(tx, context, command)
        if reply is not None:
            await self._outbox.answer(tx, arrived, reply, owner_id=owner_id)
        return Receipt("command")

    async def _turn(
        self,
        tx: Transaction,
        arrived: InboxRow,
        arrival: Arrival,
        sealed: SealedRequest,
        agent_id: str,
        denial: Denial | None,
    ) -> Receipt:
        place = bound_place(arrival.place, tx.scope.user_id)
        current = await current_thread(tx, arrival.platform, place, agent_id, is_shared=arrival.shared)
        if denial is None:
            accepted = await self._turns.accept_in(tx, sealed, current.thread)
            return Receipt("accepted", accepted.turn)
        denied = await self._turns.deny_in(tx, sealed, current.thread, denial.status, denial.said)
        return Receipt(_denied(denial), denied.turn)

    async def _refuse(self, scope: Scope, arrival: Arrival, correlation_id: str, reason: str) -> Receipt:
        """Says why nothing was done. Nothing else is stored, and a repeat is not answered again."""

        async def work(tx: Transaction) -> Receipt:
            arrived = await claim(tx, arrival, correlation_id, owner_id=scope.user_id)
            if arrived is None:
                return Receipt("duplicate")
            await self._outbox.answer(tx, arrived, f"That did not work: {reason}", owner_id=scope.user_id)
            await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision="refused")
            return Receipt("refused")

        return await self._store.transact(scope, work)


def _is_for_viewers(command: Command | Hint, context: CommandContext) -> bool:
    spec = find_spec(command.name, context.kind) if isinstance(command, Command) else None
    return spec is not None and spec.role == "viewer"


def _request(arrival: Arrival, agent_id: str) -> TurnRequest:
    return TurnRequest(
        message=user(sanitize_text(arrival.text)),
        surface=arrival.platform,
        agent_id=agent_id,
        key=turn_key(arrival.platform, inbox_key(arrival.key)),
    )


def _new_arrival(
    scope: Scope, arrival: Arrival, correlation_id: str, sealed: SealedRequest, agent_id: str
) -> NewArrival:
    assert sealed.request.key is not None
    return NewArrival(
        platform=arrival.platform,
        key=inbox_key(arrival.key),
        fingerprint=arrival.sender,
        correlation_id=correlation_id,
        reply_to=arrival.recipient,
        place=bound_place(arrival.place, scope.user_id),
        turn_id=sealed.turn_id,
        agent_id=agent_id,
        turn_key=sealed.request.key,
        request_hash=sealed.digest,
        home_key=None if arrival.shared else home_key(agent_id),
    )


def _denied(denial: Denial) -> Decision:
    match denial.status:
        case "denied_rbac" | "denied_no_agent" | "denied_sentinel":
            return denial.status
    raise AssertionError(f"{denial.status} is no denial")
