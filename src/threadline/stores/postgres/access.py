"""API tokens, counters of rate limits, and the audit log.

Under row security an administrator's transaction sees the rows of one owner; statements that concern the whole tenant
run as the worker role.
"""

from __future__ import annotations

import datetime as dt

from threadline.core.access import ApiToken, AuditEntry, NewToken
from threadline.core.errors import DuplicateId
from threadline.core.ids import check_id, check_user_id, new_id
from threadline.core.messages import to_us
from threadline.core.sealing import CleanJson
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/access.sql")


class AccessOperations(Operations):
    @in_transaction
    async def create_token(self, new: NewToken) -> ApiToken:
        self.session.scope.require("admin")
        check_id("token", new.id)
        values = (
            new.id,
            new.owner_id,
            new.token_hash,
            new.name,
            new.role,
            self.session.now(),
            new.expires_at,
            new.acts_for_users,
        )
        async with self.session.as_worker():
            await self.session.ensure_user(check_user_id(new.owner_id))
            row = await self.session.row(_SQL["add_token"], *values)
        if row is None:
            raise DuplicateId("token", new.id)
        return rows.api_token(row)

    @in_transaction
    async def tokens(self) -> list[ApiToken]:
        self.session.scope.require("admin")
        async with self.session.as_worker():
            return [rows.api_token(row) for row in await self.session.rows(_SQL["list_tokens"])]

    async def token_by_hash(self, token_hash: bytes) -> ApiToken | None:
        self.session.scope.require("system")
        found = await self.session.call(_SQL["find_token"], token_hash, reads=True)
        return rows.api_token(found[0]) if found else None

    @in_transaction
    async def revoke_token(self, token_id: str) -> bool:
        self.session.scope.require("admin")
        async with self.session.as_worker():
            return await self.session.run(_SQL["revoke_token"], token_id, self.session.now()) > 0

    @in_transaction
    async def note_use(self, token_id: str, used_at: dt.datetime) -> None:
        self.session.scope.require("system")
        await self.session.run(_SQL["note_use"], token_id, used_at)

    async def take_permits(self, key: str, *, window: dt.datetime, wanted: int, limit: int) -> int:
        self.session.scope.require("system")
        ((given,),) = await self.session.call(_SQL["take_permits"], key, to_us(window), wanted, limit)
        return int(given)

    @in_transaction
    async def drop_permits(self, *, before: dt.datetime) -> int:
        self.session.scope.require("system")
        return await self.session.run(_SQL["drop_permits"], before)

    @in_transaction
    async def record_act(
        self, act: str, target: str, details: CleanJson | None = None, *, actor_id: str | None = None
    ) -> AuditEntry:
        actor = self.session.owner_id if actor_id is None else check_user_id(actor_id)
        if actor != self.session.owner_id:
            self.session.scope.require("system")
        now = self.session.now()
        values = (new_id(), actor, check_id("act", act), check_user_id(target), details, now)
        await self.session.run(_SQL["add_tenant"], now)
        await self.session.run(_SQL["add_act"], *values)
        return rows.act.from_fields(*values)

    @in_transaction
    async def acts(self, *, limit: int = 50, before: str | None = None) -> list[AuditEntry]:
        self.session.scope.require("admin")
        async with self.session.as_worker():
            return [rows.act(row) for row in await self.session.rows(_SQL["list_acts"], before, limit)]
