"""Context snapshots: a text a user pins for an agent, which goes first into every prompt for it.

Because it becomes a system message on every later turn, it passes the guard and the masker before it is stored.
"""

from __future__ import annotations

from threadline.core.channels import ContextSnapshot
from threadline.core.errors import GuardRefused, NotFound
from threadline.core.ids import check_id, check_text
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope
from threadline.ports import Guard, Store


class Contexts:
    def __init__(self, store: Store, sealer: Sealer, guard: Guard | None, scope: Scope) -> None:
        self._scope = scope
        self._sealer = sealer.for_tenant(scope.tenant_id)
        self._guard = guard
        self._tx = store.scoped(scope)

    async def set(self, agent_id: str, context: str) -> ContextSnapshot:
        """Overwrites what was pinned. InvalidText if blank; GuardRefused; nothing is stored then."""
        self._scope.require("member")
        check_text("context", context)
        clean = self._sealer.text(context, "context")
        if self._guard is not None and (reason := await self._guard.check(context, self._scope)):
            raise GuardRefused(reason)
        return await self._tx.set_context(check_id("agent", agent_id), clean)

    async def get(self, agent_id: str) -> ContextSnapshot:
        """NotFound if nothing is pinned."""
        found = await self._tx.context(check_id("agent", agent_id))
        if found is None:
            raise NotFound("context for agent", agent_id)
        return found

    async def clear(self, agent_id: str) -> bool:
        """False if nothing was pinned."""
        self._scope.require("member")
        return await self._tx.clear_context(check_id("agent", agent_id))
