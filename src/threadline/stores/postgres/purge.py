"""Removal for good, and counting what there is.

Rows and index entries are gone when the transaction commits; the pages they stood on keep their bytes until VACUUM,
which PostgreSQL runs by itself, has been there.
"""

from __future__ import annotations

from threadline.stores.postgres.session import ScopedSession, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/purge.sql")


class PurgeOperations:
    session: ScopedSession

    @in_transaction
    async def purge_thread(self, thread_id: str) -> bool:
        if not await self._count("purge_thread", thread_id):
            return False
        self.session.touch(thread_id)
        return True

    @in_transaction
    async def purge_user(self, user_id: str) -> int:
        if user_id != self.session.owner_id:
            self.session.scope.require("system")
        return await self._count("purge_owner", user_id)

    @in_transaction
    async def purge_tenant(self) -> int:
        self.session.scope.require("system")
        return await self._count("purge_tenant")

    @in_transaction
    async def row_counts(self) -> dict[str, int]:
        return {row["tablename"]: row["counted"] for row in await self.session.rows(_SQL["count_rows"])}

    async def _count(self, query: str, *values: str) -> int:
        row = await self.session.row(_SQL[query], *values)
        return 0 if row is None else int(row[0])
