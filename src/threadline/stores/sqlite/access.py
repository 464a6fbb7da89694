"""API tokens, what is left of rate limits, and the record of administrative acts."""

from __future__ import annotations

import datetime as dt

from threadline.core.access import Act, ApiToken, NewToken
from threadline.core.errors import DuplicateId
from threadline.core.ids import check_id, check_user_id, new_id
from threadline.core.messages import to_us
from threadline.core.sealing import CleanJson
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Verbs
from threadline.stores.sqlite.session import Reach

_SQL = load_queries(__package__, "queries/access.sql")


class AccessVerbs(Verbs):
    async def create_token(self, new: NewToken) -> ApiToken:
        return await self._engine.write(create_token, new)

    async def tokens(self) -> list[ApiToken]:
        return await self._engine.read(list_tokens)

    async def token_by_hash(self, token_hash: bytes) -> ApiToken | None:
        return await self._engine.read(find_token, token_hash)

    async def revoke_token(self, token_id: str) -> bool:
        return await self._engine.write(revoke_token, token_id)

    async def note_use(self, token_id: str, used_at: dt.datetime) -> None:
        await self._engine.write(note_use, token_id, used_at)

    async def take_permits(self, key: str, *, window: dt.datetime, wanted: int, limit: int) -> int:
        return await self._engine.write(take_permits, key, window, wanted, limit)

    async def drop_permits(self, *, before: dt.datetime) -> int:
        return await self._engine.write(drop_permits, before)

    async def record_act(
        self, act: str, target: str, details: CleanJson | None = None, *, actor_id: str | None = None
    ) -> Act:
        return await self._engine.write(record_act, act, target, details, actor_id)

    async def acts(self, *, limit: int = 50, before: str | None = None) -> list[Act]:
        return await self._engine.read(list_acts, limit, before)


def create_token(reach: Reach, new: NewToken) -> ApiToken:
    reach.scope.require("admin")
    check_id("token", new.id)
    reach.introduce(check_user_id(new.owner_id))
    values = (
        new.id,
        new.owner_id,
        new.token_hash,
        new.name,
        new.role,
        reach.now_us(),
        rows.microseconds(new.expires_at),
        new.acts_for_users,
    )
    if not reach.run(_SQL["add_token"], (reach.tenant_id, *values)):
        raise DuplicateId("token", new.id)
    row = reach.row(_SQL["find_token"], (reach.tenant_id, new.token_hash))
    assert row is not None
    return rows.api_token(row)


def list_tokens(reach: Reach) -> list[ApiToken]:
    reach.scope.require("admin")
    return [rows.api_token(row) for row in reach.rows(_SQL["list_tokens"], (reach.tenant_id,))]


def find_token(reach: Reach, token_hash: bytes) -> ApiToken | None:
    reach.scope.require("system")
    row = reach.row(_SQL["find_token"], (reach.tenant_id, token_hash))
    return None if row is None else rows.api_token(row)


def revoke_token(reach: Reach, token_id: str) -> bool:
    reach.scope.require("admin")
    return reach.run(_SQL["revoke_token"], (reach.now_us(), reach.tenant_id, token_id)) > 0


def note_use(reach: Reach, token_id: str, used_at: dt.datetime) -> None:
    reach.scope.require("system")
    reach.run(_SQL["note_use"], (to_us(used_at), reach.tenant_id, token_id))


def take_permits(reach: Reach, key: str, window: dt.datetime, wanted: int, limit: int) -> int:
    reach.scope.require("system")
    row = reach.row(_SQL["find_permits"], (reach.tenant_id, key))
    current, taken = to_us(window), 0
    if row is not None and row[0] >= current:
        current, taken = row
    given: int = max(0, min(wanted, limit - taken))
    if given:
        reach.run(_SQL["put_permits"], (reach.tenant_id, key, current, taken + given))
    return given


def drop_permits(reach: Reach, before: dt.datetime) -> int:
    reach.scope.require("system")
    return reach.run(_SQL["drop_permits"], (reach.tenant_id, to_us(before)))


def record_act(reach: Reach, act: str, target: str, details: CleanJson | None, actor_id: str | None) -> Act:
    actor = reach.user_id if actor_id is None else check_user_id(actor_id)
    if actor != reach.user_id:
        reach.scope.require("system")
    values = (new_id(), actor, check_id("act", act), check_user_id(target), details, reach.now_us())
    reach.introduce_tenant()
    reach.run(_SQL["add_act"], (reach.tenant_id, *values))
    return rows.act(values)


def list_acts(reach: Reach, limit: int, before: str | None) -> list[Act]:
    reach.scope.require("admin")
    return [rows.act(row) for row in reach.rows(_SQL["list_acts"], (reach.tenant_id, before, limit))]
