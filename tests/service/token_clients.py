"""Clients with tokens on a service with authentication."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.service.running_service import Client, client_of
from threadline.bootstrap import Threadline
from threadline.core.access import TokenRole
from threadline.core.threads import Scope


async def token_for(
    threadline: Threadline,
    user: str,
    role: TokenRole = "member",
    *,
    tenant: str = "local",
    lasts: float | None = None,
    acts_for_users: bool = False,
) -> str:
    """The text of a new token."""
    administration = threadline.administration(Scope(tenant, "root", "admin"))
    ends = None if lasts is None else threadline.clock.now() + dt.timedelta(seconds=lasts)
    made = await administration.create_token(
        user, name=f"{user}'s", role=role, expires_at=ends, acts_for_users=acts_for_users
    )
    return made.text


async def revoked_token(threadline: Threadline, user: str) -> str:
    administration = threadline.administration(Scope("local", "root", "admin"))
    token, text = await administration.create_token(user, name="lost")
    await administration.revoke_token(token.id)
    return text


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


@asynccontextmanager
async def client_with(url: str, text: str | None) -> AsyncIterator[Client]:
    """A client that sends this token with every request, or none."""
    client = client_of(url, bearer(text) if text else {})
    try:
        yield client
    finally:
        await client.close()
