"""Places and pins: which thread goes on in which room or chat, and what a user pinned for an agent."""

from __future__ import annotations

from threadline.core.channels import Binding, ContextSnapshot
from threadline.core.errors import DuplicateId
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.heads import find_head
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/places.sql")


class PlaceOperations(Operations):
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
    session: ScopedSession, surface: Surface, place: str, thread_id: str, label: str | None, metadata: CleanJson | None
) -> Binding:
    head = find_head(session, thread_id)
    now = session.now_us()
    known = session.row(_SQL["find_place"], (session.tenant_id, surface, place))
    kept_label, kept_metadata, created_us = (None, None, now) if known is None else known[1:]
    if known is not None and known[0] != head.owner_id:
        raise DuplicateId("place", place)
    session.run(
        _SQL["bind"],
        (
            session.tenant_id,
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
    bound = find_binding(session, surface, place)
    assert bound is not None
    return bound


def find_binding(session: ScopedSession, surface: Surface, place: str) -> Binding | None:
    row = session.row(_SQL["find_binding"], (session.tenant_id, surface, place, session.user_id, session.sees_all))
    return None if row is None else rows.binding(row)


def is_bound(session: ScopedSession, surface: Surface, place: str) -> bool:
    """Whoever has bound it."""
    return session.row(_SQL["find_place"], (session.tenant_id, surface, place)) is not None


def list_bindings(session: ScopedSession, surface: Surface | None, thread_id: str | None) -> list[Binding]:
    wanted = (session.tenant_id, session.user_id, session.sees_all, surface, thread_id)
    return [rows.binding(row) for row in session.rows(_SQL["list_bindings"], wanted)]


def unbind(session: ScopedSession, surface: Surface, place: str) -> bool:
    return session.run(_SQL["unbind"], (session.tenant_id, surface, place, session.user_id, session.sees_all)) > 0


def set_context(session: ScopedSession, agent_id: str, context: CleanText) -> ContextSnapshot:
    session.introduce()
    now = session.now_us()
    session.run(_SQL["set_context"], (session.tenant_id, session.user_id, agent_id, context, now, now))
    pinned = find_context(session, agent_id)
    assert pinned is not None
    return pinned


def find_context(session: ScopedSession, agent_id: str) -> ContextSnapshot | None:
    row = session.row(_SQL["find_context"], (session.tenant_id, session.user_id, agent_id))
    return None if row is None else rows.context_snapshot(row)


def clear_context(session: ScopedSession, agent_id: str) -> bool:
    return session.run(_SQL["clear_context"], (session.tenant_id, session.user_id, agent_id)) > 0
