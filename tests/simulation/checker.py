"""The invariants, checked against a model that knows only what was asked and what was seen from outside.

The database is read with plain SQL on a connection of its own, not through the store.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import apsw

from tests.simulation.agent import TOKEN
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.faults import Faults
from tests.simulation.platform import SimulatedPlatforms, Taken
from tests.simulation.questions import PEOPLE, Chat, Question

_UNFINISHED = """
SELECT 'turn ' || status || ' of ' || surface, id FROM turns WHERE status IN ('accepted', 'running')
UNION ALL SELECT 'inbox row ' || status, key FROM inbox WHERE status NOT IN ('done', 'dead')
UNION ALL SELECT 'outbox row ' || status, id FROM outbox WHERE status IN ('waiting', 'claimed')
"""
_LOG = """
WITH RECURSIVE lineage (thread_no, timeline_no, last) AS (
    SELECT no, timeline_no, message_count - 1 FROM threads
    UNION ALL
    SELECT lineage.thread_no, timelines.base_no, min(timelines.base_seq, lineage.last)
    FROM lineage JOIN timelines ON timelines.no = lineage.timeline_no WHERE timelines.base_no IS NOT NULL
)
SELECT threads.owner_id, threads.state_key, threads.message_count, messages.seq, messages.role, messages.id,
    messages.turn_id, messages.parts
FROM threads JOIN lineage ON lineage.thread_no = threads.no
JOIN messages ON messages.timeline_no = lineage.timeline_no AND messages.seq <= lineage.last
ORDER BY threads.no, messages.seq
"""
_TURNS = "SELECT id, owner_id, surface, status, error, request_seq, reply_seq FROM turns"
_OUTBOX = "SELECT turn_id, owner_id, recipient, status FROM outbox ORDER BY no"


class Evidence(Protocol):
    """What a run leaves."""

    loop: SimulatedLoop
    faults: Faults
    database: str
    platform: SimulatedPlatforms
    troubles: int
    has_own_clocks: bool
    injected: Counter[str]
    questions: dict[str, Question]
    effects: Counter[tuple[str, str, int]]

    def fail(self, what: str) -> None: ...


class LogEntry(NamedTuple):
    owner_id: str
    state_key: str
    message_count: int
    seq: int
    role: int
    id: str
    turn_id: str | None
    parts: bytes

    @property
    def text(self) -> str:
        return "\n\n".join(part.get("text", "") for part in json.loads(self.parts) if part.get("type") == "text")


class TurnRow(NamedTuple):
    id: str
    owner_id: str
    surface: str
    status: str
    error: str | None
    request_seq: int | None
    reply_seq: int | None


def find_unfinished(database: str) -> list[str]:
    """What is still to be done, and so keeps the system from being idle."""
    connection = apsw.Connection(database, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [f"{what} {id}" for what, id in connection.execute(_UNFINISHED)]
    finally:
        connection.close()


def check(world: Evidence) -> None:
    connection = apsw.Connection(world.database)
    try:
        for fault in _corruption(connection):
            world.fail(fault)
        log = [LogEntry(*row) for row in connection.execute(_LOG)]
        turns = {row[0]: TurnRow(*row) for row in connection.execute(_TURNS)}
        outbox = list(connection.execute(_OUTBOX))
    finally:
        connection.close()
    for violation in (
        *_log_faults(world, log),
        *_answer_faults(world, log, turns),
        *_effect_faults(world),
        *_delivery_faults(world, log, outbox),
        *world.loop.failures,
    ):
        world.fail(violation)


def _corruption(connection: apsw.Connection) -> Iterator[str]:
    for (found,) in connection.execute("PRAGMA integrity_check(5)"):
        if found != "ok":
            yield f"the file is damaged: {found}"
    for found in connection.execute("PRAGMA foreign_key_check"):
        yield f"a row refers to nothing: {found}"


def _log_faults(world: Evidence, log: list[LogEntry]) -> Iterator[str]:
    """Every acknowledged question is stored once, in its own thread; a thread has no gap."""
    stored: Counter[str] = Counter()
    lengths: Counter[tuple[str, str]] = Counter()
    for entry in log:
        if entry.seq != lengths[entry.owner_id, entry.state_key]:
            yield f"a message of {entry.owner_id} has seq {entry.seq}"
        lengths[entry.owner_id, entry.state_key] += 1
        for token in TOKEN.findall(entry.text):
            question = world.questions[token]
            if (question.person.user_id, question.state_key) != (entry.owner_id, entry.state_key):
                yield f"{token} is in a thread of {entry.owner_id}"
            stored[token] += entry.role == 0
    for entry in log:
        if entry.message_count != lengths[entry.owner_id, entry.state_key]:
            yield f"a thread of {entry.owner_id} counts {entry.message_count} messages"
    for token, question in world.questions.items():
        if stored[token] > 1 or (question.is_acknowledged and stored[token] != 1):
            yield f"{token} is stored {stored[token]} times"


def _answer_faults(world: Evidence, log: list[LogEntry], turns: Mapping[str, TurnRow]) -> Iterator[str]:
    """Every stored question has one turn, which ended, and at most one reply, which comes after it, in order."""
    replies: dict[str, list[LogEntry]] = {}
    for entry in log:
        if entry.role == 1:
            replies.setdefault(entry.turn_id or "", []).append(entry)
    last: dict[tuple[str, str], int] = {}
    for entry in log:
        if entry.role != 0:
            continue
        (token,) = TOKEN.findall(entry.text)
        question, turn = world.questions[token], turns.get(entry.turn_id or "")
        if turn is None:
            yield f"{token} is stored without its turn"
            continue
        found = replies.pop(turn.id, [])
        yield from _status_faults(world, question, turn)
        if len(found) > 1:
            yield f"{token} has {len(found)} replies"
        for reply in found:
            if reply.seq <= max(entry.seq, last.get((entry.owner_id, entry.state_key), -1)):
                yield f"the reply to {token} is out of order"
            last[entry.owner_id, entry.state_key] = reply.seq
            if turn.reply_seq != reply.seq:
                yield f"the turn of {token} names reply {turn.reply_seq}, and it is {reply.seq}"
        yield from _text_faults(question, turn, [reply.text for reply in found])
        if not _may_lose_leases(world):
            yield from _stream_faults(question, turn, [reply.text for reply in found])
    yield from (f"a reply of turn {turn_id} has no question" for turn_id in replies)


def _text_faults(question: Question, turn: TurnRow, replies: list[str]) -> Iterator[str]:
    """The reply answers its question and no other, and callers got just that."""
    token, is_executed = question.token, turn.status == "executed"
    if is_executed and not replies:
        yield f"{token} was executed without a reply"
    for text in replies:
        if set(TOKEN.findall(text)) - {token} or (is_executed and text.count(f"answer {token}") != 1):
            yield f"{token} was answered with {text!r}"
    for answer in question.answers:
        if [answer] != replies:
            yield f"the caller of {token} got {answer!r}"


def _may_lose_leases(world: Evidence) -> bool:
    """Whether a turn can be taken from a process that still runs it. Readers in that process may then be shown events
    that were never stored, and continue with those of the other process."""
    return world.has_own_clocks or world.injected["pauses"] > 0


def _stream_faults(question: Question, turn: TurnRow, replies: list[str]) -> Iterator[str]:
    for shown in question.shown:
        # Parts are separated by blank lines in a text, and by events in a stream.
        if turn.status == "executed" and shown.split() != " ".join(replies).split():
            yield f"a reader of {question.token} was shown {shown!r}"


def _status_faults(world: Evidence, question: Question, turn: TurnRow) -> Iterator[str]:
    allowed = {"dispatch_failed" if question.plan.failure else "executed"}
    if world.faults.rates.error_per_statement or world.faults.rates.unknown_per_commit:
        allowed.add("dispatch_failed")
    if question.stop_after is not None or _may_be_interrupted(world, question):
        allowed.add("stopped")
    if question.surface == "api" and (world.troubles or world.faults.rates.graceful_stop_per_second):
        allowed.add("interrupted")
    if turn.status not in allowed:
        yield f"the turn of {question.token} ended {turn.status}: {turn.error}"
    if turn.status == "executed" and question.failures:
        yield f"the caller of {question.token} was told {question.failures}, and it was answered"
    if turn.surface != question.surface or turn.owner_id != question.person.user_id:
        yield f"the turn of {question.token} is {turn.owner_id}'s on {turn.surface}"


def _may_be_interrupted(world: Evidence, question: Question) -> bool:
    """Whether another question in its thread stops the turn that runs."""
    others = (other for other in world.questions.values() if other.policy == "interrupt")
    return any((other.person, other.state_key) == (question.person, question.state_key) for other in others)


def _effect_faults(world: Evidence) -> Iterator[str]:
    for (tool, token, number), times in world.effects.items():
        if tool == "pay" and times > 1:
            yield f"{tool} ran {times} times for call {number} of {token}"


def _delivery_faults(world: Evidence, log: list[LogEntry], outbox: list[tuple[Any, ...]]) -> Iterator[str]:
    """Every question of a chat got its reply there, in order, and twice only if a fault made the first one doubtful."""
    asked = {entry.turn_id: TOKEN.findall(entry.text)[0] for entry in log if entry.role == 0}
    delivered: Counter[str] = Counter()
    for turn_id, owner_id, recipient, status in outbox:
        token = asked.get(turn_id)
        if token is None:
            yield f"a reply to {recipient} has no question"
            continue
        chat = world.questions[token].chat
        if chat is None or recipient != chat.address or owner_id != world.questions[token].person.user_id:
            yield f"a reply to {token} went to {recipient}"
        if status != "sent":
            yield f"a reply to {token} is {status}"
        delivered[token] += 1
    for token, question in world.questions.items():
        if delivered[token] != (question.chat is not None):
            yield f"{token} has {delivered[token]} replies in the outbox"
    order = [TOKEN.findall(entry.text)[0] for entry in log if entry.role == 0]
    for chat in (chat for person in PEOPLE for chat in person.chats):
        yield from _chat_faults(world, chat, order)


def _chat_faults(world: Evidence, chat: Chat, order: list[str]) -> Iterator[str]:
    """`order`: the questions of all threads as the log has them."""
    taken = [taken for taken in world.platform.taken if taken.chat == chat]
    asked = [question for question in world.questions.values() if question.chat == chat]
    named: dict[str, list[Taken]] = {}
    for each in taken:
        for token in set(TOKEN.findall(each.text)):
            if world.questions[token] not in asked:
                yield f"{chat} got {each.text!r}"
            named.setdefault(token, []).append(each)
    if len(taken) < len(asked):
        yield f"a chat got {len(taken)} replies to {len(asked)} questions"
    if list(named) != sorted(named, key=order.index):
        yield f"a chat got its replies in the order {list(named)}"
    for token, copies in named.items():
        for earlier, later in pairwise(copies):
            # Slack is asked before a doubtful reply is repeated.
            # A request of a process that crashed may arrive before or after the one that repeats it.
            is_lost = not (earlier.is_answered and later.is_answered)
            may_repeat = chat.surface != "slack" and (is_lost or earlier.troubles != later.troubles)
            is_doubtful = may_repeat or world.has_own_clocks
            if not is_doubtful:
                yield f"{token} was answered twice in its chat"
