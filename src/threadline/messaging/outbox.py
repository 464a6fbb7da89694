"""The outbox: deliveries to platforms.

A reply is enqueued in the transaction that stores it, one row per message that the platform accepts. Dead letters stay
listed, and an administrator can requeue them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple, get_args

from threadline.core.approval_questions import ChatQuestion, calls_text, chat_question, open_calls, outcome_word
from threadline.core.channels import REQUEUEABLE, InboxRow, OutboxBacklog, OutboxRow, OutboxStatus
from threadline.core.checks import check_choice, check_range
from threadline.core.messages import Message
from threadline.core.parts import ToolPart, decode, plain_text
from threadline.core.platform_messages import Arrival, Permanent, Report, Sent, WindowClosed, encode_edit
from threadline.core.reply_text import arrived_as, delivered_text, reply_markdown
from threadline.core.room_messages import RoomMessage, encode
from threadline.core.sealing import CleanText, Sealer
from threadline.core.threads import Scope, system_scope
from threadline.core.turn_commits import ReplyDelivery, outbox_id
from threadline.core.turns import ANSWERED_ELSEWHERE, BEGUN, CHANNELS, CONTINUES, Surface, Turn, reply_id
from threadline.messaging.rooms import NO_CHANGES, ROOM_PLATFORMS, RoomChanges
from threadline.messaging.window_templates import WindowTemplates
from threadline.ports import Channel, EditableChannel, Store, Transaction

_MOST_LISTED = 1_000
# A platform's reason may quote a whole page.
_REASON_LENGTH = 300
# Platforms accept a few thousand characters per message; more than a dozen messages in a row are not read.
_LONGEST = 40_000
_CUT = "\n\n… This reply is too long for a chat. The thread has all of it."


class Outbox:
    """`wake` is called with the tenant that has something to deliver."""

    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        channels: Mapping[Surface, Channel],
        wake: Callable[[str], None],
        templates: WindowTemplates,
        *,
        question_lifetime: dt.timedelta,
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._channels = channels
        self._wake = wake
        self._templates = templates
        self.question_lifetime = question_lifetime
        """How long a question for approval can be answered in a chat."""

    def render_reply(self, turn: Turn, text: str, parts_json: bytes | None) -> ReplyDelivery | None:
        """What the sender of an ended turn is sent; None if the turn came from no platform, or its platform is
        disabled: then the inbox row stays open, and the sweep delivers the reply when the platform is enabled.
        `parts_json` is the reply, if there is one: rooms also show which tools it used."""
        key = arrived_as(turn)
        if key is None:
            return None
        reply = _shown_reply(turn, text, parts_json)
        is_notice = parts_json is None
        payloads: tuple[CleanText, ...] | None = ()
        question = self._question(turn, reply.calls)
        if turn.surface in ROOM_PLATFORMS and question is not None:
            # One message: a room shows a turn's reply in one place, and edits it there.
            asked = "\n\n".join(each for each in (reply.text, question.text) if each)
            payloads = (encode(RoomMessage(self._sealer.text(asked, "reply"), question=question.token)),)
        elif question is None or reply.text:
            payloads = self._render(turn.surface, delivered_text(turn, reply.text), is_notice=is_notice)
        if payloads is None or (channel := self._channels.get(turn.surface)) is None:
            return None if payloads is None else ReplyDelivery(turn.surface, key, payloads)
        if question is not None:
            payloads += tuple(CleanText(each) for each in channel.render_question(question))
        return ReplyDelivery(turn.surface, key, (*self._closed_elsewhere(turn, reply), *payloads))

    def _question(self, turn: Turn, calls: Sequence[ToolPart]) -> ChatQuestion | None:
        if not calls or turn.status != "executed":
            return None
        asked = chat_question(turn.id, calls, self.question_lifetime)
        return asked._replace(text=self._sealer.text(asked.text, "question"))

    def _closed_elsewhere(self, turn: Turn, reply: _ShownReply) -> list[CleanText]:
        """Replaces the buttons of a question that was answered on another surface."""
        answered = [call for call in reply.answered if call.approval is not None]
        if not turn.seen.get(ANSWERED_ELSEWHERE) or not answered:
            return []
        decided = bool(answered[0].approval and answered[0].approval.approved)
        payload = self._edit(turn.surface, str(turn.seen.get(CONTINUES)), answered, outcome_word(approved=decided))
        return [] if payload is None else [payload]

    def _edit(self, platform: Surface, turn_id: str, calls: Sequence[ToolPart], outcome: str) -> CleanText | None:
        channel = self._channels.get(platform) if platform not in ROOM_PLATFORMS else None
        if not isinstance(channel, EditableChannel):
            return None
        text = self._sealer.text(calls_text(calls, outcome), "question")
        return encode_edit(turn_id, channel.render_edit(text))

    async def close_question(
        self, tx: Transaction, turn: Turn, calls: Sequence[ToolPart], outcome: str, *, name: str
    ) -> None:
        """Enqueues an edit that replaces the buttons of a turn's question by its outcome, where the platform can."""
        asked = await find_question(tx, turn.id)
        payload = None if asked is None else self._edit(asked.platform, turn.id, calls, outcome)
        if asked is not None and payload is not None:
            await tx.enqueue(
                asked.platform, asked.recipient, payload, turn_id=None, owner_id=asked.owner_id, id=f"{name}-edit"
            )

    async def notify(self, tx: Transaction, arrival: Arrival, text: str, *, name: str) -> bool:
        """Enqueues a notice that only the sender sees. False where the platform has none."""
        if arrival.notice_to is None or not (payloads := self._render(arrival.platform, text, is_notice=True)):
            return False
        owner_id, id = tx.scope.user_id, f"{name}-notice"
        await tx.enqueue(arrival.platform, arrival.notice_to, payloads[0], turn_id=None, owner_id=owner_id, id=id)
        return True

    async def enqueue_reply(self, tx: Transaction, turn: Turn, text: str, parts_json: bytes | None) -> None:
        """Enqueues the reply of a turn that has ended, in the caller's transaction; a second call does nothing."""
        delivery = self.render_reply(turn, text, parts_json)
        arrived = None if delivery is None else await tx.inbox_row(delivery.platform, delivery.key)
        if delivery is None or arrived is None or arrived.reply_to is None:
            return
        await self._enqueue(tx, arrived, delivery.payloads, owner_id=turn.owner_id, name=turn.id, turn_id=turn.id)
        await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision=turn.status, turn_id=turn.id)

    async def answer(
        self, tx: Transaction, arrived: InboxRow, text: str, *, owner_id: str, changes: RoomChanges = NO_CHANGES
    ) -> bool:
        """Enqueues the reply to an arrival that became no turn, in the caller's transaction; a second call does
        nothing. `changes` are for rooms. False if the platform is disabled, or the arrival has no recipient."""
        payloads = self._render(arrived.platform, text, is_notice=True, changes=changes)
        if payloads is None or arrived.reply_to is None:
            return False
        name = answer_id(arrived.platform, arrived.key)
        await self._enqueue(tx, arrived, payloads, owner_id=owner_id, name=name, turn_id=None)
        return True

    async def announce(self, tx: Transaction, arrival: Arrival, changes: RoomChanges, *, name: str) -> None:
        """Enqueues changes of a room without a text."""
        if changes != NO_CHANGES:
            payload = encode(RoomMessage("", name=changes.name, binding=changes.binding))
            await tx.enqueue(
                arrival.platform,
                arrival.recipient,
                payload,
                turn_id=None,
                owner_id=tx.scope.user_id,
                id=f"{name}-state",
            )

    def _render(
        self, platform: Surface, text: str, *, is_notice: bool, changes: RoomChanges = NO_CHANGES
    ) -> tuple[CleanText, ...] | None:
        channel = self._channels.get(platform) if platform not in ROOM_PLATFORMS else None
        if channel is None and platform not in ROOM_PLATFORMS:
            return None
        clean = self._sealer.text(text if len(text) <= _LONGEST else text[:_LONGEST] + _CUT, "reply")
        if channel is None:
            # The bot of a room renders the Markdown itself: only it knows how far a live view has shown it.
            message = RoomMessage(clean, is_notice=is_notice, name=changes.name, binding=changes.binding)
            return (encode(message),)
        # Rendered from a clean text, a payload is clean.
        return tuple(CleanText(payload) for payload in channel.render(clean))

    async def _enqueue(
        self,
        tx: Transaction,
        arrived: InboxRow,
        payloads: tuple[CleanText, ...],
        *,
        owner_id: str,
        name: str,
        turn_id: str | None,
    ) -> None:
        assert arrived.reply_to is not None
        for number, payload in enumerate(payloads):
            id = outbox_id(name, number)
            await tx.enqueue(arrived.platform, arrived.reply_to, payload, turn_id=turn_id, owner_id=owner_id, id=id)

    async def record_delivery_report(self, tenant_id: str, report: Report) -> bool:
        """Stores what a platform reports about a delivery later: arrived after all, or never will. False if the row
        has that status already."""
        was: OutboxStatus = "waiting" if isinstance(report.outcome, Sent) else "sent"
        status, error = _reported(report)
        tx = self._store.scoped(system_scope(tenant_id))
        if isinstance(report.outcome, WindowClosed):
            row = await tx.outbox_row(report.key)
            if row is not None and row.status == was:
                await self._templates.ask(tx, row)
        return await tx.report_outbox(report.key, was=was, status=status, error=error)

    async def list_rows(
        self, scope: Scope, *, status: str | None = None, platform: str | None = None, limit: int = 100
    ) -> list[OutboxRow]:
        """The tenant's rows, newest first. Administrators only."""
        scope.require("admin")
        check_range("limit", limit, 1, _MOST_LISTED)
        session = self._store.scoped(system_scope(scope.tenant_id))
        return await session.outbox(status=_status(status), platform=_platform(platform), limit=limit)

    async def backlog(self, scope: Scope) -> list[OutboxBacklog]:
        """What is not delivered. Administrators only."""
        scope.require("admin")
        return await self._store.scoped(system_scope(scope.tenant_id)).outbox_backlog()

    async def requeue(self, scope: Scope, outbox_id: str) -> OutboxRow:
        """Queues a dead or window-closed delivery again, with its attempts reset. NotFound; Conflict if it has another
        status. Administrators only."""
        scope.require("admin")

        async def work(tx: Transaction) -> OutboxRow:
            row = await tx.requeue(outbox_id)
            await tx.record_act("outbox.requeued", outbox_id, actor_id=scope.user_id)
            return row

        row = await self._store.transact(system_scope(scope.tenant_id), work)
        self._wake(scope.tenant_id)
        return row

    async def requeue_all(
        self, scope: Scope, *, status: str | None = None, platform: str | None = None, since: dt.datetime | None = None
    ) -> int:
        """Queues undelivered rows again: dead and window-closed ones, or those with one of these statuses, for one
        platform, enqueued at or after `since`. How many. Administrators only. InvalidInput."""
        scope.require("admin")
        statuses = REQUEUEABLE if status is None else (check_choice("status", status, REQUEUEABLE),)
        wanted = _platform(platform)

        async def work(tx: Transaction) -> int:
            count = await tx.requeue_all(statuses, platform=wanted, since=since)
            if count:
                await tx.record_act("outbox.requeued", f"{count} deliveries", actor_id=scope.user_id)
            return count

        count = await self._store.transact(system_scope(scope.tenant_id), work)
        self._wake(scope.tenant_id)
        return count


class _ShownReply(NamedTuple):
    """What of a reply its platform has not been sent before: the text, the calls that wait for approval, and those that
    were answered since."""

    text: str
    calls: Sequence[ToolPart] = ()
    answered: Sequence[ToolPart] = ()


def _shown_reply(turn: Turn, text: str, parts_json: bytes | None) -> _ShownReply:
    begun = turn.seen.get(BEGUN, {})
    is_room = turn.surface in ROOM_PLATFORMS
    if parts_json is None or not (is_room or begun or b"approval-requested" in parts_json):
        return _ShownReply(text)
    parts, known = decode(parts_json), begun.get("parts", 0)
    was_open = [part for part in parts[:known] if isinstance(part, ToolPart) and part.call_id in begun.get("open", ())]
    calls, later = open_calls(parts[known:]), parts[known:]
    if is_room:
        text = reply_markdown([part for part in (*was_open, *later) if part not in calls])
    elif known:
        text = plain_text(later)
    return _ShownReply(text, calls, was_open)


async def find_question(tx: Transaction, turn_id: str) -> OutboxRow | None:
    """The row of the question that a turn ended with: the last that its reply became."""
    found = None
    for number in count():
        row = await tx.outbox_row(outbox_id(turn_id, number))
        if row is None:
            return found
        found = row
    return None


class UnansweredSweep:
    """Messages whose turn has ended, and for which no reply was enqueued. A reply is enqueued in the transaction that
    ends its turn, so this is rare: the turn was stopped before it ran, or its platform was disabled when it ended. Safe
    with any number of workers, because the ids of a reply's rows are fixed."""

    def __init__(self, store: Store, outbox: Outbox) -> None:
        self._store = store
        self._outbox = outbox

    async def sweep(self) -> int:
        """Sweeps every tenant. How many messages were found."""
        return sum([await self.catch_up(tenant_id) for tenant_id in await self._store.busy_tenants()])

    async def catch_up(self, tenant_id: str) -> int:
        rows = await self._store.scoped(system_scope(tenant_id)).unanswered()
        for row in rows:
            if row.owner_id is not None:
                await self._answer(Scope(tenant_id, row.owner_id), row)
        return len(rows)

    async def _answer(self, scope: Scope, row: InboxRow) -> None:
        async def work(tx: Transaction) -> None:
            current = await tx.inbox_row(row.platform, row.key)
            if current is None or current.status != "accepted":
                return
            turn = None if row.turn_id is None else await tx.turn(row.turn_id)
            if turn is None:
                # The thread was purged: there is nothing to answer.
                await tx.settle_inbox(row.platform, row.key, status="done", decision="gone", turn_id=row.turn_id)
            elif not turn.is_active:
                reply = await _reply(tx, turn)
                if reply is None:
                    await self._outbox.enqueue_reply(tx, turn, turn.error or "", None)
                else:
                    await self._outbox.enqueue_reply(tx, turn, reply.text, reply.parts_json)

        await self._store.transact(scope, work)


def answer_id(platform: Surface, key: str) -> str:
    """What the rows that answer an arrival are named after."""
    return hashlib.sha256(f"{platform} {key}".encode()).hexdigest()[:40]


def _reported(report: Report) -> tuple[OutboxStatus, str | None]:
    match report.outcome:
        case Sent():
            return "sent", None
        case Permanent(reason):
            return "dead", reason[:_REASON_LENGTH]
        case WindowClosed(reason):
            return "window_closed", reason[:_REASON_LENGTH]


def _status(given: str | None) -> OutboxStatus | None:
    statuses: tuple[OutboxStatus, ...] = get_args(OutboxStatus)
    return None if given is None else check_choice("status", given, statuses)


async def _reply(tx: Transaction, turn: Turn) -> Message | None:
    thread = await tx.thread(turn.thread_id)
    return None if thread is None else await tx.message(thread.id, reply_id(turn.id))


def _platform(given: str | None) -> Surface | None:
    return None if given is None else check_choice("platform", given, sorted(CHANNELS))
