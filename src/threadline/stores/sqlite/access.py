"""API tokens, rate-limit permits, the audit record, and the encrypted credentials of platforms."""

from __future__ import annotations

import datetime as dt

from threadline.core.access import ApiToken, AuditEntry, NewToken
from threadline.core.channels import SealedCredentials
from threadline.core.errors import DuplicateId
from threadline.core.ids import check_id, check_user_id, new_id
from threadline.core.messages import to_us
from threadline.core.sealing import CleanJson
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/access.sql")


class AccessOperations(Operations):
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
    ) -> AuditEntry:
        return await self._engine.write(record_act, act, target, details, actor_id)

    async def acts(self, *, limit: int = 50, before: str | None = None) -> list[AuditEntry]:
        return await self._engine.read(list_acts, limit, before)


def create_token(session: ScopedSession, new: NewToken) -> ApiToken:
    session.scope.require("admin")
    check_id("token", new.id)
    session.ensure_owner(check_user_id(new.owner_id))
    values = (
        new.id,
        new.owner_id,
        new.token_hash,
        new.name,
        new.role,
        session.now_us(),
        rows.microseconds(new.expires_at),
        new.acts_for_users,
    )
    if not session.run(_SQL["add_token"], (session.tenant_id, *values)):
        raise DuplicateId("token", new.id)
    token = session.read(rows.api_token, _SQL["find_token"], (session.tenant_id, new.token_hash))
    assert token is not None
    return token


def list_tokens(session: ScopedSession) -> list[ApiToken]:
    session.scope.require("admin")
    return session.read_all(rows.api_token, _SQL["list_tokens"], (session.tenant_id,))


def find_token(session: ScopedSession, token_hash: bytes) -> ApiToken | None:
    session.scope.require("system")
    return session.read(rows.api_token, _SQL["find_token"], (session.tenant_id, token_hash))


def revoke_token(session: ScopedSession, token_id: str) -> bool:
    session.scope.require("admin")
    return session.run(_SQL["revoke_token"], (session.now_us(), session.tenant_id, token_id)) > 0


def note_use(session: ScopedSession, token_id: str, used_at: dt.datetime) -> None:
    session.scope.require("system")
    session.run(_SQL["note_use"], (to_us(used_at), session.tenant_id, token_id))


def take_permits(session: ScopedSession, key: str, window: dt.datetime, wanted: int, limit: int) -> int:
    session.scope.require("system")
    row = session.row(_SQL["find_permits"], (session.tenant_id, key))
    current, taken = to_us(window), 0
    if row is not None and row[0] >= current:
        current, taken = row
    given: int = max(0, min(wanted, limit - taken))
    if given:
        session.run(_SQL["put_permits"], (session.tenant_id, key, current, taken + given))
    return given


def drop_permits(session: ScopedSession, before: dt.datetime) -> int:
    session.scope.require("system")
    return session.run(_SQL["drop_permits"], (session.tenant_id, to_us(before)))


def record_act(
    session: ScopedSession, act: str, target: str, details: CleanJson | None, actor_id: str | None
) -> AuditEntry:
    actor = session.user_id if actor_id is None else check_user_id(actor_id)
    if actor != session.user_id:
        session.scope.require("system")
    values = (new_id(), actor, check_id("act", act), check_user_id(target), details, session.now_us())
    session.ensure_tenant()
    session.run(_SQL["add_act"], (session.tenant_id, *values))
    return rows.act.from_fields(*values)


def list_acts(session: ScopedSession, limit: int, before: str | None) -> list[AuditEntry]:
    session.scope.require("admin")
    return session.read_all(rows.act, _SQL["list_acts"], (session.tenant_id, before, limit))


class CredentialOperations(Operations):
    async def put_credentials(self, platform: Surface, key_id: str, sealed: bytes) -> SealedCredentials:
        return await self._engine.write(put_credentials, platform, key_id, sealed)

    async def credentials(self, platform: Surface) -> SealedCredentials | None:
        return await self._engine.read(find_credentials, platform)

    async def all_credentials(self) -> list[SealedCredentials]:
        return await self._engine.read(list_credentials)

    async def delete_credentials(self, platform: Surface) -> bool:
        return await self._engine.write(delete_credentials, platform)


def put_credentials(session: ScopedSession, platform: Surface, key_id: str, sealed: bytes) -> SealedCredentials:
    session.scope.require("system")
    session.ensure_owner()
    session.run(_SQL["put_credentials"], (session.tenant_id, platform, key_id, sealed, session.now_us()))
    stored = find_credentials(session, platform)
    assert stored is not None
    return stored


def find_credentials(session: ScopedSession, platform: Surface) -> SealedCredentials | None:
    session.scope.require("system")
    return session.read(rows.credentials, _SQL["find_credentials"], (session.tenant_id, platform))


def list_credentials(session: ScopedSession) -> list[SealedCredentials]:
    session.scope.require("system")
    return session.read_all(rows.credentials, _SQL["list_credentials"], (session.tenant_id,))


def delete_credentials(session: ScopedSession, platform: Surface) -> bool:
    session.scope.require("system")
    return session.run(_SQL["delete_credentials"], (session.tenant_id, platform)) > 0
