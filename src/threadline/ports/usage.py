"""The store's counts of what was used, by day, user, agent, provider, model and kind."""

from __future__ import annotations

from typing import Protocol

from threadline.core.usage import Charge, UsageQuery, UsageRow


class UsageOperations(Protocol):
    async def count_usage(self, charge: Charge) -> None:
        """Adds what was used outside a stored turn to the count of the present day (UTC), for the scope's user. Only
        the kind `turn` is counted as a turn.
        `finish_turn` counts the charge of a turn in its own commit."""
        ...

    async def usage(self, query: UsageQuery) -> list[UsageRow]:
        """One row for each group, ordered by day, user, agent, provider, model and kind; no rows if nothing was used,
        also without groups. Groups by model have the provider as well. Admin and system scopes see the tenant's usage,
        a user sees their own. Removed with its user or tenant, not with a thread."""
        ...
