"""Store operations for exports and imports of whole threads, beside those for threads, timelines and messages.

An import creates the thread with `create_thread`, its timelines with `move`, its messages with `append`, each with the
time it has in the source, and then dates the thread. `threads.history_import.HistoryImporter` does all of it in one
transaction, once for each origin: importers call that and nothing here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

from threadline.core.history import PastTurn, ThreadDates
from threadline.core.sealing import CleanText
from threadline.core.threads import SavedPoint
from threadline.core.turns import Summary, SummarySource, Turn


class HistoryOperations(Protocol):
    async def past_turns(self, thread_id: str, *, after: str | None = None, limit: int = 500) -> list[Turn]:
        """The turns of a thread, deleted or not, oldest first: those after the turn `after`. [] if there is no such
        thread."""
        ...

    async def summaries(self, thread_id: str) -> list[Summary]:
        """Every summary on a timeline of the thread, deleted or not, in order of timeline and seq."""
        ...

    async def points_in(self, thread_id: str) -> list[SavedPoint]:
        """The owner's saved points on timelines of this thread, deleted or not, by name."""
        ...

    async def add_turns(self, thread_id: str, turns: Sequence[PastTurn]) -> list[str]:
        """Adds turns that ended elsewhere, in this order, as they are: nothing is counted, sent or run. A turn that the
        thread has is not changed. Returns the ids of those that were not stored, because another thread of the tenant
        has a turn with this id. NotFound; InvalidInput for a turn that has not ended."""
        ...

    async def add_saved_point(
        self, thread_id: str, name: str, seq: int, *, timeline_id: str, created_at: dt.datetime
    ) -> bool:
        """Saves a point of one of the thread's timelines. False, and nothing changes, if the owner has a point of this
        name. NotFound; InvalidInput if the timeline has no such seq."""
        ...

    async def add_summary(
        self,
        thread_id: str,
        seq: int,
        text: CleanText,
        *,
        timeline_id: str,
        created_at: dt.datetime,
        source: SummarySource = "extract",
        model: str | None = None,
    ) -> bool:
        """Stores a summary of the history up to and including `seq` of one of the thread's timelines. False, and
        nothing changes, if there is one for that point. NotFound; InvalidInput if the timeline has no such seq."""
        ...

    async def date_thread(self, thread_id: str, dates: ThreadDates) -> None:
        """Sets the times of the thread and its token count to those of the source: the last step of an import. NotFound
        if there is no such thread, or it is deleted."""
        ...
