"""Sealed credentials of a tenant's platforms. Only the house sees them, and nothing here can open one."""

from __future__ import annotations

from threadline.core.channels import SealedCredentials
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.postgres.session import Reach, within
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/credentials.sql")


class CredentialVerbs:
    reach: Reach

    @within
    async def put_credentials(self, platform: Surface, key_id: str, sealed: bytes) -> SealedCredentials:
        self.reach.scope.require("system")
        await self.reach.introduce(self.reach.owner_id)
        row = await self.reach.row(_SQL["put_credentials"], platform, key_id, sealed, self.reach.now())
        assert row is not None
        return rows.credentials(row)

    async def credentials(self, platform: Surface) -> SealedCredentials | None:
        self.reach.scope.require("system")
        found = await self.reach.call(_SQL["find_credentials"], platform, reads=True)
        return rows.credentials(found[0]) if found else None

    @within
    async def all_credentials(self) -> list[SealedCredentials]:
        self.reach.scope.require("system")
        return [rows.credentials(row) for row in await self.reach.rows(_SQL["list_credentials"])]

    @within
    async def delete_credentials(self, platform: Surface) -> bool:
        self.reach.scope.require("system")
        return await self.reach.run(_SQL["delete_credentials"], platform) > 0
