"""From the `Authorization` header to a caller, or to a 401 that does not say why.

A text with the prefix of API tokens is looked up by its hash in the tenant that it names; anything else is read as a
JWT, if the settings configure one. Unknown, expired and revoked tokens get the same response. Requests are counted per
token, or per user of a JWT; for an impersonating token both the token and the user are counted, so that one user cannot
use up the limit of all.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from typing import Never

from starlette.requests import Request

from threadline.core.access import TOKEN_PREFIX, ApiToken, parse_token
from threadline.core.errors import StoreFailed
from threadline.core.threads import SYSTEM_USER, Scope, system_scope
from threadline.ports import Clock, Store
from threadline.service.auth.impersonation import has_user_header, impersonate
from threadline.service.auth.jwt_reader import JwtReader
from threadline.service.auth.rate_limits import RateLimit
from threadline.service.http.problems import Problem
from threadline.service.http.request_context import Caller, context_of

log = logging.getLogger("threadline.service")

# Room for large JWTs; a longer header is refused before it is parsed.
_MAX_LENGTH = 16_384
_CHALLENGE = 'Bearer realm="threadline"'
# `last_used_at` is accurate to the minute: a busy token costs one write a minute instead of one per request.
_WRITE_INTERVAL = dt.timedelta(minutes=1)
# Bounds the memory; forgetting a token costs one extra write.
_MAX_REMEMBERED = 10_000


class TokenAuthenticator:
    """Is an `Authenticate`."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        jwt: JwtReader | None,
        limit: RateLimit | None,
        impersonation_limit: RateLimit | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._jwt = jwt
        self._limit = limit
        self._impersonation_limit = impersonation_limit
        self._last_uses = LastUses(store)

    async def __call__(self, request: Request) -> Caller:
        text = bearer_token(request)
        if text.startswith(TOKEN_PREFIX):
            tenant_id, token = await self._find_token(text)
            if token.acts_for_users and has_user_header(request):
                return await self._impersonate(request, tenant_id, token)
            scope, counted = Scope(tenant_id, token.owner_id, token.role), f"token:{token.id}"
            caller = Caller(scope, can_impersonate=token.acts_for_users)
        elif self._jwt is not None:
            scope = await self._jwt.read(text) or _refuse()
            if await self._is_disabled(scope):
                _refuse()
            caller, counted = Caller(scope), f"user:{scope.user_id}"
        else:
            _refuse()
        await _count(self._limit, caller.scope.tenant_id, counted)
        return caller

    async def _impersonate(self, request: Request, tenant_id: str, token: ApiToken) -> Caller:
        # Counted before the user is read, so that invalid headers count too.
        await _count(self._impersonation_limit, tenant_id, f"acting:{token.id}")
        caller = await impersonate(request, self._store, tenant_id, token)
        await _count(self._limit, tenant_id, f"user:{caller.scope.user_id}")
        return caller

    async def _find_token(self, text: str) -> tuple[str, ApiToken]:
        read = parse_token(text) or _refuse()
        # The caller chooses the tenant to look in, but without the secret nothing is found there.
        token = await self._store.scoped(system_scope(read.tenant_id)).token_by_hash(read.token_hash)
        now = self._clock.now()
        if token is None or not token.is_valid(now) or token.owner_id == SYSTEM_USER:
            _refuse()
        self._last_uses.record(read.tenant_id, token, now)
        return read.tenant_id, token

    async def is_still_valid(self, request: Request) -> bool:
        """False for a token that was revoked or has expired, and for a JWT of a disabled user. The expiry of a JWT does
        not end a stream: issuers let them expire after minutes and expect clients to renew them for the next
        request."""
        read = parse_token(bearer_token(request))
        try:
            if read is None:
                caller = context_of(request.scope).caller
                return caller is None or not await self._is_disabled(caller.scope)
            token = await self._store.scoped(system_scope(read.tenant_id)).token_by_hash(read.token_hash)
        except StoreFailed:
            # Not known now: the next check decides.
            return True
        return token is not None and token.is_valid(self._clock.now())

    async def _is_disabled(self, scope: Scope) -> bool:
        user = await self._store.scoped(system_scope(scope.tenant_id)).user(scope.user_id)
        return user is not None and user.disabled_at is not None

    async def close(self) -> None:
        await self._last_uses.close()


async def _count(limit: RateLimit | None, tenant_id: str, counted: str) -> None:
    if limit is not None:
        await limit.take(tenant_id, counted)


def bearer_token(request: Request) -> str:
    """A Problem if there is none, or more than one."""
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise Problem(400, "invalid_input", "header Authorization is given twice: send it once")
    if not given:
        raise _unauthenticated("no token: send the header `Authorization: Bearer …`")
    if len(given[0]) > _MAX_LENGTH:
        raise Problem(431, "header_too_large", f"header Authorization must have at most {_MAX_LENGTH} characters")
    scheme, _, text = given[0].partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise _unauthenticated("no bearer token: send the header `Authorization: Bearer …`")
    return text.strip()


def _unauthenticated(detail: str) -> Problem:
    return Problem(401, "unauthenticated", detail, {"WWW-Authenticate": _CHALLENGE})


def _refuse() -> Never:
    raise Problem(
        401,
        "invalid_token",
        "token is not valid: it is unknown, expired or revoked, or its user is disabled",
        {"WWW-Authenticate": f'{_CHALLENGE}, error="invalid_token"'},
    )


class LastUses:
    """Writes when tokens were last used, in tasks that no request waits for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: dict[str, dt.datetime] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def record(self, tenant_id: str, token: ApiToken, now: dt.datetime) -> None:
        written = self._written.get(token.id) or token.last_used_at
        if written is not None and now - written < _WRITE_INTERVAL:
            return
        if len(self._written) >= _MAX_REMEMBERED:
            self._written.clear()
        self._written[token.id] = now
        task = asyncio.create_task(self._write(tenant_id, token.id, now), name=f"last use of token {token.id}")
        # The loop holds tasks weakly: without this reference one could be collected before it has run.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, tenant_id: str, token_id: str, now: dt.datetime) -> None:
        try:
            await self._store.scoped(system_scope(tenant_id)).note_use(token_id, now)
        except StoreFailed:
            # The request itself succeeded, and the next use writes again.
            log.warning("last use of token not stored", extra={"token_id": token_id})

    async def close(self) -> None:
        # The store closes next, and its own limits bound these writes.
        if self._tasks:
            await asyncio.wait(list(self._tasks))
