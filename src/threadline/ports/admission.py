"""Admission: whether a turn may call a model. The budgets of the settings, or a host application's own billing."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple, Protocol

import msgspec

from threadline.core.turns import Surface
from threadline.core.usage import Charge


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that wants to call a model, or has called it. Before a request is stored its turn has no id. `charge` has
    what the turn has used so far: nothing, before its agent is called."""

    tenant_id: str
    user_id: str
    surface: Surface
    charge: Charge
    turn_id: str | None = None


class SpendingRefusal(NamedTuple):
    """`reason` is for the user: lower case, without a full stop. `budget` says whose limit it is: `user`, `tenant`,
    `agent`, or a word of the host application. `resets_at` is when asking again may help, if that is known."""

    reason: str
    budget: str = "user"
    resets_at: dt.datetime | None = None


class Admission(Protocol):
    """`threadline.open(admission=…)` takes one. Both calls are awaited by the turn: they should be quick. An exception
    fails the turn."""

    async def check(self, spending: Spending) -> SpendingRefusal | None:
        """None if the turn may call a model. Called before a request is stored: a refusal means that nothing is. Called
        again before the agent is called, because a turn may have waited; and while it runs, after each report of usage:
        a refusal then ends the turn before its next call of a model, and what was shown is kept."""
        ...

    async def record(self, spending: Spending) -> None:
        """A turn has ended, and its usage is stored. At most once for each turn; not called if the process dies just
        then, so an account that must be exact is reconciled with the listed usage."""
        ...
