"""Agents and users of a tenant, and the links from users of platforms to them.

Under row security an application's transaction sees the rows of one owner. Statements that concern the whole tenant (an
administrator's list of users, the context snapshots of a deleted agent) run as the worker role.

Bindings of places to threads, and context snapshots of users.

A place has one binding in a tenant. Row security hides a binding of another owner, but the primary key still conflicts:
the insert then does nothing, and the binding is a duplicate.
"""

from __future__ import annotations

import datetime as dt

from threadline.core.access import TokenRole
from threadline.core.channels import Agent, Binding, ContextSnapshot, Link, LinkState, Sender, User
from threadline.core.errors import DuplicateId, NotFound
from threadline.core.ids import check_id, check_user_id
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/places.sql")


class PeopleOperations(Operations):
    @in_transaction
    async def put_agent(self, agent: Agent) -> Agent:
        settings = rows.json_bytes(agent.settings, "settings")
        await self.session.ensure_user(self.session.owner_id)
        row = await self.session.row(
            _SQL["put_agent"],
            check_id("agent", agent.id),
            agent.name,
            agent.provider,
            agent.model,
            settings,
            agent.system_prompt,
            agent.enabled,
        )
        assert row is not None
        return rows.agent(row)

    async def agent(self, agent_id: str) -> Agent | None:
        found = await self.session.read_for_all(_SQL["find_agent"], agent_id)
        return rows.agent(found[0]) if found else None

    @in_transaction
    async def agents(self) -> list[Agent]:
        return [rows.agent(row) for row in await self.session.rows(_SQL["list_agents"])]

    @in_transaction
    async def delete_agent(self, agent_id: str) -> bool:
        # The snapshots belong to other users, which row security hides from an administrator's own role.
        async with self.session.as_worker():
            await self.session.run(_SQL["unpin_agent"], agent_id)
        return await self.session.run(_SQL["delete_agent"], agent_id) > 0

    @in_transaction
    async def put_user(self, user: User) -> User:
        check_user_id(user.id)
        if user.id != self.session.owner_id:
            self.session.scope.require("admin")
        async with self.session.as_worker():
            await self.session.ensure_user(user.id)
            row = await self.session.row(_SQL["put_user"], user.id, user.display_name, user.role)
        assert row is not None
        return rows.user(row)

    async def user(self, user_id: str) -> User | None:
        if self.session.scope.role == "system":
            # One round trip: every request with a JWT, and every request on behalf of a user, reads its user.
            found = await self.session.call(_SQL["find_any_user"], user_id, reads=True)
            return rows.user(found[0]) if found else None
        return await self._visible_user(user_id)

    @in_transaction
    async def _visible_user(self, user_id: str) -> User | None:
        if not self._sees_users():
            row = await self.session.row(_SQL["find_user"], user_id)
        else:
            async with self.session.as_worker():
                row = await self.session.row(_SQL["find_user"], user_id)
        return None if row is None else rows.user(row)

    @in_transaction
    async def users(self, *, after_id: str | None = None, limit: int | None = None) -> list[User]:
        if not self._sees_users():
            found = await self.session.rows(_SQL["list_users"], after_id, limit)
        else:
            async with self.session.as_worker():
                found = await self.session.rows(_SQL["list_users"], after_id, limit)
        return [rows.user(row) for row in found]

    @in_transaction
    async def disable_user(self, user_id: str) -> User | None:
        self.session.scope.require("admin")
        now = self.session.now()
        async with self.session.as_worker():
            row = await self.session.row(_SQL["disable_user"], user_id, now)
            if row is None:
                return None
            await self.session.run(_SQL["revoke_tokens"], user_id, now)
            await self.session.run(_SQL["revoke_sign_ins"], user_id, now)
            await self.session.run(_SQL["revoke_links"], user_id, now)
            await self.session.run(_SQL["remove_codes"], user_id)
            for stopped in await self.session.rows(_SQL["stop_turns"], user_id, self.session.given_time()):
                self.session.notify(stopped["thread_id"])
        return rows.user(row)

    @in_transaction
    async def enable_user(self, user_id: str) -> User | None:
        self.session.scope.require("admin")
        async with self.session.as_worker():
            row = await self.session.row(_SQL["enable_user"], user_id)
        return None if row is None else rows.user(row)

    @in_transaction
    async def limit_tokens(self, user_id: str, role: TokenRole) -> int:
        self.session.scope.require("admin")
        async with self.session.as_worker():
            limited = await self.session.run(_SQL["limit_tokens"], user_id, role)
            return limited + await self.session.run(_SQL["limit_sign_ins"], user_id, role)

    def _sees_users(self) -> bool:
        return self.session.scope.role in ("admin", "system")

    @in_transaction
    async def put_link(self, platform: Surface, platform_user_id: str, owner_id: str, state: LinkState) -> Link:
        if owner_id != self.session.owner_id:
            self.session.scope.require("system")
        await self.session.ensure_user(owner_id)
        values = (platform, platform_user_id, owner_id, state, self.session.now())
        # Two statements, because an upsert would report another owner's link as a violation of row security.
        row = await self.session.row(_SQL["change_link"], *values) or await self.session.row(_SQL["add_link"], *values)
        if row is None:
            raise DuplicateId("link", platform_user_id)
        return rows.link(row)

    @in_transaction
    async def link(self, platform: Surface, platform_user_id: str) -> Link | None:
        row = await self.session.row(_SQL["find_link"], platform, platform_user_id)
        return None if row is None else rows.link(row)

    async def sender(self, platform: Surface, platform_user_id: str) -> Sender | None:
        self.session.scope.require("system")
        found = await self.session.call(_SQL["find_sender"], platform, platform_user_id, reads=True)
        return Sender._make(found[0]) if found else None

    @in_transaction
    async def links(self) -> list[Link]:
        return [rows.link(row) for row in await self.session.rows(_SQL["list_links"], self.session.owner_filter)]

    @in_transaction
    async def delete_link(self, platform: Surface, platform_user_id: str) -> bool:
        return await self.session.run(_SQL["delete_link"], platform, platform_user_id) > 0

    @in_transaction
    async def put_link_code(self, code_hash: bytes, platform: Surface | None, expires_at: dt.datetime) -> None:
        await self.session.ensure_user(self.session.owner_id)
        added = await self.session.run(_SQL["add_code"], code_hash, self.session.owner_id, platform, expires_at)
        if not added:
            raise DuplicateId("link code", "given")

    @in_transaction
    async def redeem_link_code(self, code_hash: bytes, platform: Surface, now: dt.datetime) -> str | None:
        self.session.scope.require("system")
        row = await self.session.row(_SQL["use_code"], code_hash, platform, now)
        return None if row is None else str(row["owner_id"])


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
    async def contexts(self) -> list[ContextSnapshot]:
        found = await self.session.rows(_SQL["list_contexts"], self.session.owner_id)
        return [rows.context_snapshot(row) for row in found]

    @in_transaction
    async def clear_context(self, agent_id: str) -> bool:
        return await self.session.run(_SQL["clear_context"], self.session.owner_id, agent_id) > 0
