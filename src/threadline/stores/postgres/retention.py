"""Legal holds, threads that retention removes, and the check that purges make first."""

from __future__ import annotations

import datetime as dt

from threadline.core.errors import DuplicateId, UnderLegalHold
from threadline.core.ids import check_id, check_user_id
from threadline.core.retention import LegalHold, OverdueThread
from threadline.core.sealing import CleanText
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, ScopedSession, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/retention.sql")


class RetentionOperations(Operations):
    @in_transaction
    async def add_hold(
        self,
        hold_id: str,
        reason: CleanText,
        created_by: str,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
    ) -> LegalHold:
        self.session.scope.require("system")
        await self.session.ensure_user(self.session.owner_id)
        values = (check_id("hold", hold_id), reason, check_user_id(created_by), self.session.now(), user_id, thread_id)
        if not await self.session.run(_SQL["add_hold"], *values):
            raise DuplicateId("hold", hold_id)
        return rows.hold.from_fields(*values)

    @in_transaction
    async def holds(self) -> list[LegalHold]:
        self.session.scope.require("system")
        return [rows.hold(row) for row in await self.session.rows(_SQL["list_holds"])]

    @in_transaction
    async def remove_hold(self, hold_id: str) -> bool:
        self.session.scope.require("system")
        return await self.session.run(_SQL["remove_hold"], hold_id) > 0

    @in_transaction
    async def overdue_threads(
        self,
        *,
        age: dt.datetime | None,
        archived: dt.datetime | None,
        deleted: dt.datetime | None,
        limit: int = 100,
    ) -> list[OverdueThread]:
        self.session.scope.require("system")
        await self.session.allow_long_statements()
        found = await self.session.rows(_SQL["list_overdue"], age, archived, deleted, limit)
        return [rows.overdue_thread(row) for row in found]

    @in_transaction
    async def drop_acts(self, *, before: dt.datetime) -> int:
        self.session.scope.require("system")
        return await self.session.run(_SQL["drop_acts"], before)


async def refuse_held(session: ScopedSession, what: str, *values: str) -> None:
    """UnderLegalHold for a `thread`, a `user` or the `tenant` that must not be purged. As the worker: no user sees
    holds."""
    async with session.as_worker():
        row = await session.row(_SQL[f"is_{what}_held"], *values)
    if row is not None:
        raise UnderLegalHold(what)
