"""People: who may talk to the bot, and which user of the tenant someone on Matrix is.

A Matrix id is linked like any platform's user, by a code that they got where they are known already. Where the settings
say so, someone without a link becomes a user of their own.
"""

from __future__ import annotations

from typing import NamedTuple

from threadline.core.threads import Scope, system_scope
from threadline.ports import Store
from threadline.settings import MatrixSettings


class Person(NamedTuple):
    """Someone on Matrix, and what they may reach here."""

    matrix_id: str
    scope: Scope


class People:
    def __init__(self, store: Store, tenant_id: str, settings: MatrixSettings) -> None:
        self._store = store
        self._tenant_id = tenant_id
        self._settings = settings
        self._house = store.scoped(system_scope(tenant_id))

    def may_talk(self, matrix_id: str) -> bool:
        server = server_of(matrix_id)
        servers = self._settings.servers
        if matrix_id in self._settings.users or "*" in servers or server in servers:
            return True
        # With no list at all, the bot's own server is the list.
        return not self._settings.users and not servers and server == server_of(self._settings.user)

    async def find(self, matrix_id: str) -> Person | None:
        """Who they are; None if nobody knows yet. A link that was revoked stays so."""
        link = await self._house.link("matrix", matrix_id)
        if link is None and self._settings.auto_link:
            link = await self._house.put_link("matrix", matrix_id, matrix_id, "verified")
        if link is None or link.state != "verified":
            return None
        user = await self._house.user(link.owner_id)
        return Person(matrix_id, Scope(self._tenant_id, link.owner_id, user.role if user else "member"))


def server_of(matrix_id: str) -> str:
    return matrix_id.partition(":")[2]
