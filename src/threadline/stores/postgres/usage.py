"""Counts of what was used, by day, user, agent, provider, model and kind.

Under row security an administrator's role sees the rows of one owner, so the sums of a tenant run as the worker role.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import msgspec

from threadline.core.usage import USAGE_GROUPS, Charge, UsageQuery, UsageRow, day_number
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, ScopedSession, transact
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/usage.sql")


class UsageOperations(Operations):
    async def count_usage(self, charge: Charge) -> None:
        session = self.session
        record = usage_record(charge, day_number(session.now().date()))
        await session.call(_SQL["count_usage"], session.now_us(), msgspec.json.encode(record).decode())

    async def usage(self, query: UsageQuery) -> list[UsageRow]:
        role = self.session.scope.role
        is_own = role not in ("admin", "system")
        if is_own and query.user_id not in (None, self.session.owner_id):
            return []
        user_id = self.session.owner_id if is_own else query.user_id
        values = (day_number(query.first_day), day_number(query.last_day), user_id, query.agent_id)
        groups = tuple(name in query.by for name in USAGE_GROUPS)
        if role == "admin":
            found = await self._sum_tenant(*values, *groups)
        else:
            found = await self.session.call(_SQL["read_usage"], *values, *groups, reads=True, is_large=True)
        return [rows.usage(row) for row in found]

    async def _sum_tenant(self, *values: Any) -> list[asyncpg.Record]:
        async def read(session: ScopedSession) -> list[asyncpg.Record]:
            async with session.as_worker():
                return await session.rows(_SQL["sum_usage"], *values)

        if self.session.is_in_transaction:
            return await read(self.session)
        return await transact(self.session.internals, self.session.scope, read, is_large_read=True)


def usage_record(charge: Charge, day: int | None) -> dict[str, Any]:
    """The fields of the type threadline.turn_completion that are about usage."""
    return {
        "provider": charge.provider,
        "model": charge.model,
        "used_agent_id": charge.agent_id,
        "day": day,
        "input_tokens": charge.usage.input_tokens,
        "output_tokens": charge.usage.output_tokens,
        "cached_tokens": charge.usage.cached_tokens,
        "reasoning_tokens": charge.usage.reasoning_tokens,
        "cost_nanos": charge.cost_nanos,
        "kind": charge.kind,
        "turns": charge.turns,
    }
