"""Agents and users of a tenant, and which platform's user is which user here."""

from __future__ import annotations

import datetime as dt

from threadline.core.channels import Agent, Link, LinkState, Sender, User
from threadline.core.errors import DuplicateId
from threadline.core.ids import check_id, check_user_id
from threadline.core.messages import to_us
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Verbs
from threadline.stores.sqlite.session import Reach

_SQL = load_queries(__package__, "queries/people.sql")


class PeopleVerbs(Verbs):
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

    async def users(self) -> list[User]:
        return await self._engine.read(list_users)

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


def put_agent(reach: Reach, agent: Agent) -> Agent:
    check_id("agent", agent.id)
    settings = rows.json_bytes(agent.settings, "settings")
    reach.introduce()
    reach.run(
        _SQL["put_agent"],
        (
            reach.tenant_id,
            agent.id,
            agent.name,
            agent.provider,
            agent.model,
            settings,
            agent.system_prompt,
            agent.enabled,
        ),
    )
    stored = find_agent(reach, agent.id)
    assert stored is not None
    return stored


def find_agent(reach: Reach, agent_id: str) -> Agent | None:
    row = reach.row(_SQL["find_agent"], (reach.tenant_id, agent_id))
    return None if row is None else rows.agent(row)


def list_agents(reach: Reach) -> list[Agent]:
    return [rows.agent(row) for row in reach.rows(_SQL["list_agents"], (reach.tenant_id,))]


def delete_agent(reach: Reach, agent_id: str) -> bool:
    reach.run(_SQL["unpin_agent"], (reach.tenant_id, agent_id))
    return reach.run(_SQL["delete_agent"], (reach.tenant_id, agent_id)) > 0


def _sees_users(reach: Reach) -> bool:
    return reach.scope.role in ("admin", "system")


def put_user(reach: Reach, user: User) -> User:
    check_user_id(user.id)
    if user.id != reach.user_id:
        reach.scope.require("admin")
    reach.introduce(user.id)
    reach.run(_SQL["put_user"], (user.display_name, user.role, reach.tenant_id, user.id))
    return user


def find_user(reach: Reach, user_id: str) -> User | None:
    if user_id != reach.user_id and not _sees_users(reach):
        return None
    row = reach.row(_SQL["find_user"], (reach.tenant_id, user_id))
    return None if row is None else rows.user(row)


def list_users(reach: Reach) -> list[User]:
    return [
        rows.user(row) for row in reach.rows(_SQL["list_users"], (reach.tenant_id, reach.user_id, _sees_users(reach)))
    ]


def put_link(reach: Reach, platform: Surface, platform_user_id: str, owner_id: str, state: LinkState) -> Link:
    if owner_id != reach.user_id:
        reach.scope.require("system")
    who = (reach.tenant_id, platform, platform_user_id)
    taken = reach.row(_SQL["find_link"], (*who, "", True))
    if taken is not None and taken[2] != owner_id and not reach.sees_all:
        raise DuplicateId("link", platform_user_id)
    reach.introduce(owner_id)
    now = reach.now_us()
    reach.run(_SQL["put_link"], (*who, owner_id, state, now, now))
    row = reach.row(_SQL["find_link"], (*who, owner_id, False))
    assert row is not None
    return rows.link(row)


def find_link(reach: Reach, platform: Surface, platform_user_id: str) -> Link | None:
    row = reach.row(_SQL["find_link"], (reach.tenant_id, platform, platform_user_id, reach.user_id, reach.sees_all))
    return None if row is None else rows.link(row)


def find_sender(reach: Reach, platform: Surface, platform_user_id: str) -> Sender | None:
    reach.scope.require("system")
    row = reach.row(_SQL["find_sender"], (reach.tenant_id, platform, platform_user_id))
    return None if row is None else Sender._make(row)


def list_links(reach: Reach) -> list[Link]:
    return [rows.link(row) for row in reach.rows(_SQL["list_links"], (reach.tenant_id, reach.user_id, reach.sees_all))]


def delete_link(reach: Reach, platform: Surface, platform_user_id: str) -> bool:
    return (
        reach.run(_SQL["delete_link"], (reach.tenant_id, platform, platform_user_id, reach.user_id, reach.sees_all)) > 0
    )


def put_link_code(reach: Reach, code_hash: bytes, platform: Surface | None, expires_at: dt.datetime) -> None:
    if reach.row(_SQL["find_code"], (reach.tenant_id, code_hash)):
        raise DuplicateId("link code", "given")
    reach.introduce()
    reach.run(_SQL["add_code"], (reach.tenant_id, code_hash, reach.user_id, platform, to_us(expires_at)))


def redeem_link_code(reach: Reach, code_hash: bytes, platform: Surface, now: dt.datetime) -> str | None:
    reach.scope.require("system")
    row = reach.row(_SQL["find_code"], (reach.tenant_id, code_hash))
    if row is None:
        return None
    owner_id, for_platform, expires_us = row
    if for_platform not in (None, platform) or expires_us <= to_us(now):
        return None
    reach.run(_SQL["use_code"], (reach.tenant_id, code_hash))
    return str(owner_id)
