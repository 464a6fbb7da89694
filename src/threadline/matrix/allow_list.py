"""The allow list: which users may talk to the bot."""

from __future__ import annotations

from threadline.matrix.rooms import server_of
from threadline.settings import MatrixSettings


def may_talk(settings: MatrixSettings, matrix_id: str) -> bool:
    """Whether the allow lists let this user talk to the bot. Without a list, users of the bot's own server may."""
    server = server_of(matrix_id)
    if matrix_id in settings.users or "*" in settings.servers or server in settings.servers:
        return True
    return not settings.users and not settings.servers and server == server_of(settings.user)
