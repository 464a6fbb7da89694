"""The budgets of the settings: what a user, a tenant and an agent may use in a day and in a month.

What was used is read from the store's daily counts, so all processes share it. A turn is counted when it ends: turns
that run at the same time can together exceed a budget by what they use. Sums over all users of a tenant are read at
most once in two seconds; between two reads the turns of this process are added to them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from threadline.core.errors import SettingsInvalid, quote
from threadline.core.threads import system_scope
from threadline.core.usage import Budget, UsageQuery, as_currency
from threadline.ports import Clock, Spending, SpendingRefusal, Store
from threadline.settings import BudgetSettings, Settings


def open_budgets(store: Store, clock: Clock, settings: Settings) -> Budgets | None:
    """None if nothing is limited. SettingsInvalid for a budget of costs without any prices: it would never be used
    up."""
    rules = settings.budgets
    given = [rules.user, rules.tenant, rules.agent, *rules.agents.values()]
    if all(budget.is_unlimited for budget in given):
        return None
    limits_cost = any((budget.cost_per_day, budget.cost_per_month) != (None, None) for budget in given)
    if limits_cost and not settings.prices:
        raise SettingsInvalid("[budgets] limits costs, and no model has a price: set [prices], or limit tokens")
    return Budgets(store, clock, rules, settings.currency)


class _Limit(NamedTuple):
    """One number of a budget: from which day on it counts, and until when."""

    most: float
    unit: str
    period: str
    first_day: dt.date
    resets_on: dt.date


class _Used(NamedTuple):
    tokens: int = 0
    cost: float = 0.0

    def add(self, other: _Used) -> _Used:
        return _Used(self.tokens + other.tokens, self.cost + other.cost)


_ByDay: TypeAlias = dict[dt.date, _Used]


class _Sums(NamedTuple):
    """What all users of a tenant used since the first of the month, and when that was read."""

    read_at: dt.datetime
    by_day: _ByDay


# A tenant with a thousand users has 30,000 counts in a month: summing them for each of their turns would cost more than
# the turn. Two seconds bound how late another process learns that a budget is used up.
_SUM_SECONDS = 2.0
_MAX_SUMS = 1_000


class Budgets:
    """An `Admission`."""

    def __init__(self, store: Store, clock: Clock, rules: BudgetSettings, currency: str) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules
        self._currency = currency
        self._sums: dict[tuple[str, str | None], _Sums] = {}
        """By tenant and agent; None is for all agents."""

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
        """The store has counted it; the sums that are kept here have not."""
        for agent_id in (None, spending.charge.agent_id):
            if (sums := self._sums.get((spending.tenant_id, agent_id))) is not None:
                today = self._today()
                sums.by_day[today] = sums.by_day.get(today, _Used()).add(_used(spending))

    def _today(self) -> dt.date:
        return self._clock.now().astimezone(dt.UTC).date()

    async def _exceeded(
        self, budget: Budget, spending: Spending, user_id: str | None, agent_id: str | None
    ) -> _Limit | None:
        today = self._today()
        if user_id is None:
            by_day = await self._tenant_sums(spending.tenant_id, agent_id, today)
        else:
            by_day = await self._read(spending.tenant_id, today, user_id, agent_id)
        running = _used(spending)
        for limit in _limits(budget, today):
            used = running
            for day, counted in by_day.items():
                used = used.add(counted) if day >= limit.first_day else used
            if (used.tokens if limit.unit == "tokens" else used.cost) >= limit.most:
                return limit
        return None

    async def _tenant_sums(self, tenant_id: str, agent_id: str | None, today: dt.date) -> _ByDay:
        now, key = self._clock.now(), (tenant_id, agent_id)
        known = self._sums.get(key)
        if known is not None and 0 <= (now - known.read_at).total_seconds() < _SUM_SECONDS:
            return known.by_day
        if len(self._sums) >= _MAX_SUMS:
            self._sums.clear()
        by_day = await self._read(tenant_id, today, None, agent_id)
        self._sums[key] = _Sums(now, by_day)
        return by_day

    async def _read(self, tenant_id: str, today: dt.date, user_id: str | None, agent_id: str | None) -> _ByDay:
        month = today.replace(day=1)
        query = UsageQuery(by=("day",), first_day=month, last_day=today, user_id=user_id, agent_id=agent_id)
        rows = await self._store.scoped(system_scope(tenant_id)).usage(query)
        return {row.day: _Used(row.input_tokens + row.output_tokens, row.cost or 0.0) for row in rows if row.day}

    def _reason(self, whose: str, limit: _Limit) -> str:
        most = f"{limit.most:,.0f} tokens" if limit.unit == "tokens" else f"{limit.most:,.2f} {self._currency}"
        return f"{whose} of {most} a {limit.period} is used up: it renews on {limit.resets_on} at 00:00 UTC"


def _used(spending: Spending) -> _Used:
    usage = spending.charge.usage
    return _Used(usage.input_tokens + usage.output_tokens, as_currency(spending.charge.cost_nanos or 0))


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
