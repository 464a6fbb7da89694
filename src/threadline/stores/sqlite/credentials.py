"""Sealed credentials of a tenant's platforms. Only the house sees them, and nothing here can open one."""

from __future__ import annotations

from threadline.core.channels import SealedCredentials
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/credentials.sql")


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
    session.introduce()
    session.run(_SQL["put_credentials"], (session.tenant_id, platform, key_id, sealed, session.now_us()))
    stored = find_credentials(session, platform)
    assert stored is not None
    return stored


def find_credentials(session: ScopedSession, platform: Surface) -> SealedCredentials | None:
    session.scope.require("system")
    row = session.row(_SQL["find_credentials"], (session.tenant_id, platform))
    return None if row is None else rows.credentials(row)


def list_credentials(session: ScopedSession) -> list[SealedCredentials]:
    session.scope.require("system")
    return [rows.credentials(row) for row in session.rows(_SQL["list_credentials"], (session.tenant_id,))]


def delete_credentials(session: ScopedSession, platform: Surface) -> bool:
    session.scope.require("system")
    return session.run(_SQL["delete_credentials"], (session.tenant_id, platform)) > 0
