"""Answers to questions for approval that arrive from platforms: pressed buttons, `!yes` and `!no`.

The arrival is claimed in the transaction that stores the turn which continues the reply. So an answer that is delivered
again, or that is given again from anywhere, continues nothing twice. Only the user who was asked can answer, because
turns are looked up in the sender's own scope. The sender of an answer that cannot be used is told why, once.
"""

from __future__ import annotations

import msgspec

from threadline.core.approval_questions import (
    NOT_ASKED_TEXT,
    ButtonAnswer,
    find_calls,
    open_calls,
    outcome_word,
    question_token,
    read_button,
)
from threadline.core.approvals import ApprovalDecision
from threadline.core.commands import Command, parse
from threadline.core.errors import Conflict, NotFound, RoleRefused
from threadline.core.parts import ToolPart
from threadline.core.platform_messages import Arrival
from threadline.core.reply_text import NOT_ALLOWED_TEXT, inbox_key, turn_key
from threadline.core.threads import Scope
from threadline.core.turn_commits import Accepted, AcceptRefusal, ArrivalClaim
from threadline.core.turns import Turn, reply_id
from threadline.messaging.bindings import place_of
from threadline.messaging.outbox import Outbox, answer_id
from threadline.messaging.receipts import Receipt
from threadline.messaging.unlinked_senders import claim
from threadline.ports import Clock, Store, Transaction
from threadline.turns.acceptance import Turns
from threadline.turns.approvals import AnswerRequest, Approvals
from threadline.turns.runner import Runner

CLOSED_TEXT = "This question is no longer open: the chat has changed since. Ask again if you still want it."
EXPIRED_TEXT = "This question has expired. Ask again if you still want it."
_BUSY_TEXT = "The agent is answering something else in this chat. Answer again when it is done."


_YES = Command("yes")


class AnswerRefused(Exception):
    """Why an answer changes nothing, in words for its sender. `calls` are the calls it is about, `outcome` what became
    of them. `is_repeated`: it says what was answered before, so only a sender who waits for a notice gets one."""

    def __init__(
        self,
        text: str,
        asker: Turn | None = None,
        calls: list[ToolPart] | None = None,
        outcome: str | None = None,
        *,
        is_repeated: bool = False,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.asker = asker
        self.calls = calls or []
        self.outcome = outcome
        self.is_repeated = is_repeated


class ApprovalAnswers:
    def __init__(
        self, store: Store, approvals: Approvals, turns: Turns, outbox: Outbox, runner: Runner, clock: Clock
    ) -> None:
        self._store = store
        self._approvals = approvals
        self._turns = turns
        self._outbox = outbox
        self._runner = runner
        self._clock = clock

    async def receive(self, scope: Scope, arrival: Arrival, correlation_id: str) -> Receipt:
        """Takes a pressed button. With the decision `accepted`, the receipt's turn continues the reply."""
        answer = read_button(arrival.text)
        if answer is None:
            return Receipt("ignored")

        async def work(tx: Transaction) -> Receipt:
            asker = await tx.turn(answer.turn_id)
            if asker is None:
                # Another user's, or purged: the sender learns nothing about it.
                raise AnswerRefused(NOT_ASKED_TEXT)
            return await self._answer(tx, arrival, correlation_id, asker, answer)

        try:
            return await self._store.transact(scope, work)
        except AnswerRefused as refused:
            return await self.refuse(scope, arrival, correlation_id, refused)

    async def answer_here(self, tx: Transaction, arrival: Arrival, correlation_id: str) -> Receipt | None:
        """Takes `!yes` or `!no` for the question that the thread of this place ends with; None if there is none, the
        text is neither, or it was said to another message. AnswerRefused."""
        if (said := parse(arrival.text)) not in (_YES, Command("no")) or arrival.target is not None:
            return None
        place = place_of(arrival, tx.scope.user_id)
        binding = await tx.binding(arrival.platform, place)
        thread = None if binding is None else await tx.thread(binding.thread_id)
        last = -1 if thread is None else thread.message_count - 1
        found = [] if thread is None or last < 0 else await tx.messages(thread.id, first=last, last=last)
        calls = open_calls(found[0].parts) if found and found[0].role == "assistant" else []
        asker = await tx.turn(found[0].turn_id) if calls and found[0].turn_id is not None else None
        if asker is None or found[0].id != reply_id(asker.id):
            return None
        answer = ButtonAnswer(question_token(asker.id, calls), approved=said == _YES)
        return await self._answer(tx, arrival, correlation_id, asker, answer)

    async def _answer(
        self, tx: Transaction, arrival: Arrival, correlation_id: str, asker: Turn, answer: ButtonAnswer
    ) -> Receipt:
        if asker.asked_by != (arrival.author_id or tx.scope.user_id):
            raise AnswerRefused(f"Only {asker.asked_by}, who asked, can answer this.")
        calls = await self._find_open(tx, asker, answer)
        decision = ApprovalDecision(answer.approved)
        request = AnswerRequest(
            thread_id=asker.thread_id,
            answers={call.approval.id: decision for call in calls if call.approval is not None},
            surface=arrival.platform,
            message_id=reply_id(asker.id),
            key=turn_key(arrival.platform, inbox_key(arrival.key)),
            answered_by=arrival.author_id,
        )
        try:
            prepared = await self._approvals.prepare(tx, tx.scope, request)
        except RoleRefused:
            raise AnswerRefused(NOT_ALLOWED_TEXT) from None
        except (Conflict, NotFound):
            raise AnswerRefused(CLOSED_TEXT, asker, calls, "no longer open") from None
        if isinstance(prepared, Accepted):
            raise _answered(asker, calls, answer, was_approved=answer.approved)
        claimed = ArrivalClaim(
            platform=arrival.platform,
            key=inbox_key(arrival.key),
            fingerprint=arrival.sender,
            correlation_id=correlation_id,
            reply_to=arrival.recipient,
            place=place_of(arrival, tx.scope.user_id),
            is_question_checked=True,
        )
        new = msgspec.structs.replace(prepared, arrival=claimed, lease=self._runner.new_lease(), is_only_reserved=True)
        outcome = await tx.accept_turn(new)
        if isinstance(outcome, AcceptRefusal):
            if outcome.reason == "duplicate_arrival":
                return Receipt("duplicate")
            raise AnswerRefused(_BUSY_TEXT if outcome.reason == "turn_running" else CLOSED_TEXT)
        name, word = answer_id(arrival.platform, inbox_key(arrival.key)), outcome_word(approved=answer.approved)
        await self._outbox.close_question(tx, asker, calls, word, name=name)
        if arrival.awaits_notice:
            await self._outbox.notify(tx, arrival, f"{word.capitalize()}.", name=name)
        return Receipt("accepted", outcome.turn)

    async def _find_open(self, tx: Transaction, asker: Turn, answer: ButtonAnswer) -> list[ToolPart]:
        """The calls that the answer is for, if they wait. AnswerRefused otherwise."""
        reply = (
            None if await tx.thread(asker.thread_id) is None else await tx.message(asker.thread_id, reply_id(asker.id))
        )
        calls = [] if reply is None else find_calls(answer, reply.parts)
        if reply is None or not calls:
            # Undone, edited away, or with another input than the button was shown for.
            raise AnswerRefused(CLOSED_TEXT)
        decided = [call.approval.approved for call in calls if call.approval is not None]
        if decided[0] is not None:
            raise _answered(asker, calls, answer, was_approved=decided[0])
        if asker.finished_at is None or self._clock.now() - asker.finished_at >= self._outbox.question_lifetime:
            raise AnswerRefused(EXPIRED_TEXT, asker, calls, "expired")
        return calls

    async def refuse(self, scope: Scope, arrival: Arrival, correlation_id: str, refused: AnswerRefused) -> Receipt:
        """Tells the sender, and replaces the buttons of a question that is over."""

        async def work(tx: Transaction) -> Receipt:
            arrived = await claim(tx, arrival, correlation_id, owner_id=scope.user_id)
            if arrived is None:
                return Receipt("duplicate")
            name = answer_id(arrived.platform, arrived.key)
            if refused.asker is not None and refused.outcome is not None:
                await self._outbox.close_question(tx, refused.asker, refused.calls, refused.outcome, name=name)
            is_silent = refused.is_repeated and not arrival.awaits_notice
            if not is_silent and not await self._outbox.notify(tx, arrival, refused.text, name=name):
                await self._outbox.answer(tx, arrived, refused.text, owner_id=scope.user_id)
            await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision="refused")
            return Receipt("refused")

        return await self._store.transact(scope, work)


def _answered(asker: Turn, calls: list[ToolPart], answer: ButtonAnswer, *, was_approved: bool) -> AnswerRefused:
    word = outcome_word(approved=was_approved)
    is_repeated = was_approved == answer.approved
    return AnswerRefused(f"This was answered before: {word}.", asker, calls, word, is_repeated=is_repeated)
