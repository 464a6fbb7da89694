"""Places and pins: which thread goes on in which room or chat, and what a user pinned for an agent."""

from __future__ import annotations

from threadline.core.channels import Binding, ContextSnapshot
from threadline.core.errors import DuplicateId
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Verbs
from threadline.stores.sqlite.heads import find_head
from threadline.stores.sqlite.session import Reach

_SQL = load_queries(__package__, "queries/places.sql")


class PlaceVerbs(Verbs):
    async def bind(
        self,
        surface: Surface,
        place: str,
        thread_id: str,
        *,
        label: str | None = None,
        metadata: CleanJson | None = None,
    ) -> Binding:
        return await self._engine.write(bind, surface, place, thread_id, label, metadata)

    async def binding(self, surface: Surface, place: str) -> Binding | None:
        return await self._engine.read(find_binding, surface, place)

    async def bindings(self, *, surface: Surface | None = None, thread_id: str | None = None) -> list[Binding]:
        return await self._engine.read(list_bindings, surface, thread_id)

    async def unbind(self, surface: Surface, place: str) -> bool:
        return await self._engine.write(unbind, surface, place)

    async def set_context(self, agent_id: str, context: CleanText) -> ContextSnapshot:
        return await self._engine.write(set_context, agent_id, context)

    async def context(self, agent_id: str) -> ContextSnapshot | None:
        return await self._engine.read(find_context, agent_id)

    async def clear_context(self, agent_id: str) -> bool:
        return await self._engine.write(clear_context, agent_id)


def bind(
    reach: Reach, surface: Surface, place: str, thread_id: str, label: str | None, metadata: CleanJson | None
) -> Binding:
    head = find_head(reach, thread_id)
    now = reach.now_us()
    known = reach.row(_SQL["find_place"], (reach.tenant_id, surface, place))
    kept_label, kept_metadata, created_us = (None, None, now) if known is None else known[1:]
    if known is not None and known[0] != head.owner_id:
        raise DuplicateId("place", place)
    reach.run(
        _SQL["bind"],
        (
            reach.tenant_id,
            surface,
            place,
            head.owner_id,
            head.thread_no,
            kept_label if label is None else label,
            kept_metadata if metadata is None else metadata,
            created_us,
            now,
        ),
    )
    bound = find_binding(reach, surface, place)
    assert bound is not None
    return bound


def find_binding(reach: Reach, surface: Surface, place: str) -> Binding | None:
    row = reach.row(_SQL["find_binding"], (reach.tenant_id, surface, place, reach.user_id, reach.sees_all))
    return None if row is None else rows.binding(row)


def is_bound(reach: Reach, surface: Surface, place: str) -> bool:
    """Whoever has bound it."""
    return reach.row(_SQL["find_place"], (reach.tenant_id, surface, place)) is not None


def list_bindings(reach: Reach, surface: Surface | None, thread_id: str | None) -> list[Binding]:
    wanted = (reach.tenant_id, reach.user_id, reach.sees_all, surface, thread_id)
    return [rows.binding(row) for row in reach.rows(_SQL["list_bindings"], wanted)]


def unbind(reach: Reach, surface: Surface, place: str) -> bool:
    return reach.run(_SQL["unbind"], (reach.tenant_id, surface, place, reach.user_id, reach.sees_all)) > 0


def set_context(reach: Reach, agent_id: str, context: CleanText) -> ContextSnapshot:
    reach.introduce()
    now = reach.now_us()
    reach.run(_SQL["set_context"], (reach.tenant_id, reach.user_id, agent_id, context, now, now))
    pinned = find_context(reach, agent_id)
    assert pinned is not None
    return pinned


def find_context(reach: Reach, agent_id: str) -> ContextSnapshot | None:
    row = reach.row(_SQL["find_context"], (reach.tenant_id, reach.user_id, agent_id))
    return None if row is None else rows.context_snapshot(row)


def clear_context(reach: Reach, agent_id: str) -> bool:
    return reach.run(_SQL["clear_context"], (reach.tenant_id, reach.user_id, agent_id)) > 0
