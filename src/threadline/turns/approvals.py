"""Approvals and outputs: a turn that answers the open calls of an earlier turn's reply and continues that reply.

The log is never rewritten, so a continued reply is on a new timeline: accepting the answers stores the reply with its
answers there, in the place of the one that asked and under the same id; finishing does the same with the whole reply.
The turn's id is made from the call it answers. So a call is answered once, on whichever timeline the thread is then:
the same answer again finds the same turn, another answer is a Conflict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from threadline.core.approvals import (
    Answer,
    ApprovalDecision,
    Pending,
    apply_answers,
    check_claims,
    list_pending,
    read_answers,
)
from threadline.core.client_tools import SEEN_KEY, ClientTool, stored_form
from threadline.core.errors import Conflict, GuardRefused, InvalidInput, NotFound
from threadline.core.event_fold import agent_metadata
from threadline.core.ids import check_id
from threadline.core.messages import Message, NewMessage
from threadline.core.parts import ToolPart
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope, Thread
from threadline.core.turn_commits import Accepted, AcceptRefusal, TurnAcceptance
from threadline.core.turn_options import TurnOptions
from threadline.core.turns import (
    ASKED_BY,
    CONTINUES,
    Surface,
    Turn,
    answering_turn_id,
    reply_id,
    root_turn_id,
    turn_id_of_reply,
)
from threadline.ports import Guard, Store, Transaction
from threadline.threads.field_checks import admit_options
from threadline.turns.acceptance import Turns, find_present_request
from threadline.turns.leases import Holder

_ANSWERED = "answers"
"""In `Turn.seen`: the ids of the calls and approvals that the turn answers."""


class AnswerRequest(msgspec.Struct, frozen=True):
    """Answers to the open calls of one reply: by approval id a person's decisions, by call id the outputs of tools that
    the client ran. Without a message id, the reply is the thread's last message. `claimed` are the calls of that reply
    as the client has them, instead of `answers`."""

    thread_id: str
    answers: Mapping[str, Answer]
    surface: Surface
    message_id: str | None = None
    claimed: tuple[ToolPart, ...] = ()
    key: str | None = None
    client_tools: tuple[ClientTool, ...] = ()
    """Without any, those that the client declared when it asked."""
    answered_by: str | None = None
    """The user who answers, in a thread of another user."""
    options: TurnOptions = TurnOptions()


class Approvals:
    """Reads and answers open calls in any scope."""

    def __init__(self, store: Store, turns: Turns, sealer: Sealer, guard: Guard | None = None) -> None:
        self._store = store
        self._turns = turns
        self._sealer = sealer
        self._guard = guard

    async def pending(self, scope: Scope, thread_id: str) -> list[Pending]:
        """The calls of the thread's last message that can be answered now. NotFound."""
        session = self._store.scoped(scope)
        thread = await _thread(session, thread_id)
        head = await _head(session, thread)
        if head is None or await _find_asking_turn(session, thread, head) is None:
            return []
        return list_pending(head.parts)

    async def accept(self, scope: Scope, request: AnswerRequest, holder: Holder | None = None) -> Accepted:
        """Stores the answers and the turn that acts on them, once. RoleRefused, GuardRefused, NotFound; InvalidInput if
        the answers do not fit the requests; Conflict if they were answered otherwise, or a later message exists;
        TurnRunning. Nothing is stored then."""
        prepared = await self.prepare(self._store.scoped(scope), scope, request)
        if isinstance(prepared, Accepted):
            return prepared
        outcome = await self._turns.store(scope, prepared, holder)
        if isinstance(outcome, AcceptRefusal) and outcome.reason == "id_known":
            # The same request was answered a moment ago, from here or from elsewhere.
            thread = await _thread(self._store.scoped(scope), request.thread_id)
            return _replay(await self._turns.find(scope, prepared.turn_id), thread, prepared.request_hash)
        return self._turns.require_accepted(outcome, prepared)

    async def prepare(self, session: Transaction, scope: Scope, request: AnswerRequest) -> TurnAcceptance | Accepted:
        """What the store is given to store the answers; the turn that acts on them if they were given before. The same
        errors as `accept`."""
        scope.require("member")
        thread = await _thread(session, request.thread_id)
        message_id = request.message_id or await _head_id(session, thread)
        root_id = None if message_id is None else turn_id_of_reply(check_id("message", message_id))
        if message_id is None or root_id is None:
            raise NotFound("reply", message_id)
        answers = await _claimed_answers(session, thread, message_id, request.claimed) or request.answers
        if not answers:
            raise InvalidInput("`answers` must name at least one call that waits, got none")
        await self.check(scope, answers)
        turn_id, digest = answering_turn_id(root_id, min(answers)), _digest(answers)
        if (earlier := await session.turn(turn_id)) is not None:
            return _replay(earlier, thread, digest)
        found, asker = await _find_waiting_reply(session, thread, message_id)
        asked_by = request.answered_by or scope.user_id
        if asker.asked_by != asked_by:
            raise Conflict(f"only {asker.asked_by}, who asked, can answer this call, got {asked_by}")
        check_claims(found.parts, request.claimed)
        # The reply with its answers takes the place of the one that waits.
        parts, metadata = apply_answers(found.parts, answers), agent_metadata(found.metadata)
        answered = NewMessage("assistant", parts, id=found.id, metadata=metadata)
        return TurnAcceptance(
            turn_id=turn_id,
            surface=request.surface,
            message=self._sealer.for_tenant(scope.tenant_id).message(answered),
            policy="reject",
            thread_id=thread.id,
            replaces=found.id,
            agent_id=asker.agent_id,
            model=asker.model,
            key=None if request.key is None else check_id("key", request.key),
            request_hash=digest,
            seen={
                **({SEEN_KEY: asker.seen[SEEN_KEY]} if SEEN_KEY in asker.seen else {}),
                **stored_form(request.client_tools),
                **admit_options(self._sealer.for_tenant(scope.tenant_id), request.options),
                _ANSWERED: sorted(answers),
                CONTINUES: asker.id,
                **({ASKED_BY: asker.seen[ASKED_BY]} if ASKED_BY in asker.seen else {}),
            },
        )

    async def check(self, scope: Scope, answers: Mapping[str, Answer]) -> None:
        """GuardRefused, LimitExceeded or InvalidInput for what a person or a client says."""
        for answer in answers.values():
            if isinstance(answer, ApprovalDecision):
                said = answer.reason
            else:
                raw = answer.encoded()
                said = answer.error if raw is None else raw.decode()
            if said and self._guard is not None and (refused := await self._guard.check(said, scope)):
                raise GuardRefused(refused)


async def _claimed_answers(
    session: Transaction, thread: Thread, message_id: str, claimed: tuple[ToolPart, ...]
) -> dict[str, Answer]:
    """The answers in a reply that a client sent back: decisions, and outputs of calls that wait for them. If none of
    its outputs is awaited, those that the last turn of the reply has brought: the request is a repeated one. Conflict
    if there are none at all."""
    if not claimed:
        return {}
    found = await session.message(thread.id, message_id)
    if found is None:
        # On this timeline the reply does not exist; its decisions may have been given before.
        answers = read_answers(claimed)
        if not answers:
            raise NotFound("reply", message_id)
        return answers
    waiting = {each.call_id for each in list_pending(found.parts) if each.approval_id is None}
    answers = read_answers(claimed, waiting)
    if not answers and found.turn_id is not None and (latest := await session.turn(found.turn_id)) is not None:
        answers = read_answers(claimed, latest.seen.get(_ANSWERED, ()))
    if not answers:
        check_claims(found.parts, claimed)
        raise Conflict("no call of this reply waits for an output or a decision")
    return answers


async def find_continued_reply(session: Transaction, turn: Turn) -> Message | None:
    """The reply that an active turn continues, with its answers; None for any other turn."""
    if turn.id == root_turn_id(turn.id):
        return None
    found = await find_present_request(session, turn)
    # Read after the message: if the turn has ended by now, that may be the whole reply already.
    now = await session.turn(turn.id)
    return found if now is not None and now.is_active else None


def _replay(earlier: Turn, thread: Thread, digest: bytes | None) -> Accepted:
    if earlier.request_hash != digest or earlier.thread_id != thread.id:
        raise Conflict("this call was answered before, with another decision or output")
    return Accepted(earlier, thread, replayed=True)


async def _thread(session: Transaction, thread_id: str) -> Thread:
    found = await session.thread(check_id("thread", thread_id))
    if found is None:
        raise NotFound("thread", thread_id)
    return found


async def _find_waiting_reply(session: Transaction, thread: Thread, message_id: str) -> tuple[Message, Turn]:
    """The reply that waits, which is the thread's last message, and its turn."""
    found = await session.message(thread.id, message_id)
    asker = None if found is None else await _find_asking_turn(session, thread, found)
    if found is None or asker is None:
        raise NotFound("reply", message_id)
    if found.seq != thread.message_count - 1:
        raise Conflict("this call is no longer pending: the thread has later messages")
    return found, asker


async def _head_id(session: Transaction, thread: Thread) -> str | None:
    head = await _head(session, thread)
    return None if head is None else head.id


async def _head(session: Transaction, thread: Thread) -> Message | None:
    last = thread.message_count - 1
    found = await session.messages(thread.id, first=last, last=last) if last >= 0 else []
    return found[0] if found else None


async def _find_asking_turn(session: Transaction, thread: Thread, message: Message) -> Turn | None:
    """The turn of this thread that wrote the message and was executed. A message that was appended, imported or
    inherited by a branch has none, and its calls cannot be answered here."""
    if message.role != "assistant" or message.turn_id is None:
        return None
    turn = await session.turn(message.turn_id)
    if turn is None or turn.thread_id != thread.id or message.id != reply_id(turn.id) or turn.status != "executed":
        return None
    return turn


def _digest(answers: Mapping[str, Answer]) -> bytes:
    """Two sets of answers with the same digest are the same."""
    compared = [(id, *_compared(answer)) for id, answer in sorted(answers.items())]
    return hashlib.sha256(msgspec.json.encode(compared)).digest()


def _compared(answer: Answer) -> tuple[bool | str, str]:
    if isinstance(answer, ApprovalDecision):
        return answer.approved, answer.reason or ""
    raw = answer.encoded()
    if raw is None:
        return "error", answer.error or ""
    # The keys of an object may come in another order the second time.
    return "output", msgspec.json.encode(msgspec.json.decode(raw), order="sorted").decode()
