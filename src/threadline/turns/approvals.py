"""Approvals: a turn that answers the requests of an earlier turn's reply and continues that reply.

The log is never rewritten, so a continued reply is on a new timeline: accepting the answers stores the reply with its
answers there, in the place of the one that asked and under the same id; finishing does the same with the whole reply.
The turn's id is made from the request it answers. So a request is answered once, on whichever timeline the thread is
then: the same answer again finds the same turn, another answer is a Conflict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from threadline.core.approvals import ApprovalDecision, Pending, apply_answers, check_claims, list_pending
from threadline.core.errors import Conflict, GuardRefused, InvalidInput, NotFound
from threadline.core.event_fold import agent_metadata
from threadline.core.ids import check_id
from threadline.core.messages import Message, NewMessage
from threadline.core.parts import ToolPart
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope, Thread
from threadline.core.turn_commits import Accepted, AcceptRefusal, TurnAcceptance
from threadline.core.turns import Surface, Turn, answering_turn_id, reply_id, root_turn_id, turn_id_of_reply
from threadline.ports import Guard, Store, StoreSession
from threadline.turns.acceptance import Turns, find_present_request
from threadline.turns.leases import Holder


class AnswerRequest(msgspec.Struct, frozen=True):
    """A person's answers to the requests of one reply, by approval id. Without a message id, the reply is the thread's
    last message. `claimed` are the calls of that reply as the client has them."""

    thread_id: str
    answers: Mapping[str, ApprovalDecision]
    surface: Surface
    message_id: str | None = None
    claimed: tuple[ToolPart, ...] = ()
    key: str | None = None


class Approvals:
    """Reads and answers approvals in any scope."""

    def __init__(self, store: Store, turns: Turns, sealer: Sealer, guard: Guard | None = None) -> None:
        self._store = store
        self._turns = turns
        self._sealer = sealer
        self._guard = guard

    async def pending(self, scope: Scope, thread_id: str) -> list[Pending]:
        """The requests of the thread's last message that can be answered now. NotFound."""
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
        scope.require("member")
        if not request.answers:
            raise InvalidInput("`answers` must name at least one approval, got none")
        for answer in request.answers.values():
            if answer.reason and self._guard is not None:
                refused = await self._guard.check(answer.reason, scope)
                if refused:
                    raise GuardRefused(refused)
        session = self._store.scoped(scope)
        thread = await _thread(session, request.thread_id)
        message_id = request.message_id or await _head_id(session, thread)
        root_id = None if message_id is None else turn_id_of_reply(check_id("message", message_id))
        if message_id is None or root_id is None:
            raise NotFound("reply", message_id)
        turn_id, digest = answering_turn_id(root_id, min(request.answers)), _digest(request)
        if (earlier := await session.turn(turn_id)) is not None:
            return _replay(earlier, thread, digest)
        found, asker = await _find_waiting_reply(session, thread, message_id)
        check_claims(found.parts, request.claimed)
        # The reply with its answers takes the place of the one that waits.
        parts, metadata = apply_answers(found.parts, request.answers), agent_metadata(found.metadata)
        answered = NewMessage("assistant", parts, id=found.id, metadata=metadata)
        new = TurnAcceptance(
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
        )
        outcome = await self._turns.store(scope, new, holder)
        if isinstance(outcome, AcceptRefusal) and outcome.reason == "id_known":
            # The same request was answered a moment ago, from here or from elsewhere.
            return _replay(await self._turns.find(scope, turn_id), thread, digest)
        return self._turns.require_accepted(outcome, new)


async def find_continued_reply(session: StoreSession, turn: Turn) -> Message | None:
    """The reply that an active turn continues, with its answers; None for any other turn."""
    if turn.id == root_turn_id(turn.id):
        return None
    found = await find_present_request(session, turn)
    # Read after the message: if the turn has ended by now, that may be the whole reply already.
    now = await session.turn(turn.id)
    return found if now is not None and now.is_active else None


def _replay(earlier: Turn, thread: Thread, digest: bytes) -> Accepted:
    if earlier.request_hash != digest or earlier.thread_id != thread.id:
        raise Conflict("this approval was answered before, with another decision")
    return Accepted(earlier, thread, replayed=True)


async def _thread(session: StoreSession, thread_id: str) -> Thread:
    found = await session.thread(check_id("thread", thread_id))
    if found is None:
        raise NotFound("thread", thread_id)
    return found


async def _find_waiting_reply(session: StoreSession, thread: Thread, message_id: str) -> tuple[Message, Turn]:
    """The reply that waits, which is the thread's last message, and its turn."""
    found = await session.message(thread.id, message_id)
    asker = None if found is None else await _find_asking_turn(session, thread, found)
    if found is None or asker is None:
        raise NotFound("reply", message_id)
    if found.seq != thread.message_count - 1:
        raise Conflict("this approval is no longer pending: the thread has later messages")
    return found, asker


async def _head_id(session: StoreSession, thread: Thread) -> str | None:
    head = await _head(session, thread)
    return None if head is None else head.id


async def _head(session: StoreSession, thread: Thread) -> Message | None:
    last = thread.message_count - 1
    found = await session.messages(thread.id, first=last, last=last) if last >= 0 else []
    return found[0] if found else None


async def _find_asking_turn(session: StoreSession, thread: Thread, message: Message) -> Turn | None:
    """The turn of this thread that wrote the message and was executed. A message that was appended, imported or
    inherited by a branch has none, and its requests cannot be answered here."""
    if message.role != "assistant" or message.turn_id is None:
        return None
    turn = await session.turn(message.turn_id)
    if turn is None or turn.thread_id != thread.id or message.id != reply_id(turn.id) or turn.status != "executed":
        return None
    return turn


def _digest(request: AnswerRequest) -> bytes:
    """Two sets of answers with the same digest are the same."""
    answers = sorted((approval_id, each.approved, each.reason or "") for approval_id, each in request.answers.items())
    return hashlib.sha256(msgspec.json.encode(answers)).digest()
