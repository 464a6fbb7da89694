"""Where a thread stands: its timeline, how far that goes, and what lies before it.

Everything that reads or extends a history begins with its head. A thread that is deleted, unknown or another owner's
has none.
"""

from __future__ import annotations

from typing import NamedTuple

from threadline.core.errors import NotFound
from threadline.core.ids import new_id
from threadline.core.threads import Point
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.lineage import nearest
from threadline.stores.sqlite.session import Session

_SQL = load_queries(__package__, "queries/heads.sql")


class Head(NamedTuple):
    thread_no: int
    owner_id: str
    message_count: int
    is_untitled: bool
    timeline_no: int
    timeline_id: str
    ancestors: bytes


def find_head(s: Session, thread_id: str) -> Head:
    row = s.row(_SQL["find_head"], (s.tenant_id, thread_id, s.user_id, s.sees_all))
    if row is None:
        raise NotFound("thread", thread_id)
    return Head._make(row)


def head_on(s: Session, thread_id: str, timeline_id: str | None) -> Head:
    """The head, or where it would be if the thread stood on another timeline of its own. NotFound."""
    head = find_head(s, thread_id)
    if timeline_id is None or timeline_id == head.timeline_id:
        return head
    row = s.row(_SQL["find_timeline"], (head.thread_no, timeline_id))
    if row is None:
        raise NotFound("timeline", timeline_id)
    number, id, ancestors = row
    return head._replace(
        timeline_no=number, timeline_id=id, ancestors=ancestors, message_count=count_of(s, number, ancestors)
    )


def count_of(s: Session, timeline_no: int, ancestors: bytes) -> int:
    """How many messages a timeline's history holds, its ancestors' part included."""
    end = s.row(_SQL["find_end"], (timeline_no,))
    if end is not None:
        return int(end[0]) + 1
    fork = nearest(ancestors)
    return 0 if fork is None else fork.seq + 1


def add_timeline(
    s: Session, thread_no: int, parent: Point | None, ancestors: bytes, owner_id: str | None = None
) -> tuple[int, str]:
    """The new timeline's number and id. The thread's row may follow in the same transaction."""
    fork = nearest(ancestors)
    timeline_id = new_id()
    parent_id, parent_seq = parent or (None, None)
    s.run(
        _SQL["add_timeline"],
        (
            s.tenant_id,
            owner_id or s.user_id,
            timeline_id,
            thread_no,
            s.now_us(),
            parent_id,
            parent_seq,
            *(fork or (None, None)),
            ancestors,
        ),
    )
    return s.last_number(), timeline_id
