"""The inbox: stores each event of a platform together with what it causes, once.

Checks run in this order: signature (before the inbox), link, verified link, replay window, idempotency. The claim on an
event commits in one transaction with its effects: the user's message and its turn, or the changes of a command, and the
reply. So a crash loses nothing that was acknowledged, and an event that is delivered again, also many times at the same
time, does nothing more. The turn itself runs afterwards, in a task of the runner.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from threadline.core.channels import Sender
from threadline.core.commands import Command, parse
from threadline.core.errors import (
    Conflict,
    InvalidInput,
    InvalidText,
    NotFound,
)
from threadline.core.platform_messages import UNTIMED, Arrival, ArrivalKind, RoomAuthor
from threadline.core.reply_text import UNREADABLE_TEXT
from threadline.core.threads import Scope, system_scope
from threadline.core.turn_commits import Accepted, AcceptRefusal, TurnAcceptance
from threadline.core.turns import Policy, Surface
from threadline.messaging.approval_answers import AnswerRefused, ApprovalAnswers
from threadline.messaging.arrival_turns import claim_of, home_of, turn_request
from threadline.messaging.chat_commands import ChatCommands, CommandReply, is_for_viewers
from threadline.messaging.command_executor import Hint
from threadline.messaging.denials import Denial, find_denial
from threadline.messaging.live_views import LiveViews
from threadline.messaging.outbox import Outbox
from threadline.messaging.place_threads import CommandContext
from threadline.messaging.receipts import WITHOUT_REPLY, Decision, Receipt
from threadline.messaging.room_events import RoomEvents, context_of, is_plain, last_turn, request_id
from threadline.messaging.rooms import ROOM_PLATFORMS
from threadline.messaging.shared_rooms import SharedRooms, is_for_thread
from threadline.messaging.unlinked_senders import UnlinkedSenders, claim
from threadline.observability.metrics import Metrics
from threadline.ports import Approver, Clock, Store, Transaction
from threadline.turns.acceptance import Turns
from threadline.turns.runner import AgentFinder, Runner
from threadline.turns.streams import Streams

log = logging.getLogger("threadline.inbox")

_SHARE = Command("share")
# Departures, invitations and what cannot be read are their sender's own.
_IN_SHARED_THREAD: frozenset[ArrivalKind] = frozenset(("message", "edit", "retraction", "answer"))
# Platforms that refuse messages to people who have not written for a day.
_WINDOWED: frozenset[Surface] = frozenset(("whatsapp",))


class Inbox:
    """`agents` names the agent of each platform, `policies` what happens to a message while a turn runs. Platforms
    without a replay window accept messages of any age."""

    def __init__(
        self,
        store: Store,
        turns: Turns,
        runner: Runner,
        directory: AgentFinder,
        outbox: Outbox,
        commands: ChatCommands,
        unlinked: UnlinkedSenders,
        answers: ApprovalAnswers,
        approver: Approver,
        clock: Clock,
        metrics: Metrics,
        *,
        agents: Mapping[Surface, str],
        policies: Mapping[Surface, Policy],
        replay_windows: Mapping[Surface, dt.timedelta],
        live_views: LiveViews,
        streams: Streams,
        wake: Callable[[str], None],
    ) -> None:
        self._store = store
        self._turns = turns
        self._runner = runner
        self._directory = directory
        self._outbox = outbox
        self._commands = commands
        self._unlinked = unlinked
        self._answers = answers
        self._approver = approver
        self._clock = clock
        self._received = metrics.counter(
            "threadline_inbox_messages_total",
            "Events of platforms, by decision.",
            ("platform", "decision"),
        )
        self._ages = metrics.histogram(
            "threadline_inbox_age_seconds",
            "Age of messages when they arrive, by the platform's clock.",
            ("platform",),
        )
        self._agents = agents
        self._policies = policies
        self._replay_windows = replay_windows
        self._live_views = live_views
        self._streams = streams
        self._wake = wake
        self._room_events = RoomEvents(store, outbox, commands, runner)
        self._shared_rooms = SharedRooms(store)

    async def receive(
        self, tenant_id: str, arrival: Arrival, correlation_id: str, *, auto_link: bool = False
    ) -> Receipt:
        """Stores an authentic arrival together with what it causes, once; the reply follows through the outbox. With
        `auto_link`, an account without a link becomes a user under its own id. Raises only StoreFailed: then nothing
        is known to be stored, and the arrival must be delivered again."""
        receipt = await self._receive(tenant_id, arrival, correlation_id, auto_link=auto_link)
        self._received.add(arrival.platform, receipt.decision)
        if arrival.sent_at != UNTIMED:
            self._ages.observe(max(0.0, (self._clock.now() - arrival.sent_at).total_seconds()), arrival.platform)
        log.info(
            "message received",
            extra={"decision": receipt.decision, "platform": arrival.platform, "correlation_id": correlation_id},
        )
        if receipt.decision not in WITHOUT_REPLY:
            self._wake(tenant_id)
        return receipt

    async def dead_letter(self, tenant_id: str, platform: Surface, key: str, detail: str, correlation_id: str) -> None:
        """Stores that a signed body could not be read: where it broke, never its content."""

        async def work(tx: Transaction) -> None:
            if await tx.claim_inbox(platform, key, fingerprint=detail[:200], correlation_id=correlation_id) is not None:
                await tx.settle_inbox(platform, key, status="dead", decision="broken")

        await self._store.transact(system_scope(tenant_id), work)
        self._received.add(platform, "broken")

    async def _receive(self, tenant_id: str, arrival: Arrival, correlation_id: str, *, auto_link: bool) -> Receipt:
        command = parse(arrival.text) if arrival.kind == "message" else None
        sender = await self._sender(tenant_id, arrival, auto_link=auto_link)
        is_linked = sender is not None and sender.state == "verified"
        if not is_linked and isinstance(command, Command) and command.name == "link" and command.argument:
            if self._is_replay(arrival):
                return Receipt("replay_blocked")
            return await self._link(tenant_id, arrival, command.argument, correlation_id)
        if (sender is None or not is_linked) and not arrival.is_addressed:
            # Not meant for the bot, and from an account without a link: nothing of it is stored.
            return Receipt("ignored")
        if sender is None or not is_linked:
            return Receipt(await self._unlinked.deny(tenant_id, arrival, correlation_id))
        if self._is_replay(arrival):
            return Receipt("replay_blocked")
        scope = Scope(tenant_id, sender.owner_id, sender.role)
        await self._send_held_replies(scope, arrival)
        receipt = await self._handle(scope, arrival, correlation_id)
        # In a shared room a turn is not its sender's.
        return receipt._replace(user_id=scope.user_id if receipt.turn is None else receipt.turn.owner_id)

    async def _handle(self, sender: Scope, arrival: Arrival, correlation_id: str) -> Receipt:
        scope, arrival = await self._enter_room(sender, arrival)
        match arrival.kind:
            case "invitation":
                agent_id = self._agents[arrival.platform]
                return await self._room_events.welcome(sender, arrival, correlation_id, agent_id)
            case "departure":
                await self._stop_turns(sender, arrival)
                return await self._room_events.depart(sender, arrival, correlation_id)
            case "retraction":
                return await self._room_events.retract(scope, arrival, correlation_id)
            case "answer":
                receipt = await self._answers.receive(scope, arrival, correlation_id)
                self._start(scope, receipt, arrival)
                return receipt
            case "unsupported":
                return await self._explain(sender, arrival, correlation_id)
        return await self._take(scope, sender, arrival, correlation_id)

    async def _enter_room(self, sender: Scope, arrival: Arrival) -> tuple[Scope, Arrival]:
        """In whose scope the arrival is handled: in a shared room the owner's, whose thread it is."""
        if arrival.platform not in ROOM_PLATFORMS or arrival.kind not in _IN_SHARED_THREAD:
            return sender, arrival
        room = await self._shared_rooms.find(sender.tenant_id, arrival)
        command = parse(arrival.text, place="shared_room") if arrival.kind == "message" else None
        if room is not None and is_for_thread(sender, arrival, command):
            author = RoomAuthor(sender.user_id, room.account)
            return room.owner, msgspec.structs.replace(arrival, author=author)
        if room is None and command == _SHARE and arrival.is_by_moderator:
            await self._shared_rooms.free_places(sender, arrival)
        return sender, arrival

    async def _stop_turns(self, sender: Scope, arrival: Arrival) -> None:
        """Stops the replies to a user who has left a shared room."""
        room = await self._shared_rooms.find(sender.tenant_id, arrival)
        if room is not None:
            for turn in await self._shared_rooms.turns_of(room, sender.user_id):
                await self._runner.stop(room.owner, turn.id)

    async def _sender(self, tenant_id: str, arrival: Arrival, *, auto_link: bool) -> Sender | None:
        session = self._store.scoped(system_scope(tenant_id))
        sender = await session.sender(arrival.platform, arrival.sender)
        # Someone who leaves a room need not become a user for it.
        if sender is None and auto_link and arrival.kind != "departure":
            await session.put_link(arrival.platform, arrival.sender, arrival.sender, "verified")
            sender = await session.sender(arrival.platform, arrival.sender)
        return sender

    async def _link(self, tenant_id: str, arrival: Arrival, code: str, correlation_id: str) -> Receipt:
        result, owner_id = await self._unlinked.link(tenant_id, arrival, code, correlation_id)
        if owner_id is not None:
            # A transaction has one scope: the link is the system's, the space is the user's. A process that dies in
            # between opens no space; the next invitation does.
            agent_id = self._agents[arrival.platform]
            await self._room_events.open_space(Scope(tenant_id, owner_id), arrival, agent_id)
        return Receipt(result, user_id=owner_id)

    def _is_replay(self, arrival: Arrival) -> bool:
        if arrival.kind == "answer" or arrival.sent_at == UNTIMED:
            # An answer is bounded by its question, which can be answered once and expires.
            return False
        window = self._replay_windows.get(arrival.platform)
        return window is not None and abs(self._clock.now() - arrival.sent_at) > window

    async def _send_held_replies(self, scope: Scope, arrival: Arrival) -> None:
        """A message opens the platform's window for its sender again: replies that it had refused are sent, before the
        reply to this message. Only those to this user: the account may have been another's."""
        if arrival.platform not in _WINDOWED:
            return
        held = await self._store.scoped(scope).requeue_all(
            ["window_closed"], platform=arrival.platform, recipient=arrival.recipient
        )
        if held:
            self._wake(scope.tenant_id)

    async def _take(self, scope: Scope, sender: Scope, arrival: Arrival, correlation_id: str) -> Receipt:
        is_command = arrival.kind == "message" and parse(arrival.text) is not None
        room_thread = await self._room_events.thread(scope, arrival)
        agent_id = (room_thread and room_thread.agent_id) or self._agents[arrival.platform]
        home = home_of(scope, arrival, agent_id, self._commands.homes)
        request = turn_request(arrival, agent_id, self._policies[arrival.platform], home)
        try:
            new = self._turns.seal(scope, request, arrival=claim_of(scope, arrival, correlation_id, home))
            # Other processes leave it to this one, which leases it when the burst before it is through.
            new = msgspec.structs.replace(new, lease=self._runner.new_lease(), is_only_reserved=True)
        except InvalidText:
            return Receipt("blank")
        except InvalidInput as exc:
            return await self._refuse(scope, arrival, correlation_id, str(exc))
        denial = await find_denial(self._turns, self._directory, sender, request, agent_id)
        if denial is not None and arrival.author is not None and arrival.is_addressed and not is_command:
            # Nothing of it is stored in another user's thread.
            return await self._answer(sender, arrival, correlation_id, denial.decision, denial.said)
        try:
            outcome = None
            if denial is None and not is_command and is_plain(arrival, room_thread):
                outcome = await self._store.scoped(scope).accept_turn(new)
            if outcome is None or (isinstance(outcome, AcceptRefusal) and outcome.reason == "question_open"):
                work = partial(self._command_or_turn, arrival, correlation_id, agent_id, new, denial)
                receipt = await self._store.transact(scope, work)
            else:
                receipt = self._receipt(outcome, new)
        except AnswerRefused as refused:
            return await self._answers.refuse(scope, arrival, correlation_id, refused)
        except (InvalidInput, NotFound, Conflict) as exc:
            return await self._refuse(scope, arrival, correlation_id, str(exc))
        self._start(scope, receipt, arrival)
        for turn_id in receipt.stopped:
            # The stored request reaches whichever process runs the turn; a turn of this process ends now.
            await self._runner.stop(scope, turn_id)
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
        """In one transaction: a command, an answer to the place's open question, a denied request, an edit, or a text
        for the agent that does not answer the open question."""
        context = context_of(tx, arrival, agent_id, self._clock.now())
        if await self._is_ignored(tx, context, arrival):
            return Receipt("ignored")
        receipt = await self._command(tx, context, arrival, correlation_id, denial)
        if receipt is not None:
            return receipt
        assert new.arrival is not None
        new = msgspec.structs.replace(new, arrival=new.arrival._replace(is_question_checked=True))
        if arrival.platform in ROOM_PLATFORMS:
            threads = self._commands.room(tx, context, arrival.recipient, request_id(arrival))
            await threads.unarchive()
            await self._outbox.announce(tx, arrival, threads.changes, name=request_id(arrival))
        if arrival.kind == "edit" and (edited := await last_turn(tx, arrival)) is not None:
            (question, *_) = await tx.last_turns(edited.thread_id, 1)
            new = msgspec.structs.replace(new, replaces=question.id)
            await self._room_events.redact_reply(tx, arrival, edited)
        if denial is None:
            return self._receipt(await tx.accept_turn(new), new)
        return await self._deny(tx, msgspec.structs.replace(new, status=denial.status), denial)

    async def _is_ignored(self, tx: Transaction, context: CommandContext, arrival: Arrival) -> bool:
        """An edit of anything but the last question, or into a command, changes nothing. In a shared place, a text
        that does not name the bot counts only as an answer to an open question, or in a thread in which the sender has
        spoken to the bot."""
        if arrival.kind == "edit":
            return parse(arrival.text) is not None or await last_turn(tx, arrival) is None
        if arrival.is_addressed or (arrival.may_follow_up and await tx.binding(context.platform, context.place)):
            return False
        return await self._commands.read(tx, context, arrival.text) is None

    def _receipt(self, outcome: Accepted | AcceptRefusal, new: TurnAcceptance) -> Receipt:
        if isinstance(outcome, AcceptRefusal) and outcome.reason == "duplicate_arrival":
            return Receipt("duplicate")
        return Receipt("accepted", self._turns.require_accepted(outcome, new).turn)

    async def _deny(self, tx: Transaction, new: TurnAcceptance, denial: Denial) -> Receipt:
        stored = await self._turns.deny_in(tx, new, denial.said)
        if stored is None or new.arrival is None:
            return Receipt("duplicate")
        await self._outbox.enqueue_reply(tx, stored.turn, denial.said, None)
        await tx.settle_inbox(
            new.arrival.platform, new.arrival.key, status="done", decision=denial.decision, turn_id=stored.turn.id
        )
        return Receipt(denial.decision, stored.turn)

    def _start(self, scope: Scope, receipt: Receipt, arrival: Arrival) -> None:
        """Runs the turn that an arrival began or continued."""
        if receipt.decision == "accepted" and receipt.turn is not None:
            # An answer has enqueued what became of its question, and a message in a room may have enqueued changes of
            # the room. The reply follows when the turn has ended.
            if arrival.kind != "message" or arrival.platform in ROOM_PLATFORMS:
                self._wake(scope.tenant_id)
            running = self._runner.start(scope, receipt.turn, self._approver)
            stream = partial(self._streams.events, scope, receipt.turn.id)
            self._live_views.follow(scope, arrival, receipt.turn.id, running, stream)

    async def _command(
        self,
        tx: Transaction,
        context: CommandContext,
        arrival: Arrival,
        correlation_id: str,
        denial: Denial | None,
    ) -> Receipt | None:
        """Executes a command, or an answer to a question; None if the text is for the agent."""
        command = await self._commands.read(tx, context, arrival.text) if arrival.kind == "message" else None
        if command is None:
            return None
        # Where no command waits for `!yes` or `!no`, it is for the agent's question, if there is one.
        is_for_agent = isinstance(command, Hint) and (denial is None or denial.status != "denied_rbac")
        if is_for_agent and (answered := await self._answers.answer_here(tx, arrival, correlation_id)) is not None:
            return answered
        owner_id = tx.scope.user_id
        arrived = await claim(tx, arrival, correlation_id, owner_id=owner_id)
        if arrived is None:
            return Receipt("duplicate")
        decision: Decision = "command"
        if denial is not None and denial.status == "denied_rbac" and not is_for_viewers(command, context):
            reply, decision = CommandReply(denial.said), "denied_rbac"
        elif isinstance(command, Hint):
            reply = CommandReply(command.text)
        else:
            reply = await self._commands.execute(
                tx, context, command, recipient=arrival.recipient, request_id=request_id(arrival)
            )
        if reply.text is None:
            await self._outbox.announce(tx, arrival, reply.changes, name=request_id(arrival))
        else:
            await self._outbox.answer(tx, arrived, reply.text, owner_id=owner_id, changes=reply.changes)
        await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision=decision)
        return Receipt(decision, stopped=reply.stopped)

    async def _explain(self, scope: Scope, arrival: Arrival, correlation_id: str) -> Receipt:
        """There is nothing in it that the agent can read: says so instead of staying silent."""
        if not arrival.is_addressed:
            return Receipt("ignored")
        return await self._answer(scope, arrival, correlation_id, "unsupported", UNREADABLE_TEXT)

    async def _refuse(self, scope: Scope, arrival: Arrival, correlation_id: str, reason: str) -> Receipt:
        """Replies why nothing was done."""
        return await self._answer(scope, arrival, correlation_id, "refused", f"That did not work: {reason}")

    async def _answer(
        self, scope: Scope, arrival: Arrival, correlation_id: str, decision: Decision, text: str
    ) -> Receipt:
        """Replies without a turn. Nothing else is stored, and a repeat is not answered again."""

        async def work(tx: Transaction) -> Receipt:
            arrived = await claim(tx, arrival, correlation_id, owner_id=scope.user_id)
            if arrived is None:
                return Receipt("duplicate")
            await self._outbox.answer(tx, arrived, text, owner_id=scope.user_id)
            await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision=decision)
            return Receipt(decision)

        return await self._store.transact(scope, work)
