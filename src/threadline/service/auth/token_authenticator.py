"""From the `Authorization` header, or else the session cookie, to a caller, or to a 401 that does not say why.

A text with the prefix of API tokens is looked up by its hash in the tenant that it names; anything else is read as a
JWT, if the settings configure one. Unknown, expired and revoked tokens get the same response. Requests are counted per
token, or per user of a JWT; for an impersonating token both the token and the user are counted, so that one user cannot
use up the limit of all.
"""

from __future__ import annotations

from functools import partial
from typing import Never

from starlette.requests import Request

from threadline.administration.sessions import Sessions
from threadline.core.access import TOKEN_PREFIX, ApiToken, parse_token
from threadline.core.errors import StoreFailed
from threadline.core.threads import SYSTEM_USER, Scope, system_scope
from threadline.ports import Clock, Store
from threadline.service.auth.impersonation import has_user_header, impersonate
from threadline.service.auth.jwt_reader import JwtReader
from threadline.service.auth.last_uses import LastUses
from threadline.service.auth.rate_limits import RateLimit
from threadline.service.auth.session_cookies import check_own_page, session_secret
from threadline.service.http.problems import Problem
from threadline.service.http.request_context import Caller, context_of

# Room for large JWTs; a longer header is refused before it is parsed.
_MAX_LENGTH = 16_384
_CHALLENGE = 'Bearer realm="threadline"'


class TokenAuthenticator:
    """Is an `Authenticate`."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        sessions: Sessions,
        jwt: JwtReader | None,
        limit: RateLimit | None,
        impersonation_limit: RateLimit | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sessions = sessions
        self._jwt = jwt
        self._limit = limit
        self._impersonation_limit = impersonation_limit
        self._last_uses = LastUses()

    async def __call__(self, request: Request) -> Caller:
        if (secret := cookie_secret(request)) is not None:
            return await self._find_session(request, secret)
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

    async def _find_session(self, request: Request, secret: str) -> Caller:
        check_own_page(request, self._sessions.settings.url)
        session = await self._sessions.find(secret)
        if session is None:
            raise Problem(
                401, "session_ended", "the session has ended: sign in again", {"WWW-Authenticate": _CHALLENGE}
            )
        sign_in, now = session.sign_in, self._clock.now()
        write = partial(self._sessions.note_use, session, now)
        self._last_uses.record(sign_in.id, sign_in.last_seen_at, now, write)
        caller = Caller(Scope(session.tenant_id, sign_in.owner_id, sign_in.role), session_id=sign_in.id)
        await _count(self._limit, session.tenant_id, f"user:{sign_in.owner_id}")
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
        write = partial(self._store.scoped(system_scope(read.tenant_id)).note_use, token.id, now)
        self._last_uses.record(token.id, token.last_used_at, now, write)
        return read.tenant_id, token

    async def is_still_valid(self, request: Request) -> bool:
        """False for a token or a session that was revoked or has expired, and for a JWT of a disabled user. The
        expiry of a JWT does not end a stream: issuers let them expire after minutes and expect clients to renew them
        for the next request."""
        secret = cookie_secret(request)
        read = None if secret is not None else parse_token(bearer_token(request))
        try:
            if secret is not None:
                return await self._sessions.find(secret) is not None
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


def cookie_secret(request: Request) -> str | None:
    """The session cookie's secret. A header Authorization goes first: a program in a browser may send one."""
    return None if "authorization" in request.headers else session_secret(request)


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
