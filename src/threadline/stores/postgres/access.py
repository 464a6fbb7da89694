"""API tokens, what is left of rate limits, and the record of administrative acts.

An administrator's own transaction sees one owner; what concerns the whole tenant is done as the worker, for as long as
that statement takes.
"""

from __future__ import annotations

import datetime as dt

from threadline.core.access import Act, ApiToken, NewToken
from threadline.core.errors import DuplicateId
from threadline.core.ids import check_id, check_user_id, new_id
from threadline.core.messages import to_us
from threadline.core.sealing import CleanJson
from threadline.stores import rows
from threadline.stores.postgres.session import Reach, within
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/access.sql")


class AccessVerbs:
    reach: Reach

    @within
    async def create_token(self, new: NewToken) -> ApiToken:
        self.reach.scope.require("admin")
        check_id("token", new.id)
        values = (
            new.id,
            new.owner_id,
            new.token_hash,
            new.name,
            new.role,
            self.reach.now(),
            new.expires_at,
            new.acts_for_users,
        )
        async with self.reach.as_worker():
            await self.reach.introduce(check_user_id(new.owner_id))
            row = await self.reach.row(_SQL["add_token"], *values)
        if row is None:
            raise DuplicateId("token", new.id)
        return rows.api_token(row)

    @within
    async def tokens(self) -> list[ApiToken]:
        self.reach.scope.require("admin")
        async with self.reach.as_worker():
            return [rows.api_token(row) for row in await self.reach.rows(_SQL["list_tokens"])]

    async def token_by_hash(self, token_hash: bytes) -> ApiToken | None:
        self.reach.scope.require("system")
        found = await self.reach.call(_SQL["find_token"], token_hash, reads=True)
        return rows.api_token(found[0]) if found else None

    @within
    async def revoke_token(self, token_id: str) -> bool:
        self.reach.scope.require("admin")
        async with self.reach.as_worker():
            return await self.reach.run(_SQL["revoke_token"], token_id, self.reach.now()) > 0

    @within
    async def note_use(self, token_id: str, used_at: dt.datetime) -> None:
        self.reach.scope.require("system")
        await self.reach.run(_SQL["note_use"], token_id, used_at)

    async def take_permits(self, key: str, *, window: dt.datetime, wanted: int, limit: int) -> int:
        self.reach.scope.require("system")
        ((given,),) = await self.reach.call(_SQL["take_permits"], key, to_us(window), wanted, limit)
        return int(given)

    @within
    async def drop_permits(self, *, before: dt.datetime) -> int:
        self.reach.scope.require("system")
        return await self.reach.run(_SQL["drop_permits"], before)

    @within
    async def record_act(
        self, act: str, target: str, details: CleanJson | None = None, *, actor_id: str | None = None
    ) -> Act:
        actor = self.reach.owner_id if actor_id is None else check_user_id(actor_id)
        if actor != self.reach.owner_id:
            self.reach.scope.require("system")
        now = self.reach.now()
        values = (new_id(), actor, check_id("act", act), check_user_id(target), details, now)
        await self.reach.run(_SQL["add_tenant"], now)
        await self.reach.run(_SQL["add_act"], *values)
        return rows.act(values)

    @within
    async def acts(self, *, limit: int = 50, before: str | None = None) -> list[Act]:
        self.reach.scope.require("admin")
        async with self.reach.as_worker():
            return [rows.act(row) for row in await self.reach.rows(_SQL["list_acts"], before, limit)]
