"""Heads and lineages: which timelines a thread's history consists of, and where it ends.

A lineage is stored as 8 bytes per ancestor: the timeline's number and the last seq taken from it, nearest ancestor
first, so seqs fall from the first to the last. SQLite's `carray` accepts the same bytes, so a query reads a history of
a thousand branches without a Python object for any of them. A timeline holds only seqs above its fork, so the segment
(timeline, top) means all its messages up to `top`. Every read and append starts with the thread's `Head`.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

import apsw

from threadline.core.errors import HeadMoved, NotFound
from threadline.core.ids import new_id
from threadline.core.messages import to_us
from threadline.core.threads import Point, Thread
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/lineage.sql")


_TOP = 0xFFFFFFFF


class Place(NamedTuple):
    """A timeline and a seq on it; the packed form of one ancestor."""

    timeline_no: int
    seq: int


def segments(timeline_no: int, top: int, ancestors: bytes, *, first: int = 0) -> array[int]:
    """The segments of a history that hold seqs `first` to `top`, newest first. `top` is at most the head's seq."""
    if top < max(first, 0):
        return array("q")
    found = _unpack(ancestors)
    if found and top <= found[0] & _TOP:
        del found[: _holding(found, top)]
        found[0] = _pack(found[0] >> 32, top)
    else:
        found.insert(0, _pack(timeline_no, top))
    if first > 0:
        del found[_holding(found, first) + 1 :]
    return found


def ancestors_of_branch(timeline_no: int, seq: int, ancestors: bytes) -> bytes:
    """The lineage of a timeline that forks at a point; a fork inside an ancestor's range hangs on that ancestor."""
    if seq < 0:
        return b""
    # Nearly always the fork is in the timeline's own part or its parent's: the bytes before it are copied as they are.
    fork = nearest(ancestors)
    if fork is None or seq > fork.seq:
        return _pack(timeline_no, seq).to_bytes(8, "little") + ancestors
    before = nearest(ancestors[8:])
    if before is None or seq > before.seq:
        return _pack(fork.timeline_no, seq).to_bytes(8, "little") + ancestors[8:]
    return _bytes(segments(timeline_no, seq, ancestors))


def holder(timeline_no: int, seq: int, ancestors: bytes) -> int:
    """The number of the timeline that holds the message with this seq."""
    return segments(timeline_no, seq, ancestors, first=seq)[0] >> 32


def nearest(ancestors: bytes) -> Place | None:
    """Where the timeline forks; None if it has no ancestor."""
    if not ancestors:
        return None
    packed = int.from_bytes(ancestors[:8], "little")
    return Place(packed >> 32, packed & _TOP)


def tops(timeline_no: int, ancestors: bytes) -> dict[int, int]:
    """The last seq that the history takes from each timeline, by number; the newest timeline has no limit."""
    found = {packed >> 32: packed & _TOP for packed in _unpack(ancestors)}
    found[timeline_no] = _TOP
    return found


def bound(found: array[int]) -> object:
    """The segments as a parameter of a query."""
    return apsw.carray(found)


def unpack(ancestors: bytes) -> list[Place]:
    """The ancestors, nearest first."""
    return [Place(packed >> 32, packed & _TOP) for packed in _unpack(ancestors)]


def pack(places: Iterable[Place]) -> bytes:
    return _bytes(array("q", [_pack(*place) for place in places]))


def _holding(found: array[int], seq: int) -> int:
    """The last of the segments whose top is at or above `seq`."""
    return bisect_right(found, -seq, key=lambda packed: -(packed & _TOP)) - 1


def _pack(timeline_no: int, top: int) -> int:
    return timeline_no << 32 | top


def _unpack(ancestors: bytes) -> array[int]:
    found = array("q", ancestors)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _bytes(found: array[int]) -> bytes:
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


class Head(NamedTuple):
    thread_no: int
    owner_id: str
    message_count: int
    token_count: int
    title: str | None
    updated_us: int
    timeline_no: int
    timeline_id: str
    ancestors: bytes
    newest_no: int
    """The thread's newest timeline; from there its others are found."""


def find_head(session: ScopedSession, thread_id: str, *, deleted: bool = False) -> Head:
    which = (session.tenant_id, thread_id, session.user_id, session.sees_all, deleted)
    row = session.row(_SQL["find_head"], which)
    if row is None:
        raise NotFound("thread", thread_id)
    return Head._make(row)


def find_thread_and_head(session: ScopedSession, thread_id: str) -> tuple[Thread, Head]:
    """The thread and its head, for operations that change both."""
    which = (session.tenant_id, thread_id, session.user_id, session.sees_all)
    columns, row = session.row_and_columns(_SQL["find_thread_and_head"], which)
    if row is None:
        raise NotFound("thread", thread_id)
    *_, thread_no, timeline_no, ancestors, newest_no = row
    thread = rows.thread.read(columns, row)
    head = Head(
        thread_no,
        thread.owner_id,
        thread.message_count,
        thread.token_count,
        thread.title,
        to_us(thread.updated_at),
        timeline_no,
        thread.timeline_id,
        ancestors,
        newest_no,
    )
    return thread, head


def head_on(session: ScopedSession, head: Head, timeline_id: str | None) -> Head:
    """The head that the thread would have on another of its timelines. NotFound."""
    if timeline_id is None or timeline_id == head.timeline_id:
        return head
    row = session.row(_SQL["find_timeline"], (head.newest_no, timeline_id))
    if row is None:
        raise NotFound("timeline", timeline_id)
    number, id, ancestors = row
    return head._replace(
        timeline_no=number, timeline_id=id, ancestors=ancestors, message_count=count_of(session, number, ancestors)
    )


def count_of(session: ScopedSession, timeline_no: int, ancestors: bytes) -> int:
    """The number of messages in a timeline's history, including its ancestors' part."""
    end = session.row(_SQL["find_end"], (timeline_no,))
    if end is not None:
        return int(end[0]) + 1
    fork = nearest(ancestors)
    return 0 if fork is None else fork.seq + 1


class NewTimeline(NamedTuple):
    """`parent` is the point it forks at, if any; `ancestors` resolve it to the timeline that holds that message."""

    id: str
    owner_id: str
    parent: Point | None
    ancestors: bytes


class TimelineOwner(NamedTuple):
    """The thread that gets a timeline, its newest timeline so far, and whether the new one continues one of its own."""

    thread_no: int
    earlier_no: int | None = None
    continues: bool = False


def add_timeline(session: ScopedSession, whose: TimelineOwner, new: NewTimeline, now_us: int) -> int:
    """Returns the new timeline's number, the highest of all."""
    fork = nearest(new.ancestors)
    lineage = (*(new.parent or (None, None)), *(fork or (None, None)), fork is not None and not whose.continues)
    values = (
        session.tenant_id,
        new.owner_id,
        new.id,
        whose.thread_no,
        whose.earlier_no,
        now_us,
        *lineage,
        new.ancestors,
    )
    session.run(_SQL["add_timeline"], values)
    return session.last_number()


def new_timeline(owner_id: str, origin: Head | None = None, seq: int = -1) -> NewTimeline:
    """A timeline that continues after `seq` of the history at `origin`, or an empty one."""
    if origin is None:
        return NewTimeline(new_id(), owner_id, None, b"")
    ancestors = ancestors_of_branch(origin.timeline_no, seq, origin.ancestors)
    return NewTimeline(new_id(), owner_id, Point(origin.timeline_id, seq), ancestors)


def require_head(head: Head, expected_count: int | None, expected_timeline: str | None) -> None:
    """HeadMoved if the thread's end is not where the caller saw it."""
    if expected_count is not None and expected_count != head.message_count:
        raise HeadMoved(head.message_count, expected_count)
    if expected_timeline is not None and expected_timeline != head.timeline_id:
        raise HeadMoved(head.message_count)
