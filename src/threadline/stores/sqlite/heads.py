"""Where a thread stands: its timeline, how far that goes, and what lies before it.

Everything that reads or extends a history begins with its head. A thread that is deleted, unknown or another owner's
has none.
"""

from __future__ import annotations

from typing import NamedTuple

from threadline.core.errors import NotFound
from threadline.core.ids import new_id
from threadline.core.messages import to_us
from threadline.core.threads import Point, Thread
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.lineage import ancestors_of_branch, nearest
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/heads.sql")


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


def find_head(session: ScopedSession, thread_id: str) -> Head:
    row = session.row(_SQL["find_head"], (session.tenant_id, thread_id, session.user_id, session.sees_all))
    if row is None:
        raise NotFound("thread", thread_id)
    return Head._make(row)


def find_standing(session: ScopedSession, thread_id: str) -> tuple[Thread, Head]:
    """The thread and its head, for those who change both."""
    row = session.row(_SQL["find_standing"], (session.tenant_id, thread_id, session.user_id, session.sees_all))
    if row is None:
        raise NotFound("thread", thread_id)
    *values, thread_no, timeline_no, ancestors, newest_no = row
    thread = rows.thread(values)
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
    """Where the head would be if the thread stood on another timeline of its own. NotFound."""
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
    """How many messages a timeline's history holds, its ancestors' part included."""
    end = session.row(_SQL["find_end"], (timeline_no,))
    if end is not None:
        return int(end[0]) + 1
    fork = nearest(ancestors)
    return 0 if fork is None else fork.seq + 1


class NewTimeline(NamedTuple):
    """`id` is made up here. The point it forks at, if any, may lie in an ancestor's range; `ancestors` say where."""

    id: str
    owner_id: str
    parent: Point | None
    ancestors: bytes


class Whose(NamedTuple):
    """The thread that gets a timeline, its newest one so far, and whether what the new one stems from is its own."""

    thread_no: int
    earlier_no: int | None = None
    goes_on: bool = False


def add_timeline(session: ScopedSession, whose: Whose, new: NewTimeline, now_us: int) -> int:
    """The new timeline's number, which is the one after the highest."""
    fork = nearest(new.ancestors)
    lineage = (*(new.parent or (None, None)), *(fork or (None, None)), fork is not None and not whose.goes_on)
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
    """One that goes on from `seq` of where `origin` stands, or from nothing."""
    if origin is None:
        return NewTimeline(new_id(), owner_id, None, b"")
    ancestors = ancestors_of_branch(origin.timeline_no, seq, origin.ancestors)
    return NewTimeline(new_id(), owner_id, Point(origin.timeline_id, seq), ancestors)
