"""Counts of what was used, by day, user, agent, provider, model and kind."""

from __future__ import annotations

from threadline.core.usage import USAGE_GROUPS, Charge, UsageQuery, UsageRow, day_number
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/usage.sql")
_DAY_US = 86_400_000_000


class UsageOperations(Operations):
    async def count_usage(self, charge: Charge) -> None:
        await self._engine.write(count_usage, charge)

    async def usage(self, query: UsageQuery) -> list[UsageRow]:
        if query.user_id is None and self._engine.scope.role in ("admin", "system"):
            # A large tenant has tens of thousands of rows in a month: they must not occupy the event loop.
            return await self._engine.read_large(list_usage, query)
        return await self._engine.read(list_usage, query)


def count_usage(session: ScopedSession, charge: Charge) -> None:
    session.ensure_owner()
    add_usage(session, session.user_id, charge)


def add_usage(session: ScopedSession, owner_id: str, charge: Charge) -> None:
    """Adds what this user used to the count of the present day."""
    used = charge.usage
    session.run(
        _SQL["add_usage"],
        (
            session.tenant_id,
            owner_id,
            session.now_us() // _DAY_US,
            charge.agent_id,
            charge.provider or "",
            charge.model or "",
            charge.turns,
            used.input_tokens,
            used.output_tokens,
            used.cached_tokens,
            used.reasoning_tokens,
            charge.cost_nanos,
            charge.kind,
        ),
    )


def list_usage(session: ScopedSession, query: UsageQuery) -> list[UsageRow]:
    is_own = session.scope.role not in ("admin", "system")
    if is_own and query.user_id not in (None, session.user_id):
        return []
    user_id = session.user_id if is_own else query.user_id
    which = (session.tenant_id, day_number(query.first_day), day_number(query.last_day), user_id, query.agent_id)
    groups = tuple(name in query.by for name in USAGE_GROUPS)
    statement = _SQL["sum_tenant_usage" if user_id is None else "sum_user_usage"]
    return session.read_all(rows.usage, statement, (*which, *groups))
