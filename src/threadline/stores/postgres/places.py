"""Places bound to threads, and the context snapshots a user pinned.

A place has one binding in a tenant. Whether another owner has it already is not in sight here: the insert finds out,
and does nothing.
"""

from __future__ import annotations

from threadline.core.channels import Binding, ContextSnapshot
from threadline.core.errors import DuplicateId, NotFound
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.postgres.session import Reach, within
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/places.sql")


class PlaceVerbs:
    reach: Reach

    @within
    async def bind(
        self,
        surface: Surface,
        place: str,
        thread_id: str,
        *,
        label: str | None = None,
        metadata: CleanJson | None = None,
    ) -> Binding:
        thread = await self.reach.row(_SQL["find_owner_of_thread"], thread_id)
        if thread is None:
            raise NotFound("thread", thread_id)
        values = (surface, place, thread["owner_id"], thread_id, label, metadata, self.reach.now())
        bound = await self.reach.row(_SQL["rebind"], *values) or await self.reach.row(_SQL["bind"], *values)
        if bound is None:
            raise DuplicateId("binding", f"{surface} {place}")
        return rows.binding(bound)

    @within
    async def binding(self, surface: Surface, place: str) -> Binding | None:
        row = await self.reach.row(_SQL["find_binding"], surface, place)
        return None if row is None else rows.binding(row)

    @within
    async def bindings(self, *, surface: Surface | None = None, thread_id: str | None = None) -> list[Binding]:
        owner_id = self.reach.owner_in_sight
        found = await self.reach.rows(_SQL["list_bindings"], owner_id, surface, thread_id)
        return [rows.binding(row) for row in found]

    @within
    async def unbind(self, surface: Surface, place: str) -> bool:
        return await self.reach.run(_SQL["unbind"], surface, place) > 0

    @within
    async def set_context(self, agent_id: str, context: CleanText) -> ContextSnapshot:
        await self.reach.introduce(self.reach.owner_id)
        row = await self.reach.row(_SQL["set_context"], self.reach.owner_id, agent_id, context, self.reach.now())
        assert row is not None
        return rows.context_snapshot(row)

    async def context(self, agent_id: str) -> ContextSnapshot | None:
        found = await self.reach.call(_SQL["find_context"], agent_id, reads=True)
        return rows.context_snapshot(found[0]) if found else None

    @within
    async def clear_context(self, agent_id: str) -> bool:
        return await self.reach.run(_SQL["clear_context"], self.reach.owner_id, agent_id) > 0
