"""Sealed credentials of a tenant's platforms. Only the house sees them, and nothing here can open one."""

from __future__ import annotations

from threadline.core.channels import SealedCredentials
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Verbs
from threadline.stores.sqlite.session import Reach

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


def put_credentials(reach: Reach, platform: Surface, key_id: str, sealed: bytes) -> SealedCredentials:
    reach.scope.require("system")
    reach.introduce()
    reach.run(_SQL["put_credentials"], (reach.tenant_id, platform, key_id, sealed, reach.now_us()))
    stored = find_credentials(reach, platform)
    assert stored is not None
    return stored


def find_credentials(reach: Reach, platform: Surface) -> SealedCredentials | None:
    reach.scope.require("system")
    row = reach.row(_SQL["find_credentials"], (reach.tenant_id, platform))
    return None if row is None else rows.credentials(row)


def list_credentials(reach: Reach) -> list[SealedCredentials]:
    reach.scope.require("system")
    return [rows.credentials(row) for row in reach.rows(_SQL["list_credentials"], (reach.tenant_id,))]


def delete_credentials(reach: Reach, platform: Surface) -> bool:
    reach.scope.require("system")
    return reach.run(_SQL["delete_credentials"], (reach.tenant_id, platform)) > 0
