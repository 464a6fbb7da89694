"""Sealed credentials of a tenant's platforms. Only the internals sees them, and nothing here can open one."""

from __future__ import annotations

from threadline.core.channels import SealedCredentials
from threadline.core.turns import Surface
from threadline.stores import rows
from threadline.stores.postgres.session import ScopedSession, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/credentials.sql")


class CredentialOperations:
    session: ScopedSession

    @in_transaction
    async def put_credentials(self, platform: Surface, key_id: str, sealed: bytes) -> SealedCredentials:
        self.session.scope.require("system")
        await self.session.introduce(self.session.owner_id)
        row = await self.session.row(_SQL["put_credentials"], platform, key_id, sealed, self.session.now())
        assert row is not None
        return rows.credentials(row)

    async def credentials(self, platform: Surface) -> SealedCredentials | None:
        self.session.scope.require("system")
        found = await self.session.call(_SQL["find_credentials"], platform, reads=True)
        return rows.credentials(found[0]) if found else None

    @in_transaction
    async def all_credentials(self) -> list[SealedCredentials]:
        self.session.scope.require("system")
        return [rows.credentials(row) for row in await self.session.rows(_SQL["list_credentials"])]

    @in_transaction
    async def delete_credentials(self, platform: Surface) -> bool:
        self.session.scope.require("system")
        return await self.session.run(_SQL["delete_credentials"], platform) > 0
