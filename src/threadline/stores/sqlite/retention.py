"""Legal holds, threads that retention removes, and the check that purges make first."""

from __future__ import annotations

import datetime as dt

from threadline.core.errors import DuplicateId, UnderLegalHold
from threadline.core.ids import check_id, check_user_id
from threadline.core.messages import to_us
from threadline.core.retention import LegalHold, OverdueThread
from threadline.core.sealing import CleanText
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/retention.sql")


class RetentionOperations(Operations):
    async def add_hold(
        self,
        hold_id: str,
        reason: CleanText,
        created_by: str,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
    ) -> LegalHold:
        return await self._engine.write(add_hold, hold_id, reason, created_by, user_id, thread_id)

    async def holds(self) -> list[LegalHold]:
        return await self._engine.read(list_holds)

    async def remove_hold(self, hold_id: str) -> bool:
        return await self._engine.write(remove_hold, hold_id)

    async def overdue_threads(
        self,
        *,
        age: dt.datetime | None,
        archived: dt.datetime | None,
        deleted: dt.datetime | None,
        limit: int = 100,
    ) -> list[OverdueThread]:
        return await self._engine.read_large(list_overdue, (age, archived, deleted), limit)

    async def drop_acts(self, *, before: dt.datetime) -> int:
        return await self._engine.write(drop_acts, before)


def add_hold(
    session: ScopedSession,
    hold_id: str,
    reason: CleanText,
    created_by: str,
    user_id: str | None,
    thread_id: str | None,
) -> LegalHold:
    session.scope.require("system")
    session.ensure_tenant()
    now = session.now_us()
    who = check_user_id(created_by)
    if not session.run(
        _SQL["add_hold"], (session.tenant_id, check_id("hold", hold_id), reason, who, now, user_id, thread_id)
    ):
        raise DuplicateId("hold", hold_id)
    return rows.hold.from_fields(hold_id, reason, who, now, user_id, thread_id)


def list_holds(session: ScopedSession) -> list[LegalHold]:
    session.scope.require("system")
    return session.read_all(rows.hold, _SQL["list_holds"], (session.tenant_id,))


def remove_hold(session: ScopedSession, hold_id: str) -> bool:
    session.scope.require("system")
    return session.run(_SQL["remove_hold"], (session.tenant_id, hold_id)) > 0


def list_overdue(session: ScopedSession, cutoffs: tuple[dt.datetime | None, ...], limit: int) -> list[OverdueThread]:
    session.scope.require("system")
    times = [None if cutoff is None else to_us(cutoff) for cutoff in cutoffs]
    return session.read_all(rows.overdue_thread, _SQL["list_overdue"], (session.tenant_id, *times, limit))


def drop_acts(session: ScopedSession, before: dt.datetime) -> int:
    session.scope.require("system")
    return session.run(_SQL["drop_acts"], (session.tenant_id, to_us(before)))


def refuse_held_thread(session: ScopedSession, number: int) -> None:
    _refuse_if(session, "is_thread_held", "thread", session.tenant_id, number)


def refuse_held_user(session: ScopedSession, user_id: str) -> None:
    _refuse_if(session, "is_user_held", "user", session.tenant_id, user_id)


def refuse_held_tenant(session: ScopedSession) -> None:
    _refuse_if(session, "is_tenant_held", "tenant", session.tenant_id)


def _refuse_if(session: ScopedSession, query: str, what: str, *values: str | int) -> None:
    row = session.row(_SQL[query], values)
    if row is not None and row[0]:
        raise UnderLegalHold(what)
