"""Summaries of histories. A summary is stored at its last message, so that every history that contains this message
shares it.
"""

from __future__ import annotations

import msgspec

from threadline.core.errors import Conflict, no_such_seq
from threadline.core.sealing import CleanText
from threadline.core.turns import SUMMARY_CHANGED, Summary, SummaryLabel, SummarySource
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.lineage import Head, bound, find_head, holder, segments
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/turns.sql")


class SummaryOperations(Operations):
    async def put_summary(
        self,
        thread_id: str,
        seq: int,
        text: CleanText,
        *,
        source: SummarySource = "extract",
        model: str | None = None,
        timeline_id: str | None = None,
        earlier: Summary | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Summary:
        label = SummaryLabel(source, model)
        return await self._engine.write(put_summary, thread_id, seq, text, label, timeline_id, earlier)

    async def summary(self, thread_id: str) -> Summary | None:
        return await self._engine.read(find_summary, thread_id)

    async def claim_compaction(self, thread_id: str, *, seconds: float) -> bool:
        return await self._engine.write(claim_compaction, thread_id, seconds)

    async def release_compaction(self, thread_id: str) -> None:
        await self._engine.write(release_compaction, thread_id)


def put_summary(
    session: ScopedSession,
    thread_id: str,
    seq: int,
    text: CleanText,
    label: SummaryLabel,
    timeline_id: str | None,
    earlier: Summary | msgspec.UnsetType | None,
) -> Summary:
    head = find_head(session, thread_id)
    if not 0 <= seq < head.message_count:
        if timeline_id is not None:
            raise Conflict(SUMMARY_CHANGED)
        raise no_such_seq(thread_id, seq)
    if earlier is not msgspec.UNSET and _newest_summary(session, head, head.message_count - 1) != earlier:
        raise Conflict(SUMMARY_CHANGED)
    standing = holder(head.timeline_no, seq, head.ancestors)
    session.run(_SQL["put_summary"], (standing, seq, text, session.now_us(), *label))
    stored = _newest_summary(session, head, seq)
    assert stored is not None
    if timeline_id not in (None, stored.point.timeline_id):
        # The thread has moved: `seq` is another message now. Raising undoes the write.
        raise Conflict(SUMMARY_CHANGED)
    return stored


def claim_compaction(session: ScopedSession, thread_id: str, seconds: float) -> bool:
    thread_no = find_head(session, thread_id).thread_no
    values = (thread_no, False, session.now_us(), round(seconds * 1_000_000))
    return session.run(_SQL["claim_compaction"], values) > 0


def release_compaction(session: ScopedSession, thread_id: str) -> None:
    session.run(_SQL["claim_compaction"], (find_head(session, thread_id).thread_no, True, session.now_us(), 0))


def find_summary(session: ScopedSession, thread_id: str) -> Summary | None:
    with session.snapshot():
        head = find_head(session, thread_id)
        return _newest_summary(session, head, head.message_count - 1)


def _newest_summary(session: ScopedSession, head: Head, last: int) -> Summary | None:
    wanted = segments(head.timeline_no, last, head.ancestors)
    return session.read(rows.summary, _SQL["find_summary"], (bound(wanted),)) if wanted else None
