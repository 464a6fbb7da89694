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
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

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
from threadline.core.threads import NewThread, Scope, system_scope
from threadline.core.turn_commits import Accepted, AcceptRefusal, ArrivalClaim, TurnAcceptance
from threadline.core.turns import Surface, Turn, TurnStatus
from threadline.messaging.bindings import bound_place, home_key
from threadline.messaging.command_executor import Hint, interpret
from threadline.messaging.outbox import Outbox
from threadline.messaging.place_threads import ChatCommands, CommandContext
from threadline.messaging.unlinked_senders import UnlinkedSenders, claim
from threadline.observability.metrics import Metrics
from threadline.ports import Agent, Approver, Clock, Store, Transaction
from threadline.turns.acceptance import TurnRequest, Turns
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
        request = _request(arrival, agent_id)
        try:
            new = self._turns.seal(request, arrival=_claim_of(scope, arrival, correlation_id))
        except InvalidText:
            return Receipt("blank")
        except InvalidInput as exc:
            return await self._refuse(scope, arrival, correlation_id, str(exc))
        denial = await self._denial(scope, request, agent_id)
        try:
            outcome = None
            if denial is None and not is_command:
                outcome = await self._store.scoped(scope).accept_turn(new)
            if outcome is None or (isinstance(outcome, AcceptRefusal) and outcome.reason == "question_open"):
                work = partial(self._command_or_turn, arrival, correlation_id, agent_id, new, denial)
                receipt = await self._store.transact(scope, work)
            else:
                receipt = self._receipt(outcome, new)
        except (InvalidInput, NotFound, Conflict) as exc:
            return await self._refuse(scope, arrival, correlation_id, str(exc))
        if receipt.decision == "accepted" and receipt.turn is not None:
            self._start(scope, receipt.turn)
        return receipt

    async def _command_or_turn(
        self,
        arrival: Arrival,
        correlation_id: str,
        agent_id: str,
        new: TurnAcceptance,
        denial: Denial | None,
        tx: Transaction,
    ) -> Receipt:
        """In one transaction: a command, an answer to the place's open question, a denied request, or a text that does
        not answer the open question and so is for the agent."""
        receipt = await self._command(tx, arrival, correlation_id, agent_id, denial)
        if receipt is not None:
            return receipt
        assert new.arrival is not None
        new = msgspec.structs.replace(new, arrival=new.arrival._replace(is_question_checked=True))
        if denial is None:
            return self._receipt(await tx.accept_turn(new), new)
        return await self._deny(tx, msgspec.structs.replace(new, status=denial.status), denial)

    def _receipt(self, outcome: Accepted | AcceptRefusal, new: TurnAcceptance) -> Receipt:
        if isinstance(outcome, AcceptRefusal) and outcome.reason == "duplicate_arrival":
            return Receipt("duplicate")
        return Receipt("accepted", self._turns.require_accepted(outcome, new).turn)

    async def _deny(self, tx: Transaction, new: TurnAcceptance, denial: Denial) -> Receipt:
        stored = await self._turns.deny_in(tx, new, denial.said)
        if stored is None or new.arrival is None:
            return Receipt("duplicate")
        await self._outbox.enqueue_reply(tx, stored.turn, denial.said)
        decision = _denied(denial)
        await tx.settle_inbox(
            new.arrival.platform, new.arrival.key, status="done", decision=decision, turn_id=stored.turn.id
        )
        return Receipt(decision, stored.turn)

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
        self, tx: Transaction, arrival: Arrival, correlation_id: str, agent_id: str, denial: Denial | None
    ) -> Receipt | None:
        """What a command, or an answer to a question, did; None if the text is for the agent."""
        owner_id, place, now = tx.scope.user_id, bound_place(arrival.place, tx.scope.user_id), self._clock.now()
        binding = await tx.binding(arrival.platform, place)
        question = None if binding is None else question_in(binding.metadata)
        context = CommandContext(arrival.platform, place, arrival.sender, agent_id, now, arrival.shared)
        command = interpret(arrival.text, question, user_id=owner_id, now=now, place=context.kind)
        if command is None:
            return None
        arrived = await claim(tx, arrival, correlation_id, owner_id=owner_id)
        if arrived is None:
            return Receipt("duplicate")
        reply: str | None
        decision: Decision = "command"
        if denial is not None and denial.status == "denied_rbac" and not _is_for_viewers(command, context):
            reply, decision = denial.said, "denied_rbac"
        else:
            reply = command.text if isinstance(command, Hint) else await self._commands.execute(tx, context, command)
        if reply is not None:
            await self._outbox.answer(tx, arrived, reply, owner_id=owner_id)
        await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision=decision)
        return Receipt(decision)

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
    # A private place without a thread continues the user's home thread. Where others read along, an answer must not
    # draw on what was said in private: such a place gets a thread of its own.
    new = NewThread(agent_id=agent_id) if arrival.shared else NewThread(state_key=home_key(agent_id), agent_id=agent_id)
    return TurnRequest(
        message=user(sanitize_text(arrival.text)),
        surface=arrival.platform,
        agent_id=agent_id,
        key=turn_key(arrival.platform, inbox_key(arrival.key)),
        new_thread=new,
    )


def _claim_of(scope: Scope, arrival: Arrival, correlation_id: str) -> ArrivalClaim:
    return ArrivalClaim(
        platform=arrival.platform,
        key=inbox_key(arrival.key),
        fingerprint=arrival.sender,
        correlation_id=correlation_id,
        reply_to=arrival.recipient,
        place=bound_place(arrival.place, scope.user_id),
    )


def _denied(denial: Denial) -> Decision:
    match denial.status:
        case "denied_rbac" | "denied_no_agent" | "denied_sentinel":
            return denial.status
    raise AssertionError(f"{denial.status} is no denial")
