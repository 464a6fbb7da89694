"""Sealed credentials of a tenant's platforms. Only the house sees them, and nothing here can open one."""

from __future__ import annotations

from threadline.core.channels import SealedCredentials
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Verbs
from threadline.stores.sqlite.session import Session

_SQL = load_queries(__package__, "queries/credentials.sql")


class CredentialVerbs(Verbs):
    async def put_credentials(self, platform: Surface, key_id: str, sealed: bytes) -> SealedCredentials:
        return await self._engine.write(put_credentials, platform, key_id, sealed)

    async def credentials(self, platform: Surface) -> SealedCredentials | None:
        return await self._engine.read(find_credentials, platform)

    async def all_credentials(self) -> list[SealedCredentials]:
        return await self._engine.read(list_credentials)

    async def delete_credentials(self, platform: Surface) -> bool:
        return await self._engine.write(delete_credentials, platform)


def put_credentials(s: Session, platform: Surface, key_id: str, sealed: bytes) -> SealedCredentials:
    s.scope.require("system")
    s.introduce()
    s.run(_SQL["put_credentials"], (s.tenant_id, platform, key_id, sealed, s.now_us()))
    stored = find_credentials(s, platform)
    assert stored is not None
    return stored


def find_credentials(s: Session, platform: Surface) -> SealedCredentials | None:
    s.scope.require("system")
    row = s.row(_SQL["find_credentials"], (s.tenant_id, platform))
    return None if row is None else rows.credentials(row)


def list_credentials(s: Session) -> list[SealedCredentials]:
    s.scope.require("system")
    return [rows.credentials(row) for row in s.rows(_SQL["list_credentials"], (s.tenant_id,))]


def delete_credentials(s: Session, platform: Surface) -> bool:
    s.scope.require("system")
    return s.run(_SQL["delete_credentials"], (s.tenant_id, platform)) > 0
