"""The two commits of a turn: the request with its turn and lease, the reply with the turn's end.

Everything is checked before anything is written, so that a refusal leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from threadline.core.errors import DuplicateId, InvalidInput, NotFound
from threadline.core.messages import ROLES, Message
from threadline.core.open_questions import METADATA_KEY
from threadline.core.sealing import Sealed
from threadline.core.threads import Thread
from threadline.core.turn_commits import (
    Accepted,
    AcceptRefusal,
    FinishRefusal,
    HomeClaim,
    ReplyDelivery,
    TurnAcceptance,
    outbox_id,
    refuse_system_arrival,
)
from threadline.core.turns import ACTIVE, TRANSITIONS, Chunk, Lease, Turn, TurnEnd
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.hidden_parts import copy_hidden
from threadline.stores.sqlite.lineage import Head, find_head, holder
from threadline.stores.sqlite.messages import Span, append, find_message, read_span
from threadline.stores.sqlite.places import bind, find_binding, is_bound
from threadline.stores.sqlite.queues import add_inbox, enqueue, find_inbox, is_claimed, settle_inbox
from threadline.stores.sqlite.session import ScopedSession
from threadline.stores.sqlite.threads import create_thread, existing_thread, find_thread, thread_by_key
from threadline.stores.sqlite.timelines import move
from threadline.stores.sqlite.turns import (
    add_turn,
    continue_interrupted,
    end_taken_turns,
    find_hold,
    find_turn,
    find_turn_by_key,
    is_turn_known,
    lease_turn,
    put_chunks,
    request_stop,
    store_end,
)
from threadline.stores.sqlite.usage import add_usage

# The request and its reply.
_MESSAGES_OF_A_TURN = 2
# Active turns are counted only where their replies may not fit: more never wait on one thread.
_NEARLY_FULL = 1000
# How many replies to earlier turns may follow a request that is continued. There are rarely two.
_REPLIES_AFTER = 50
_SQL = load_queries(__package__, "queries/turn_commits.sql")


class TurnCommitOperations(Operations):
    async def accept_turn(self, new: TurnAcceptance) -> Accepted | AcceptRefusal:
        return await self._engine.write(accept_turn, new)

    async def finish_turn(
        self,
        turn_id: str,
        fence: int,
        end: TurnEnd,
        *,
        reply: Sealed | None = None,
        chunks: Sequence[Chunk] = (),
        tokens: int = 0,
        delivery: ReplyDelivery | None = None,
    ) -> Turn | FinishRefusal:
        return await self._engine.write(finish_turn, turn_id, fence, end, reply, chunks, tokens, delivery)


class _Target(NamedTuple):
    """The thread that a request goes to, None if it is to be created; and whether its place must be bound to it."""

    thread: Thread | None
    must_bind: bool


def accept_turn(session: ScopedSession, new: TurnAcceptance) -> Accepted | AcceptRefusal:
    refuse_system_arrival(session.scope, new)
    arrival = new.arrival
    if arrival is not None and is_claimed(session, arrival.platform, arrival.key):
        return AcceptRefusal("duplicate_arrival")
    if new.key is not None and (earlier := find_turn_by_key(session, new.key)) is not None:
        return _replay(session, new, earlier)
    target = _find_target(session, new)
    if isinstance(target, AcceptRefusal):
        return target
    thread = target.thread
    if is_turn_known(session, new.turn_id):
        return AcceptRefusal("id_known")
    if thread is not None and (refusal := _check_request(session, new, thread)) is not None:
        return refusal
    if thread is None and new.replaces is not None:
        return AcceptRefusal("replaced_missing")
    return _store_request(session, new, target)


def _replay(session: ScopedSession, new: TurnAcceptance, earlier: Turn) -> Accepted | AcceptRefusal:
    thread = find_thread(session, earlier.thread_id, deleted=True)
    if earlier.request_hash != new.request_hash or thread is None:
        return AcceptRefusal("key_reused", thread, earlier.id)
    _claim(session, new, earlier.id)
    if earlier.status == "interrupted" and new.lease is not None and new.arrival is None:
        return _continue_interrupted(session, earlier, thread, new.lease)
    return Accepted(earlier, thread, replayed=True)


def _continue_interrupted(session: ScopedSession, turn: Turn, thread: Thread, lease: Lease) -> Accepted | AcceptRefusal:
    """Leases an interrupted turn to run again, or hands it over, if nothing follows it in the thread. If the thread
    ends with its partial reply, it is rewound to before that."""
    request = _find_request(session, turn)
    if request is None or not _is_last(session, turn, request):
        return Accepted(turn, thread, replayed=True)
    for _, active_id, _ in _active_turns(session, request.head):
        return AcceptRefusal("turn_running", thread, active_id)
    if turn.reply_seq is not None:
        move(session, thread.id, turn.reply_seq - 1, None)
    leased = continue_interrupted(session, turn, lease)
    is_leased = lease.worker is not None
    return Accepted(leased, existing_thread(session, thread.id), replayed=True, leased=is_leased)


def _is_last(session: ScopedSession, turn: Turn, request: _Request) -> bool:
    """Whether the thread ends with the turn's partial reply, or with its request if it has no reply. A request that was
    queued may be followed by replies to earlier ones."""
    head, last = request.head, request.head.message_count - 1
    if turn.reply_seq is None:
        if last - request.seq > _REPLIES_AFTER:
            return False
        later = read_span(session, turn.thread_id, Span(head, request.seq + 1, last)) if last > request.seq else []
        return all(message.role == "assistant" for message in later)
    if turn.reply_seq != last or turn.reply_seq == request.seq:
        return False
    found = session.row(_SQL["find_request"], (holder(head.timeline_no, last, head.ancestors), last, turn.id))
    return found is not None


def _find_target(session: ScopedSession, new: TurnAcceptance) -> _Target | AcceptRefusal:
    if new.thread_id is not None:
        thread = find_thread(session, new.thread_id)
        return AcceptRefusal("thread_missing") if thread is None else _Target(thread, must_bind=False)
    if (arrival := new.arrival) is not None:
        binding = find_binding(session, arrival.platform, arrival.place)
        if binding is None and is_bound(session, arrival.platform, arrival.place):
            return AcceptRefusal("place_taken")
        if binding is not None and METADATA_KEY in binding.metadata and not arrival.is_question_checked:
            return AcceptRefusal("question_open")
        if binding is not None and (thread := find_thread(session, binding.thread_id)) is not None:
            return _Target(thread, must_bind=False)
        if arrival.home is not None and (thread := _find_home(session, arrival.home)) is not None:
            return _Target(thread, must_bind=True)
    key = new.new_thread.state_key
    return _Target(None if key is None else thread_by_key(session, key), must_bind=arrival is not None)


def _find_home(session: ScopedSession, home: HomeClaim) -> Thread | None:
    binding = find_binding(session, "web", home.place)
    thread = None if binding is None else find_thread(session, binding.thread_id)
    found = (thread_by_key(session, key) for key in home.keys)
    return thread or next((each for each in found if each is not None), None)


def _check_request(session: ScopedSession, new: TurnAcceptance, thread: Thread) -> AcceptRefusal | None:
    """Whether the request can be stored in a thread that exists."""
    for _, active_id, worker in _active_turns(session, find_head(session, thread.id)):
        is_own = new.lease is not None and worker == new.lease.worker
        if new.policy == "reject" or (new.must_check_holder and not is_own):
            return AcceptRefusal("turn_running", thread, active_id)
        break
    count = thread.message_count
    if new.replaces is not None:
        replaced = find_message(session, thread.id, new.replaces)
        if replaced is None:
            return AcceptRefusal("replaced_missing", thread)
        if replaced.role != new.message.role:
            return AcceptRefusal("replaced_not_user", thread)
        if replaced.role == "assistant" and replaced.seq != count - 1:
            return AcceptRefusal("replaced_not_last", thread)
        count = replaced.seq
    known = find_message(session, thread.id, new.message.id)
    if known is not None and known.seq < count:
        is_same = (known.role, known.parts_json) == (new.message.role, new.message.parts_json)
        return AcceptRefusal("message_repeated" if is_same else "message_known", thread)
    # A reply with its answers takes the place of the one that waits, and the whole reply takes the same place.
    needed = 1 if new.message.role == "assistant" else _MESSAGES_OF_A_TURN
    has_room = count + needed <= session.limits.messages_per_thread - _replies_due(session, new, thread)
    return None if has_room else AcceptRefusal("thread_full", thread)


def _replies_due(session: ScopedSession, new: TurnAcceptance, thread: Thread) -> int:
    """How many replies of active turns will be stored. Those of replaced requests will not."""
    is_nearly_full = thread.message_count + _NEARLY_FULL > session.limits.messages_per_thread
    return len(_active_turns(session, find_head(session, thread.id))) if is_nearly_full and not new.replaces else 0


def _store_request(session: ScopedSession, new: TurnAcceptance, target: _Target) -> Accepted | AcceptRefusal:
    thread = target.thread
    if thread is None:
        try:
            thread = create_thread(session, new.new_thread)
        except DuplicateId:
            return AcceptRefusal("id_known")
    if new.arrival is not None and target.must_bind:
        bind(session, new.arrival.platform, new.arrival.place, thread.id, None, None)
    _claim(session, new, new.turn_id)
    steered = None
    if new.policy in ("interrupt", "steer"):
        active = [id for _, id, _ in _active_turns(session, find_head(session, thread.id))]
        steered = active[0] if active and new.policy == "steer" and new.replaces is None else None
        for active_id in active if new.policy == "interrupt" else ():
            request_stop(session, active_id)
    if new.replaces is not None:
        replaced = find_message(session, thread.id, new.replaces)
        assert replaced is not None
        move(session, thread.id, replaced.seq - 1, None)
    appended = append(session, thread.id, [new.message], None, None, new.turn_id, 0, new.title)
    turn = add_turn(session, new, thread, appended.first_seq, steered)
    leased = None
    if new.lease is not None and new.lease.worker is not None and turn.is_active and not new.is_only_reserved:
        leased = lease_turn(session, turn.id, new.lease)
    return Accepted(leased or turn, existing_thread(session, thread.id), leased=leased is not None)


def _active_turns(session: ScopedSession, head: Head) -> list[tuple[int, str, str | None]]:
    """In order of acceptance, with the process that holds each."""
    found = session.rows(_SQL["find_active_turns"], (session.tenant_id, head.thread_no))
    return [(no, id, worker) for no, id, worker in found]


def _claim(session: ScopedSession, new: TurnAcceptance, turn_id: str) -> None:
    if (arrival := new.arrival) is None:
        return
    what = (arrival.fingerprint, arrival.correlation_id, arrival.reply_to)
    add_inbox(session, arrival.platform, arrival.key, what, session.user_id)
    settle_inbox(session, arrival.platform, arrival.key, "accepted", "accepted", turn_id)


def finish_turn(
    session: ScopedSession,
    turn_id: str,
    fence: int,
    end: TurnEnd,
    reply: Sealed | None,
    chunks: Sequence[Chunk],
    tokens: int,
    delivery: ReplyDelivery | None,
) -> Turn | FinishRefusal:
    hold, turn = find_hold(session, turn_id), find_turn(session, turn_id)
    if hold is None or turn is None:
        return FinishRefusal("turn_missing")
    if hold.fence != fence or hold.status not in ACTIVE:
        return FinishRefusal("lease_lost" if hold.fence != fence else "already_ended")
    if end.status in ACTIVE or end.status not in TRANSITIONS[hold.status]:
        raise InvalidInput(f"a turn that is {hold.status} cannot end as {end.status}")
    asked, reply_seq = None if reply is None else _find_request(session, turn), None
    if reply is not None and asked is not None:
        stored = _store_reply(session, turn, asked, reply, tokens)
        if isinstance(stored, FinishRefusal):
            return stored
        reply_seq = stored
    put_chunks(session, turn_id, fence, chunks)
    ended = store_end(session, hold, turn_id, end, reply_seq)
    if end.charge is not None and end.is_counted:
        add_usage(session, ended.owner_id, end.charge)
    end_taken_turns(session, hold, ended, end)
    if delivery is not None:
        _deliver(session, ended, delivery)
    return ended


class _Request(NamedTuple):
    """What a turn answers, where that is in the thread's present history."""

    head: Head
    seq: int
    is_reply: bool
    """Whether it is a reply with its approvals answered, which the turn continues."""


def _find_request(session: ScopedSession, turn: Turn) -> _Request | None:
    try:
        head = find_head(session, turn.thread_id)
    except NotFound:
        return None
    seq = turn.request_seq
    if seq is None or not 0 <= seq < head.message_count:
        return None
    row = session.row(_SQL["find_request"], (holder(head.timeline_no, seq, head.ancestors), seq, turn.id))
    return None if row is None else _Request(head, seq, is_reply=ROLES[row[0]] == "assistant")


def _store_reply(
    session: ScopedSession, turn: Turn, asked: _Request, reply: Sealed, tokens: int
) -> int | FinishRefusal:
    """The reply's seq. It is appended, or takes the place of the reply that it continues."""
    count = asked.seq if asked.is_reply else asked.head.message_count
    known = find_message(session, turn.thread_id, reply.id)
    if known is not None and known.seq < count:
        return FinishRefusal("reply_known")
    if asked.head.message_count + (not asked.is_reply) > session.limits.messages_per_thread:
        return FinishRefusal("thread_full")
    later: list[Message] = []
    if asked.is_reply:
        later = read_span(session, turn.thread_id, Span(asked.head, asked.seq + 1, asked.head.message_count - 1))
        move(session, turn.thread_id, asked.seq - 1, None)
    appended = append(session, turn.thread_id, [reply], None, None, turn.id, tokens, None)
    for message in later:
        append(session, turn.thread_id, [_as_stored(message)], None, None, message.turn_id, 0, None)
    if later:
        copy_hidden(session, asked.head, asked.seq, find_head(session, turn.thread_id).timeline_no)
    return appended.first_seq


def _as_stored(message: Message) -> Sealed:
    """A stored message is sealed already: it is copied byte for byte."""
    return Sealed(message.id, message.role, message.parts_json, message.metadata_json, message.text, message.created_us)


def _deliver(session: ScopedSession, turn: Turn, delivery: ReplyDelivery) -> None:
    arrived = find_inbox(session, delivery.platform, delivery.key)
    if arrived is None or arrived.reply_to is None:
        return
    for number, payload in enumerate(delivery.payloads):
        name = outbox_id(turn.id, number)
        enqueue(session, delivery.platform, arrived.reply_to, payload, turn.id, turn.owner_id, name)
    settle_inbox(session, delivery.platform, delivery.key, "done", turn.status, turn.id)
