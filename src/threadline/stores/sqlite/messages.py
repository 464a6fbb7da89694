"""Messages: appends and reads of histories.

A history is read from its end through its segments, in one statement at any depth of branching, and only as far as
needed. Rows become messages without decoding their parts. An append is a lookup, a check that its ids are new, the
inserts and one update of the thread; its cost does not depend on the length of the thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from threadline.core.errors import DuplicateId, HeadMoved, KeyReused, LimitExceeded, NotFound, nothing_to_append
from threadline.core.hidden_parts import newest_of
from threadline.core.messages import ROLES, Message, from_us
from threadline.core.sealing import CleanText, Sealed
from threadline.core.threads import Appended, ThreadState
from threadline.stores.rows import fingerprint
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.hidden_parts import visible
from threadline.stores.sqlite.lineage import Head, bound, find_head, head_on, require_head, segments, tops
from threadline.stores.sqlite.session import Row, ScopedSession
from threadline.stores.sqlite.timelines import move

_SQL = load_queries(__package__, "queries/messages.sql")
ROLE_NUMBER = {role: number for number, role in enumerate(ROLES)}
_USER = ROLE_NUMBER["user"]
_NO_END = 2**62
_FEW = 8
"""A larger append goes to the writer thread: on the event loop it would delay other tasks."""
_MUCH = 1_000
"""A larger read goes to the reader thread."""


class MessageOperations(Operations):
    async def append(
        self,
        thread_id: str,
        messages: Sequence[Sealed],
        *,
        key: str | None = None,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
        after: int | None = None,
        turn_id: str | None = None,
        tokens: int = 0,
        title: CleanText | None = None,
    ) -> Appended:
        write = self._engine.write if len(messages) <= _FEW else self._engine.write_large
        if after is None and expected_timeline is None:
            return await write(append, thread_id, messages, key, expected_count, turn_id, tokens, title)
        expected = (expected_count, expected_timeline)
        return await write(append_after, thread_id, messages, key, after, expected, turn_id, tokens, title)

    async def messages(
        self,
        thread_id: str,
        *,
        first: int = 0,
        last: int | None = None,
        limit: int | None = None,
        timeline_id: str | None = None,
        deleted: bool = False,
    ) -> list[Message]:
        span = await self._engine.read(find_span, thread_id, first, last, limit, timeline_id, deleted=deleted)
        if span.last - span.first < _MUCH:
            return await self._engine.read(read_visible_span, thread_id, span)
        return await self._engine.read_large(read_visible_span, thread_id, span)

    async def last_turns(self, thread_id: str, turns: int, *, before: int | None = None) -> list[Message]:
        return await self._engine.read(last_turns, thread_id, turns, before)

    async def message(self, thread_id: str, message_id: str) -> Message | None:
        return await self._engine.read(find_visible_message, thread_id, message_id)


def append(
    session: ScopedSession,
    thread_id: str,
    messages: Sequence[Sealed],
    key: str | None,
    expected_count: int | None,
    turn_id: str | None,
    tokens: int,
    title: CleanText | None,
) -> Appended:
    if not messages:
        raise nothing_to_append()
    head = find_head(session, thread_id)
    digest = None if key is None else fingerprint(messages)
    replayed = (key is not None and _done_under_key(session, thread_id, head, key, digest)) or _find_earlier_append(
        session, thread_id, head, messages
    )
    if replayed:
        return replayed
    _check_room(session, head, len(messages), expected_count)
    ids = _insert(session, head, messages, turn_id)
    count = head.message_count + len(ids)
    now_us = session.now_us()
    session.run(_SQL["advance_head"], (count, tokens, now_us, head.thread_no))
    if title is not None and head.title is None:
        session.run(_SQL["title_thread"], (title, head.thread_no))
    if key is not None:
        session.run(
            _SQL["add_append_key"], (head.thread_no, key, head.timeline_no, head.message_count, len(ids), digest)
        )
    session.touch(thread_id)
    state = ThreadState(
        head.timeline_id, count, head.token_count + tokens, title if head.title is None else head.title, from_us(now_us)
    )
    return Appended(thread_id, head.timeline_id, head.message_count, ids, count, state)


def append_after(
    session: ScopedSession,
    thread_id: str,
    messages: Sequence[Sealed],
    key: str | None,
    after: int | None,
    expected: tuple[int | None, str | None],
    turn_id: str | None,
    tokens: int,
    title: CleanText | None,
) -> Appended:
    """Moves the thread to a new timeline after the seq `after`, if it is given, and appends there. A repeat moves
    nothing: it is known by its key, or because its first message is the one after `after`."""
    if not messages:
        raise nothing_to_append()
    head = find_head(session, thread_id)
    is_repeat = key is not None and session.row(_SQL["find_append_key"], (head.thread_no, key)) is not None
    if not is_repeat:
        belongs = tops(head.timeline_no, head.ancestors)
        is_repeat = any(
            seq <= belongs.get(timeline_no, -1) and seq < head.message_count and after in (None, seq - 1)
            for timeline_no, seq, _ in session.rows(_SQL["find_by_id"], (messages[0].id,))
        )
    if not is_repeat:
        require_head(head, *expected)
        # Checked before the move: an append that fails afterwards would leave the thread moved.
        start = head.message_count if after is None else after + 1
        _check_room(session, head._replace(message_count=start), len(messages), None)
        if after is not None:
            move(session, thread_id, after, None)
    return append(session, thread_id, messages, key, None, turn_id, tokens, title)


def _insert(session: ScopedSession, head: Head, messages: Sequence[Sealed], turn_id: str | None) -> tuple[str, ...]:
    now = session.now_us()
    session.run_many(
        _SQL["add_message"],
        [
            (
                head.timeline_no,
                seq,
                ROLE_NUMBER[message.role],
                now if message.created_us is None else message.created_us,
                message.id,
                turn_id,
                message.metadata_json,
                message.parts_json,
            )
            for seq, message in enumerate(messages, start=head.message_count)
        ],
    )
    return tuple([message.id for message in messages])


def _check_room(session: ScopedSession, head: Head, added: int, expected_count: int | None) -> None:
    if expected_count is not None and expected_count != head.message_count:
        raise HeadMoved(head.message_count, expected_count)
    if added > session.limits.messages_per_append:
        raise LimitExceeded("messages per append", session.limits.messages_per_append, added)
    if head.message_count + added > session.limits.messages_per_thread:
        raise LimitExceeded("messages per thread", session.limits.messages_per_thread, head.message_count + added)


def _done_under_key(
    session: ScopedSession, thread_id: str, head: Head, key: str, digest: bytes | None
) -> Appended | None:
    row = session.row(_SQL["find_append_key"], (head.thread_no, key))
    if row is None:
        return None
    timeline_no, timeline_id, first_seq, count, stored = row
    if stored != digest:
        raise KeyReused(key)
    ids = tuple(id for (id,) in session.rows(_SQL["read_ids"], (timeline_no, first_seq, first_seq + count - 1)))
    return Appended(thread_id, timeline_id, first_seq, ids, first_seq + count, _state_of(head), replayed=True)


def _find_earlier_append(
    session: ScopedSession, thread_id: str, head: Head, messages: Sequence[Sealed]
) -> Appended | None:
    """The result of an earlier identical append; None if no id is in the history. DuplicateId if only some match."""
    found = [session.rows(_SQL["find_by_id"], (message.id,)) for message in messages]
    if len(messages) > 1 and len({message.id for message in messages}) < len(messages):
        raise DuplicateId("message", _first_repeated(messages))
    if not any(found):
        return None
    belongs = tops(head.timeline_no, head.ancestors)
    here = [next((row for row in places if row[1] <= belongs.get(row[0], -1)), None) for places in found]
    if not any(here):
        return None
    for offset, (place, message) in enumerate(zip(here, messages, strict=True)):
        if place is None or here[0] is None or place[1] != here[0][1] + offset or not _same(session, place, message):
            known = message if place is not None else messages[next(n for n, row in enumerate(here) if row)]
            raise DuplicateId("message", known.id)
    assert here[0] is not None
    timeline_no, first_seq, _ = here[0]
    names = name_timelines(session, head, [timeline_no])
    ids = tuple(message.id for message in messages)
    return Appended(thread_id, names[timeline_no], first_seq, ids, first_seq + len(ids), _state_of(head), replayed=True)


def _state_of(head: Head) -> ThreadState:
    return ThreadState(head.timeline_id, head.message_count, head.token_count, head.title, from_us(head.updated_us))


def _same(session: ScopedSession, place: Row, message: Sealed) -> bool:
    return session.row(_SQL["read_content"], (place[2],)) == (ROLE_NUMBER[message.role], message.parts_json)


def _first_repeated(messages: Sequence[Sealed]) -> str:
    seen: set[str] = set()
    for message in messages:
        if message.id in seen:
            return message.id
        seen.add(message.id)
    raise AssertionError("unreachable: an id is repeated")


class Span(NamedTuple):
    """Seqs `first` to `last` of the history that ends at `head`."""

    head: Head
    first: int
    last: int


def find_span(
    session: ScopedSession,
    thread_id: str,
    first: int,
    last: int | None,
    limit: int | None,
    timeline_id: str | None,
    *,
    deleted: bool = False,
) -> Span:
    head = head_on(session, find_head(session, thread_id, deleted=deleted), timeline_id)
    first = max(first, 0)
    end = head.message_count - 1 if last is None else min(last, head.message_count - 1)
    return Span(head, first, end if limit is None else min(end, first + limit - 1))


def read_span(session: ScopedSession, thread_id: str, span: Span) -> list[Message]:
    head, first, last = span
    if last < first:
        return []
    wanted = segments(head.timeline_no, last, head.ancestors, first=first)
    with session.snapshot():
        found = as_messages(session, head, session.rows(_SQL["read_history_backwards"], (bound(wanted), first)))
    if len(found) != last - first + 1:
        # A purge removed messages between the two reads.
        raise NotFound("thread", thread_id)
    return found


def read_visible_span(session: ScopedSession, thread_id: str, span: Span) -> list[Message]:
    return visible(session, thread_id, read_span(session, thread_id, span), span.head)


def last_turns(session: ScopedSession, thread_id: str, turns: int, before: int | None) -> list[Message]:
    wanted = turns
    while True:
        found = newest_turns(session, thread_id, wanted, before)
        if not found:
            find_head(session, thread_id)
        found.reverse()
        made = [Message(m, ROLES[r], on, seq, p, meta, turn, at) for m, r, on, seq, p, meta, turn, at in found]
        shown = visible(session, thread_id, made)
        if shown is made:
            return made
        shown, is_enough = newest_of(shown, turns)
        if is_enough or not made or made[0].seq == 0:
            return shown
        # Some of the questions are hidden, and a turn without its question is none.
        wanted *= 2


def newest_turns(session: ScopedSession, thread_id: str, turns: int, before: int | None = None) -> list[Row]:
    """The rows from below `before` down to the `turns`-th user message, newest first; [] for an unknown thread."""
    found: list[Row] = []
    if turns < 1:
        return found
    end = _NO_END if before is None else min(before, _NO_END)
    cursor = session.stream(_SQL["read_newest"], (session.tenant_id, thread_id, session.user_id, session.sees_all, end))
    for row in cursor:
        found.append(row)
        if row[1] == _USER:
            turns -= 1
            if turns == 0:
                break
    cursor.close()
    return found


def find_message(session: ScopedSession, thread_id: str, message_id: str) -> Message | None:
    with session.snapshot():
        try:
            head = find_head(session, thread_id)
        except NotFound:
            return None
        belongs = tops(head.timeline_no, head.ancestors)
        for timeline_no, seq, number in session.rows(_SQL["find_by_id"], (message_id,)):
            if seq <= belongs.get(timeline_no, -1):
                return as_messages(session, head, session.rows(_SQL["read_message"], (number,)))[0]
    return None


def find_visible_message(session: ScopedSession, thread_id: str, message_id: str) -> Message | None:
    found = find_message(session, thread_id, message_id)
    return None if found is None else next(iter(visible(session, thread_id, [found])), None)


def as_messages(session: ScopedSession, head: Head, newest_first: list[Row]) -> list[Message]:
    """The messages, oldest first. The ids of timelines are looked up once per timeline, not per message."""
    newest_first.reverse()
    if not newest_first or newest_first[0][2] == head.timeline_no:
        id = head.timeline_id
        return [Message(m, ROLES[r], id, seq, p, meta, turn, at) for m, r, _, seq, p, meta, turn, at in newest_first]
    names = name_timelines(session, head, [row[2] for row in newest_first])
    return [
        Message(m, ROLES[r], names[no], seq, p, meta, turn, at) for m, r, no, seq, p, meta, turn, at in newest_first
    ]


def name_timelines(session: ScopedSession, head: Head, numbers: Sequence[int]) -> dict[int, str]:
    names = {head.timeline_no: head.timeline_id}
    others = array("q", set(numbers) - names.keys())
    if others:
        names.update(session.rows(_SQL["name_timelines"], (bound(others),)))
    return names
