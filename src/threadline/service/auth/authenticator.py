"""Authentication: from the `Authorization` header to a scope, or to a 401 that says nothing about why.

A text that begins as API tokens do is looked up by its hash in the tenant that it names; anything else is a JWT, if the
settings say whose. Whether a token is unknown, expired or revoked is all one answer. When a token was last used is
noted at most once a minute, in a task that no request waits for. Each caller is counted: a token, the user of a JWT.
Where a token acts for users, both the token and the user are, so that one of them cannot use up what is for all.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from typing import Never

from starlette.requests import Request

from threadline.core.access import TOKEN_PREFIX, ApiToken, read_token
from threadline.core.errors import StoreFailed
from threadline.core.threads import Scope, system_scope
from threadline.ports import Clock, Store
from threadline.service.auth.impersonation import acting_scope, names_someone, note_may_act
from threadline.service.auth.jwts import JwtReader
from threadline.service.auth.rate_limits import RateLimit
from threadline.service.problems import Problem

log = logging.getLogger("threadline.service")

_LONGEST = 16_384
_CHALLENGE = 'Bearer realm="threadline"'
_NOTED_EVERY = dt.timedelta(minutes=1)
_NOTED_MOST = 10_000


class Authentication:
    """Is a `WhoAsks`."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        jwt: JwtReader | None,
        limit: RateLimit | None,
        acting_limit: RateLimit | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._jwt = jwt
        self._limit = limit
        self._acting_limit = acting_limit
        self._uses = LastUses(store)

    async def __call__(self, request: Request) -> Scope:
        text = presented(request)
        if text.startswith(TOKEN_PREFIX):
            tenant_id, token = await self._token(text)
            if token.acts_for_users and names_someone(request):
                return await self._act(request, tenant_id, token)
            if token.acts_for_users:
                note_may_act(request)
            scope, counted = Scope(tenant_id, token.owner_id, token.role), f"token:{token.id}"
        elif self._jwt is not None:
            scope = await self._jwt.read(text) or _refuse()
            counted = f"user:{scope.user_id}"
        else:
            _refuse()
        await _count(self._limit, scope.tenant_id, counted)
        return scope

    async def _act(self, request: Request, tenant_id: str, token: ApiToken) -> Scope:
        await _count(self._acting_limit, tenant_id, f"acting:{token.id}")
        scope = await acting_scope(request, self._store, tenant_id, token)
        await _count(self._limit, tenant_id, f"user:{scope.user_id}")
        return scope

    async def _token(self, text: str) -> tuple[str, ApiToken]:
        read = read_token(text) or _refuse()
        # The tenant is the caller's word. It says where to look, and nothing is found there without the secret.
        token = await self._store.scoped(system_scope(read.tenant_id)).token_by_hash(read.token_hash)
        now = self._clock.now()
        if token is None or not token.is_valid(now):
            _refuse()
        self._uses.note(read.tenant_id, token, now)
        return read.tenant_id, token

    async def close(self) -> None:
        await self._uses.close()


async def _count(limit: RateLimit | None, tenant_id: str, counted: str) -> None:
    if limit is not None:
        await limit.take(tenant_id, counted)


def presented(request: Request) -> str:
    """The bearer token of a request; a Problem if there is none, or more than one."""
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise Problem(400, "invalid_input", "The header Authorization is given twice.")
    if not given:
        raise Problem(401, "unauthenticated", "Send a token: Authorization: Bearer …", {"WWW-Authenticate": _CHALLENGE})
    if len(given[0]) > _LONGEST:
        raise Problem(431, "header_too_large", f"Authorization is limited to {_LONGEST} characters.")
    scheme, _, text = given[0].partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise Problem(
            401, "unauthenticated", "Send a bearer token: Authorization: Bearer …", {"WWW-Authenticate": _CHALLENGE}
        )
    return text.strip()


def _refuse() -> Never:
    raise Problem(
        401,
        "invalid_token",
        "This token is not valid here, or no longer.",
        {"WWW-Authenticate": f'{_CHALLENGE}, error="invalid_token"'},
    )


class LastUses:
    """Notes when tokens were used, as far as that is not noted already."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted: dict[str, dt.datetime] = {}
        self._writing: set[asyncio.Task[None]] = set()

    def note(self, tenant_id: str, token: ApiToken, now: dt.datetime) -> None:
        noted = self._noted.get(token.id) or token.last_used_at
        if noted is not None and now - noted < _NOTED_EVERY:
            return
        if len(self._noted) >= _NOTED_MOST:
            self._noted.clear()
        self._noted[token.id] = now
        task = asyncio.create_task(self._write(tenant_id, token.id, now), name=f"use of token {token.id}")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, tenant_id: str, token_id: str, now: dt.datetime) -> None:
        try:
            await self._store.scoped(system_scope(tenant_id)).note_use(token_id, now)
        except StoreFailed:
            log.warning("use of a token not noted", extra={"token_id": token_id})

    async def close(self) -> None:
        if self._writing:
            await asyncio.wait(list(self._writing))
