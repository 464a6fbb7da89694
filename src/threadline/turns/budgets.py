"""The budgets of the settings: what a user, a tenant and an agent may use in a day and in a month.

What was used is read from the store's daily counts, so all processes share it. A turn is counted when it ends: turns
that run at the same time can together exceed a budget by what they use.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from threadline.core.errors import quote
from threadline.core.threads import system_scope
from threadline.core.usage import NANOS, Budget, UsageQuery
from threadline.ports import Clock, Spending, SpendingRefusal, Store


class BudgetRules(NamedTuple):
    """`agents` are for single agents; `agent` is for each of the others."""

    user: Budget
    tenant: Budget
    agent: Budget
    agents: Mapping[str, Budget]

    def _all(self) -> tuple[Budget, ...]:
        return (self.user, self.tenant, self.agent, *self.agents.values())

    @property
    def is_unlimited(self) -> bool:
        return all(budget.is_unlimited for budget in self._all())

    @property
    def limits_cost(self) -> bool:
        return any((budget.cost_per_day, budget.cost_per_month) != (None, None) for budget in self._all())


class _Limit(NamedTuple):
    """One number of a budget: from which day on it counts, and until when."""

    most: float
    unit: str
    period: str
    first_day: dt.date
    resets_on: dt.date


class _Used(NamedTuple):
    tokens: int
    cost_nanos: int


class Budgets:
    """An `Admission`."""

    def __init__(self, store: Store, clock: Clock, rules: BudgetRules, currency: str) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules
        self._currency = currency

    async def check(self, spending: Spending) -> SpendingRefusal | None:
        agent_id = spending.charge.agent_id
        agent = self._rules.agents.get(agent_id, self._rules.agent)
        for kind, whose, budget, user, of_agent in (
            ("user", "your budget", self._rules.user, spending.user_id, None),
            ("agent", f"the budget of agent {quote(agent_id)}", agent, None, agent_id),
            ("tenant", f"the budget of tenant {quote(spending.tenant_id)}", self._rules.tenant, None, None),
        ):
            if budget.is_unlimited:
                continue
            found = await self._exceeded(budget, spending, user, of_agent)
            if found is not None:
                return SpendingRefusal(self._reason(whose, found), kind, _midnight(found.resets_on))
        return None

    async def record(self, spending: Spending) -> None:
        """Nothing to do: the store has counted it."""

    async def _exceeded(
        self, budget: Budget, spending: Spending, user_id: str | None, agent_id: str | None
    ) -> _Limit | None:
        today = self._clock.now().astimezone(dt.UTC).date()
        limits = list(_limits(budget, today))
        query = UsageQuery(
            by=("day",),
            first_day=min(limit.first_day for limit in limits),
            last_day=today,
            user_id=user_id,
            agent_id=agent_id,
        )
        rows = await self._store.scoped(system_scope(spending.tenant_id)).usage(query)
        charge = spending.charge
        running = _Used(charge.usage.input_tokens + charge.usage.output_tokens, charge.cost_nanos or 0)
        for limit in limits:
            counted = [row for row in rows if row.day is not None and row.day >= limit.first_day]
            used: float
            if limit.unit == "tokens":
                used = running.tokens + sum(row.input_tokens + row.output_tokens for row in counted)
            else:
                used = running.cost_nanos / NANOS + sum(row.cost or 0.0 for row in counted)
            if used >= limit.most:
                return limit
        return None

    def _reason(self, whose: str, limit: _Limit) -> str:
        most = f"{limit.most:,.0f} tokens" if limit.unit == "tokens" else f"{limit.most:,.2f} {self._currency}"
        return f"{whose} of {most} a {limit.period} is used up: it renews on {limit.resets_on} at 00:00 UTC"


def _limits(budget: Budget, today: dt.date) -> Iterator[_Limit]:
    month = today.replace(day=1)
    next_month = (month + dt.timedelta(days=31)).replace(day=1)
    periods = (("day", today, today + dt.timedelta(days=1)), ("month", month, next_month))
    for unit in ("tokens", "cost"):
        for period, first_day, resets_on in periods:
            most = getattr(budget, f"{unit}_per_{period}")
            if most is not None:
                yield _Limit(most, unit, period, first_day, resets_on)


def _midnight(day: dt.date) -> dt.datetime:
    return dt.datetime.combine(day, dt.time(), dt.UTC)
