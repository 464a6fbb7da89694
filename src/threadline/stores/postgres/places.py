"""Bindings of places to threads, and context snapshots of users.

A place has one binding in a tenant. Row security hides a binding of another owner, but the primary key still conflicts:
the insert then does nothing, and the binding is a duplicate.
"""

from __future__ import annotations

from threadline.core.channels import Binding, ContextSnapshot
from threadline.core.errors import DuplicateId, NotFound
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/places.sql")


class PlaceOperations(Operations):
    @in_transaction
    async def bind(
        self,
        surface: Surface,
        place: str,
        thread_id: str,
        *,
        label: str | None = None,
        metadata: CleanJson | None = None,
    ) -> Binding:
        thread = await self.session.row(_SQL["find_owner_of_thread"], thread_id)
        if thread is None:
            raise NotFound("thread", thread_id)
        values = (surface, place, thread["owner_id"], thread_id, label, metadata, self.session.now())
        bound = await self.session.row(_SQL["rebind"], *values) or await self.session.row(_SQL["bind"], *values)
        if bound is None:
            raise DuplicateId("binding", f"{surface} {place}")
        return rows.binding(bound)

    @in_transaction
    async def binding(self, surface: Surface, place: str) -> Binding | None:
        row = await self.session.row(_SQL["find_binding"], surface, place)
        return None if row is None else rows.binding(row)

    @in_transaction
    async def bindings(self, *, surface: Surface | None = None, thread_id: str | None = None) -> list[Binding]:
        owner_id = self.session.owner_filter
        found = await self.session.rows(_SQL["list_bindings"], owner_id, surface, thread_id)
        return [rows.binding(row) for row in found]

    @in_transaction
    async def unbind(self, surface: Surface, place: str) -> bool:
        return await self.session.run(_SQL["unbind"], surface, place) > 0

    @in_transaction
    async def set_context(self, agent_id: str, context: CleanText) -> ContextSnapshot:
        await self.session.ensure_user(self.session.owner_id)
        row = await self.session.row(_SQL["set_context"], self.session.owner_id, agent_id, context, self.session.now())
        assert row is not None
        return rows.context_snapshot(row)

    async def context(self, agent_id: str) -> ContextSnapshot | None:
        found = await self.session.call(_SQL["find_context"], agent_id, reads=True)
        return rows.context_snapshot(found[0]) if found else None

    @in_transaction
    async def clear_context(self, agent_id: str) -> bool:
        return await self.session.run(_SQL["clear_context"], self.session.owner_id, agent_id) > 0
