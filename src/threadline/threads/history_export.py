"""One thread as the lines of an export, with everything that belongs to it.

Timelines are numbered in their order, and every point is named on the timeline that holds its message, so that the same
thread gives the same bytes in every database. What a branch of another thread inherited is written as its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from threadline.core.errors import NotFound
from threadline.core.history import (
    HiddenRecord,
    PastTurn,
    RecordPoint,
    SavedPointRecord,
    SummaryRecord,
    ThreadRecord,
    TimelineRecord,
)
from threadline.core.threads import Point, Thread, Timeline
from threadline.core.transfer import Writer
from threadline.ports import StoreSession

_PAGE = 500
_RECORDED = frozenset(ThreadRecord.__struct_fields__) & frozenset(Thread.__struct_fields__)


async def export_history(session: StoreSession, thread_id: str) -> AsyncIterator[bytes]:
    """The thread, deleted or not, as it was when reading began. NotFound."""
    thread = await session.thread(thread_id, deleted=True)
    if thread is None:
        raise NotFound("thread", thread_id)
    lines = _Lines(await session.timelines(thread_id, deleted=True))
    writer = Writer()
    fields = {name: getattr(thread, name) for name in _RECORDED}
    yield writer.thread(ThreadRecord(**fields, timeline=lines.keys[thread.timeline_id], is_title_suggested=False))
    async for turn in _turns(session, thread_id):
        yield writer.item(turn)
    for timeline in lines.timelines:
        parent = lines.parents[timeline.id]
        yield writer.item(TimelineRecord(lines.keys[timeline.id], parent, timeline.created_at))
        first = 0 if parent is None else parent.seq + 1
        async for line in _messages(session, writer, timeline, first):
            yield line
    for saved in await session.points_in(thread_id):
        if (at := lines.holding(saved.point)) is not None:
            yield writer.item(SavedPointRecord(saved.name, at, saved.created_at))
    for summary in await session.summaries(thread_id):
        if (at := lines.holding(summary.point)) is not None:
            yield writer.item(SummaryRecord(at, summary.text, summary.created_at, summary.source, summary.model))
    yield writer.end()


async def _messages(session: StoreSession, writer: Writer, timeline: Timeline, first: int) -> AsyncIterator[bytes]:
    read = partial(session.messages, timeline.thread_id, timeline_id=timeline.id, deleted=True)
    seq = first
    for start in range(first, timeline.message_count, _PAGE):
        for message in await read(first=start, last=min(start + _PAGE, timeline.message_count) - 1):
            # A seq that is not read is that of a message that was deleted.
            if message.seq > seq:
                yield writer.item(HiddenRecord(message.seq - seq))
            yield writer.message(message)
            seq = message.seq + 1
    if seq < timeline.message_count:
        yield writer.item(HiddenRecord(timeline.message_count - seq))


async def _turns(session: StoreSession, thread_id: str) -> AsyncIterator[PastTurn]:
    """Those that have ended. One that still runs has nothing to show yet, and none of it could be continued."""
    after: str | None = None
    while page := await session.past_turns(thread_id, after=after, limit=_PAGE):
        after = page[-1].id
        for turn in page:
            if not turn.is_active:
                yield PastTurn(**{name: getattr(turn, name) for name in PastTurn.__struct_fields__})


class _Lines:
    """The timelines of a thread by their numbers, and where each begins."""

    def __init__(self, timelines: Sequence[Timeline]) -> None:
        self.timelines = timelines
        self.keys = {timeline.id: str(number) for number, timeline in enumerate(timelines)}
        self.parents: dict[str, RecordPoint | None] = {}
        self._counts = {timeline.id: timeline.message_count for timeline in timelines}
        self._ids = {key: id for id, key in self.keys.items()}
        for timeline in timelines:
            parent = timeline.parent
            self.parents[timeline.id] = (
                None
                if parent is None or parent.timeline_id not in self.parents or parent.seq < 0
                else self.holding(parent)
            )

    def holding(self, point: Point) -> RecordPoint | None:
        """The point on the timeline that holds its message. None for one that came after reading began."""
        id, seq = point
        if not -1 <= seq < self._counts.get(id, -1):
            return None
        while (parent := self.parents[id]) is not None and seq <= parent.seq:
            id = self._ids[parent.timeline]
        return RecordPoint(self.keys[id], seq)
