"""Store operations for sign-ins: sessions of people, and the links that begin one."""

from __future__ import annotations

import datetime as dt
from typing import Protocol

from threadline.core.sign_ins import NewSignIn, SignIn


class SignInOperations(Protocol):
    async def add_sign_in(self, new: NewSignIn) -> SignIn:
        """Stores a session or a link, and the row of its owner if there is none. DuplicateId if the id or the hash
        exists. Admin and system scopes only (RoleRefused)."""
        ...

    async def sign_in_by_hash(self, secret_hash: bytes) -> SignIn | None:
        """Also revoked and expired ones, and links: the caller checks. None if its user is disabled. System scope only
        (RoleRefused), because the user is not known before it is read."""
        ...

    async def open_sign_in(
        self, link_hash: bytes, *, secret_hash: bytes, expires_at: dt.datetime, device: str | None = None
    ) -> SignIn | None:
        """Makes a session of a link, once: from now on it has this secret and expiry. None, and nothing changes, if
        there is no such link, it was used, revoked or has expired, or its user is disabled. System scope only
        (RoleRefused)."""
        ...

    async def sign_ins(self, user_id: str) -> list[SignIn]:
        """Every sign-in of the user, newest first. Those of another user: admin and system scopes only
        (RoleRefused)."""
        ...

    async def revoke_sign_in(self, user_id: str, sign_in_id: str) -> bool:
        """False if the user has no such sign-in, or it is revoked already. Those of another user: admin and system
        scopes only (RoleRefused)."""
        ...

    async def revoke_sign_ins(self, user_id: str, *, except_id: str | None = None) -> int:
        """Revokes all sign-ins of the user but this one, links too; how many. Those of another user: admin and system
        scopes only (RoleRefused)."""
        ...

    async def note_sign_in_use(self, sign_in_id: str, used_at: dt.datetime) -> None:
        """Stores when it was last used; an earlier time changes nothing. System scope only (RoleRefused)."""
        ...

    async def drop_sign_ins(self, *, before: dt.datetime) -> int:
        """Removes sign-ins that expired or were revoked before this time; how many. System scope only
        (RoleRefused)."""
        ...
