"""Store operations for retention and legal holds. System scope only (RoleRefused)."""

from __future__ import annotations

import datetime as dt
from typing import Protocol

from threadline.core.retention import LegalHold, OverdueThread
from threadline.core.sealing import CleanText


class RetentionOperations(Protocol):
    async def add_hold(
        self,
        hold_id: str,
        reason: CleanText,
        created_by: str,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
    ) -> LegalHold:
        """While it exists, purges of the thread, of the user or, if neither is named, of anything in the tenant raise
        UnderLegalHold, and so does a purge of the tenant under any hold. DuplicateId if the id exists."""
        ...

    async def holds(self) -> list[LegalHold]:
        """By id, which is by time."""
        ...

    async def remove_hold(self, hold_id: str) -> bool:
        """False if there is none."""
        ...

    async def overdue_threads(
        self,
        *,
        age: dt.datetime | None,
        archived: dt.datetime | None,
        deleted: dt.datetime | None,
        limit: int = 100,
    ) -> list[OverdueThread]:
        """Threads without a hold and without an active turn that were deleted or archived before these times, or had
        their last message before `age`; the longest unchanged first. None is no limit of that kind."""
        ...

    async def drop_acts(self, *, before: dt.datetime) -> int:
        """Removes audit entries from before this time, unless the whole tenant is under a hold; how many."""
        ...
