"""People: who may talk to the bot, and which user of the tenant someone on Matrix is.

A Matrix id is linked like any platform's user, by a code that they got where they are known already. Where the settings
say so, someone without a link becomes a user of their own.
"""

from __future__ import annotations

from typing import NamedTuple

from threadline.core.threads import Scope
from threadline.ports import Identities
from threadline.settings import MatrixSettings


class Person(NamedTuple):
    """Someone on Matrix, and what they may reach here."""

    matrix_id: str
    scope: Scope


class People:
    def __init__(self, identities: Identities, settings: MatrixSettings) -> None:
        self._identities = identities
        self._settings = settings

    def may_talk(self, matrix_id: str) -> bool:
        server = server_of(matrix_id)
        servers = self._settings.servers
        if matrix_id in self._settings.users or "*" in servers or server in servers:
            return True
        # With no list at all, the bot's own server is the list.
        return not self._settings.users and not servers and server == server_of(self._settings.user)

    async def find(self, matrix_id: str) -> Person | None:
        """Who they are; None if nobody knows yet. A link that was revoked stays so."""
        scope = await self._identities.find(matrix_id, adopt=self._settings.auto_link)
        return None if scope is None else Person(matrix_id, scope)


def server_of(matrix_id: str) -> str:
    return matrix_id.partition(":")[2]
