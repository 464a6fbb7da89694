"""Usage: what turns used, what it costs, and how much of it a budget allows.

Tokens are counted per day (UTC), user, agent, provider, model and kind, when a turn ends or a model has written a
summary or a title. Costs are integers, in billionths
of the operator's currency, so that sums are exact; they are computed with the prices of the moment.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

from threadline.core.events import Usage
from threadline.core.plain_values import PlainValue

UsageGroup: TypeAlias = Literal["day", "user", "agent", "model", "kind"]
USAGE_GROUPS: tuple[UsageGroup, ...] = ("day", "user", "agent", "model", "kind")
UsageKind: TypeAlias = Literal["turn", "summary", "title"]
"""What tokens were used for."""
MAX_TOKENS = 400_000_000
"""Of one turn, in each count. More is a fault of the agent and is cut off, so that stores can hold every sum."""
NANOS = 1_000_000_000
NO_BUDGET = "no budget left: "
"""How the error of a turn begins that a budget ended while it ran; the reason follows."""
_EPOCH = dt.date(1970, 1, 1)


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model costs, for a million tokens. Without `cached`, cached input costs as much as other input."""

    input: float
    output: float
    cached: float | None = None

    def cost_nanos(self, usage: Usage) -> int:
        cached = min(usage.cached_tokens, usage.input_tokens)
        cached_price = self.input if self.cached is None else self.cached
        per_million = (usage.input_tokens - cached) * self.input + cached * cached_price
        # A price per million tokens is a price per token in millionths.
        return round((per_million + usage.output_tokens * self.output) * (NANOS // 1_000_000))


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most that may be used in a day or a calendar month (UTC). None is no limit. Tokens are input and output."""

    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    cost_per_day: float | None = None
    cost_per_month: float | None = None

    @property
    def is_unlimited(self) -> bool:
        return self == Budget()


class Charge(msgspec.Struct, frozen=True):
    """What a turn used, and who answered. Counted on the day when the turn ends."""

    agent_id: str
    provider: str | None = None
    model: str | None = None
    usage: Usage = Usage()
    cost_nanos: int | None = None
    kind: UsageKind = "turn"

    @property
    def turns(self) -> int:
        return int(self.kind == "turn")

    def stored_usage(self) -> dict[str, Any]:
        """What the turn's row holds."""
        stored: dict[str, Any] = {name: getattr(self.usage, name) for name in Usage.__struct_fields__}
        return stored if self.cost_nanos is None else {**stored, "cost": as_currency(self.cost_nanos)}


class UsageRow(PlainValue, frozen=True, kw_only=True):
    """What was used by one group. Fields that it was not grouped by are None. `cost` is None if none
    of the turns had a price; turns without a price add nothing to it."""

    day: dt.date | None = None
    user_id: str | None = None
    agent_id: str | None = None
    provider: str | None = None
    model: str | None = None
    kind: UsageKind | None = None
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None


class UsageFilter(TypedDict, total=False):
    """Keyword arguments of a list of usage. `by` is in any order; the days default to the present month."""

    by: Sequence[UsageGroup]
    since: dt.date | None
    until: dt.date | None
    user: str | None
    agent: str | None


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which days, both inclusive, of which user and agent, and how to group them."""

    by: tuple[UsageGroup, ...] = ()
    first_day: dt.date
    last_day: dt.date
    user_id: str | None = None
    agent_id: str | None = None


def as_currency(cost_nanos: int) -> float:
    return cost_nanos / NANOS


def bound_usage(usage: Usage) -> Usage:
    """The usage with each number between 0 and MAX_TOKENS."""
    bounded = [min(max(getattr(usage, name), 0), MAX_TOKENS) for name in Usage.__struct_fields__]
    return Usage(*bounded)


def find_price(prices: Mapping[str, Price], provider: str | None, model: str | None) -> Price | None:
    """A price can be set for a model of one provider (`openai/gpt-5`) or of any (`gpt-5`)."""
    if model is None:
        return None
    return prices.get(f"{provider}/{model}") or prices.get(model)


def day_number(day: dt.date) -> int:
    """Days since 1970-01-01, as stores count them."""
    return (day - _EPOCH).days


def day_of(number: int) -> dt.date:
    return _EPOCH + dt.timedelta(days=number)
