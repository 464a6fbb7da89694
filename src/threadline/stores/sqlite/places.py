"""Bindings of places to threads, context snapshots, agents, users, and links between platform users and users."""

from __future__ import annotations

import datetime as dt

from threadline.core.access import TokenRole
from threadline.core.channels import Agent, Binding, ContextSnapshot, Link, LinkState, Sender, User
from threadline.core.errors import DuplicateId
from threadline.core.ids import check_id, check_user_id
from threadline.core.messages import to_us
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.lineage import find_head
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

    async def contexts(self) -> list[ContextSnapshot]:
        return await self._engine.read(list_contexts)

    async def clear_context(self, agent_id: str) -> bool:
        return await self._engine.write(clear_context, agent_id)

    async def put_agent(self, agent: Agent) -> Agent:
        return await self._engine.write(put_agent, agent)

    async def agent(self, agent_id: str) -> Agent | None:
        return await self._engine.read(find_agent, agent_id)

    async def agents(self) -> list[Agent]:
        return await self._engine.read(list_agents)

    async def delete_agent(self, agent_id: str) -> bool:
        return await self._engine.write(delete_agent, agent_id)

    async def put_user(self, user: User) -> User:
        return await self._engine.write(put_user, user)

    async def user(self, user_id: str) -> User | None:
        return await self._engine.read(find_user, user_id)

    async def users(self, *, after_id: str | None = None, limit: int | None = None) -> list[User]:
        return await self._engine.read(list_users, after_id, limit)

    async def disable_user(self, user_id: str) -> User | None:
        return await self._engine.write(disable_user, user_id)

    async def enable_user(self, user_id: str) -> User | None:
        return await self._engine.write(enable_user, user_id)

    async def limit_tokens(self, user_id: str, role: TokenRole) -> int:
        return await self._engine.write(limit_tokens, user_id, role)

    async def put_link(self, platform: Surface, platform_user_id: str, owner_id: str, state: LinkState) -> Link:
        return await self._engine.write(put_link, platform, platform_user_id, owner_id, state)

    async def link(self, platform: Surface, platform_user_id: str) -> Link | None:
        return await self._engine.read(find_link, platform, platform_user_id)

    async def sender(self, platform: Surface, platform_user_id: str) -> Sender | None:
        return await self._engine.read(find_sender, platform, platform_user_id)

    async def links(self) -> list[Link]:
        return await self._engine.read(list_links)

    async def delete_link(self, platform: Surface, platform_user_id: str) -> bool:
        return await self._engine.write(delete_link, platform, platform_user_id)

    async def put_link_code(self, code_hash: bytes, platform: Surface | None, expires_at: dt.datetime) -> None:
        await self._engine.write(put_link_code, code_hash, platform, expires_at)

    async def redeem_link_code(self, code_hash: bytes, platform: Surface, now: dt.datetime) -> str | None:
        return await self._engine.write(redeem_link_code, code_hash, platform, now)


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
    return session.read(
        rows.binding, _SQL["find_binding"], (session.tenant_id, surface, place, session.user_id, session.sees_all)
    )


def is_bound(session: ScopedSession, surface: Surface, place: str) -> bool:
    """Whether any owner has bound the place."""
    return session.row(_SQL["find_place"], (session.tenant_id, surface, place)) is not None


def list_bindings(session: ScopedSession, surface: Surface | None, thread_id: str | None) -> list[Binding]:
    wanted = (session.tenant_id, session.user_id, session.sees_all, surface, thread_id)
    return session.read_all(rows.binding, _SQL["list_bindings"], wanted)


def unbind(session: ScopedSession, surface: Surface, place: str) -> bool:
    return session.run(_SQL["unbind"], (session.tenant_id, surface, place, session.user_id, session.sees_all)) > 0


def set_context(session: ScopedSession, agent_id: str, context: CleanText) -> ContextSnapshot:
    session.ensure_owner()
    now = session.now_us()
    session.run(_SQL["set_context"], (session.tenant_id, session.user_id, agent_id, context, now, now))
    pinned = find_context(session, agent_id)
    assert pinned is not None
    return pinned


def find_context(session: ScopedSession, agent_id: str) -> ContextSnapshot | None:
    return session.read(rows.context_snapshot, _SQL["find_context"], (session.tenant_id, session.user_id, agent_id))


def list_contexts(session: ScopedSession) -> list[ContextSnapshot]:
    return session.read_all(rows.context_snapshot, _SQL["list_contexts"], (session.tenant_id, session.user_id))


def clear_context(session: ScopedSession, agent_id: str) -> bool:
    return session.run(_SQL["clear_context"], (session.tenant_id, session.user_id, agent_id)) > 0


def put_agent(session: ScopedSession, agent: Agent) -> Agent:
    check_id("agent", agent.id)
    settings = rows.json_bytes(agent.settings, "settings")
    session.ensure_owner()
    session.run(
        _SQL["put_agent"],
        (
            session.tenant_id,
            agent.id,
            agent.name,
            agent.provider,
            agent.model,
            settings,
            agent.system_prompt,
            agent.enabled,
        ),
    )
    stored = find_agent(session, agent.id)
    assert stored is not None
    return stored


def find_agent(session: ScopedSession, agent_id: str) -> Agent | None:
    return session.read(rows.agent, _SQL["find_agent"], (session.tenant_id, agent_id))


def list_agents(session: ScopedSession) -> list[Agent]:
    return session.read_all(rows.agent, _SQL["list_agents"], (session.tenant_id,))


def delete_agent(session: ScopedSession, agent_id: str) -> bool:
    session.run(_SQL["unpin_agent"], (session.tenant_id, agent_id))
    return session.run(_SQL["delete_agent"], (session.tenant_id, agent_id)) > 0


def _sees_users(session: ScopedSession) -> bool:
    return session.scope.role in ("admin", "system")


def put_user(session: ScopedSession, user: User) -> User:
    check_user_id(user.id)
    if user.id != session.user_id:
        session.scope.require("admin")
    session.ensure_owner(user.id)
    session.run(_SQL["put_user"], (user.display_name, user.role, session.tenant_id, user.id))
    return _known_user(session, user.id)


def _known_user(session: ScopedSession, user_id: str) -> User:
    user = session.read(rows.user, _SQL["find_user"], (session.tenant_id, user_id))
    assert user is not None
    return user


def find_user(session: ScopedSession, user_id: str) -> User | None:
    if user_id != session.user_id and not _sees_users(session):
        return None
    return session.read(rows.user, _SQL["find_user"], (session.tenant_id, user_id))


def list_users(session: ScopedSession, after_id: str | None, limit: int | None) -> list[User]:
    given = (session.tenant_id, session.user_id, _sees_users(session), after_id, limit)
    return session.read_all(rows.user, _SQL["list_users"], given)


def disable_user(session: ScopedSession, user_id: str) -> User | None:
    session.scope.require("admin")
    who = (session.tenant_id, user_id)
    now = session.now_us()
    if not session.run(_SQL["disable_user"], (now, *who)):
        return None
    session.run(_SQL["revoke_tokens"], (now, *who))
    session.run(_SQL["revoke_sign_ins"], (now, *who))
    session.run(_SQL["revoke_links"], (now, *who))
    session.run(_SQL["remove_codes"], who)
    for turn_id, thread_id in session.rows(_SQL["list_active_turns"], who):
        session.touch(turn_id, thread_id)
    session.run(_SQL["stop_turns"], (now, *who))
    return _known_user(session, user_id)


def enable_user(session: ScopedSession, user_id: str) -> User | None:
    session.scope.require("admin")
    if not session.run(_SQL["enable_user"], (session.tenant_id, user_id)):
        return None
    return _known_user(session, user_id)


def limit_tokens(session: ScopedSession, user_id: str, role: TokenRole) -> int:
    session.scope.require("admin")
    values = (role, session.tenant_id, user_id)
    return session.run(_SQL["limit_tokens"], values) + session.run(_SQL["limit_sign_ins"], values)


def put_link(session: ScopedSession, platform: Surface, platform_user_id: str, owner_id: str, state: LinkState) -> Link:
    if owner_id != session.user_id:
        session.scope.require("system")
    who = (session.tenant_id, platform, platform_user_id)
    taken = session.row(_SQL["find_link"], (*who, "", True))
    if taken is not None and taken[2] != owner_id and not session.sees_all:
        raise DuplicateId("link", platform_user_id)
    session.ensure_owner(owner_id)
    now = session.now_us()
    session.run(_SQL["put_link"], (*who, owner_id, state, now, now))
    link = session.read(rows.link, _SQL["find_link"], (*who, owner_id, False))
    assert link is not None
    return link


def find_link(session: ScopedSession, platform: Surface, platform_user_id: str) -> Link | None:
    return session.read(
        rows.link, _SQL["find_link"], (session.tenant_id, platform, platform_user_id, session.user_id, session.sees_all)
    )


def find_sender(session: ScopedSession, platform: Surface, platform_user_id: str) -> Sender | None:
    session.scope.require("system")
    row = session.row(_SQL["find_sender"], (session.tenant_id, platform, platform_user_id))
    return None if row is None else Sender._make(row)


def list_links(session: ScopedSession) -> list[Link]:
    return session.read_all(rows.link, _SQL["list_links"], (session.tenant_id, session.user_id, session.sees_all))


def delete_link(session: ScopedSession, platform: Surface, platform_user_id: str) -> bool:
    return (
        session.run(
            _SQL["delete_link"], (session.tenant_id, platform, platform_user_id, session.user_id, session.sees_all)
        )
        > 0
    )


def put_link_code(session: ScopedSession, code_hash: bytes, platform: Surface | None, expires_at: dt.datetime) -> None:
    if session.row(_SQL["find_code"], (session.tenant_id, code_hash)):
        raise DuplicateId("link code", "given")
    session.ensure_owner()
    session.run(_SQL["add_code"], (session.tenant_id, code_hash, session.user_id, platform, to_us(expires_at)))


def redeem_link_code(session: ScopedSession, code_hash: bytes, platform: Surface, now: dt.datetime) -> str | None:
    session.scope.require("system")
    row = session.row(_SQL["find_code"], (session.tenant_id, code_hash))
    if row is None:
        return None
    owner_id, for_platform, expires_us = row
    if for_platform not in (None, platform) or expires_us <= to_us(now):
        return None
    session.run(_SQL["use_code"], (session.tenant_id, code_hash))
    return str(owner_id)
