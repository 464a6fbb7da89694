"""Which thread shows a message at present: the one it was written in, or one that branched off where it stood.

A search asks for many messages of few threads, so what was found out about a thread is kept for the next. A timeline
that its thread has left shows nothing by itself, but branches go on from it.
"""

from __future__ import annotations

from typing import NamedTuple

from threadline.stores.sql import load_queries
from threadline.stores.sqlite.lineage import holder
from threadline.stores.sqlite.session import Row, ScopedSession

_SQL = load_queries(__package__, "queries/showing.sql")


class _Origin(NamedTuple):
    """What branches go on from: a thread, or a timeline whose thread is gone."""

    timeline_no: int
    thread_no: int | None


class Showing:
    def __init__(self, session: ScopedSession) -> None:
        """For as long as the reach's snapshot lasts."""
        self._session = session
        self._present: dict[int, Row | None] = {}
        self._branches: dict[tuple[str, int], list[Row]] = {}

    def thread_of(self, message_no: int) -> Row | None:
        """Id, state key and title of the thread the message was written in, if that still shows it; otherwise of any
        that does."""
        place = self._session.row(_SQL["find_place"], (message_no, self._session.tenant_id, self._session.user_id))
        if place is None:
            return None
        written_on, seq, thread_no = place
        waiting, seen = [_Origin(written_on, thread_no)], {thread_no}
        while waiting:
            origin = waiting.pop()
            if origin.thread_no is not None:
                present = self._present_of(origin.thread_no)
                if present is not None and holder(present[0], seq, present[1]) == written_on:
                    return present[2:]
            for number, ancestors, branched in self._branches_of(origin):
                if holder(number, seq, ancestors) == written_on and (branched is None or branched not in seen):
                    seen.add(branched)
                    waiting.append(_Origin(number, branched))
        return None

    def _present_of(self, thread_no: int) -> Row | None:
        if thread_no not in self._present:
            whose = (thread_no, self._session.tenant_id, self._session.user_id)
            self._present[thread_no] = self._session.row(_SQL["find_present"], whose)
        return self._present[thread_no]

    def _branches_of(self, origin: _Origin) -> list[Row]:
        timeline_no, thread_no = origin
        kind, number = ("timeline", timeline_no) if thread_no is None else ("thread", thread_no)
        if (kind, number) not in self._branches:
            self._branches[kind, number] = self._session.rows(_SQL[f"list_branches_of_{kind}"], (number,))
        return self._branches[kind, number]
