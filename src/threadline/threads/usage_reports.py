"""What was used: read from the store's daily counts, by an administrator for the tenant, by a user for themselves."""

from __future__ import annotations

import datetime as dt
from typing import Unpack

from threadline.core.checks import check_choice
from threadline.core.errors import InvalidInput
from threadline.core.ids import check_id, check_user_id
from threadline.core.threads import Scope
from threadline.core.usage import USAGE_GROUPS, UsageFilter, UsageQuery, UsageRow
from threadline.ports import Clock, Store

MAX_DAYS = 366
"""Of one report. It bounds the rows that one request reads."""


class UsageReports:
    def __init__(self, store: Store, clock: Clock, scope: Scope) -> None:
        self._store = store
        self._clock = clock
        self._scope = scope

    async def read(self, **given: Unpack[UsageFilter]) -> list[UsageRow]:
        """See `Gateway.usage`."""
        query = self._query(given)
        if query.user_id not in (None, self._scope.user_id):
            self._scope.require("admin")
        return await self._store.scoped(self._scope).usage(query)

    def _query(self, given: UsageFilter) -> UsageQuery:
        today = self._clock.now().astimezone(dt.UTC).date()
        until = given.get("until") or today
        since = given.get("since") or until.replace(day=1)
        for name, day in (("since", since), ("until", until)):
            if type(day) is not dt.date:
                raise InvalidInput(f"`{name}` must be a date, got {type(day).__name__}")
        if not 0 <= (until - since).days < MAX_DAYS:
            raise InvalidInput(f"`since` must be 0–{MAX_DAYS - 1} days before `until`, got {since} and {until}")
        by = tuple(given.get("by") or ())
        for group in by:
            check_choice("by", group, USAGE_GROUPS)
        user, agent = given.get("user"), given.get("agent")
        return UsageQuery(
            by=by,
            first_day=since,
            last_day=until,
            user_id=None if user is None else check_user_id(user),
            agent_id=None if agent is None else check_id("agent", agent),
        )
