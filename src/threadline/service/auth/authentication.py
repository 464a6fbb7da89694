"""Authentication as middleware around each route: who sent the request, and may they do this?

Runs before the handler reads anything, so a caller that is refused learns nothing about what else was wrong. Without
configured authentication every request has the user of the settings as an administrator; that is safe only on loopback
addresses, so `check_address` refuses others.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as ASGIScope

from threadline.core.errors import SettingsInvalid
from threadline.core.threads import Scope
from threadline.service.auth.impersonation import check_impersonation
from threadline.service.auth.permissions import Permission
from threadline.service.http.request_context import Caller, context_of
from threadline.service.http.requests import host_name
from threadline.settings import Settings

Authenticate: TypeAlias = Callable[[Request], Awaitable[Caller]]
"""The caller of a request; raises a Problem with status 401 if it is unknown."""
AuthenticateScope: TypeAlias = Callable[[Request], Awaitable[Scope]]
"""The same for applications that mount the service behind their own authentication."""

LOCAL_HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Revocable(Protocol):
    """Knows callers that may lose their access while a response is being sent."""

    async def is_still_valid(self, request: Request) -> bool:
        """Whether the request would still be authenticated."""
        ...


class _AccessEnded(Exception):
    """Ends a stream from inside its `send`. Only `Authentication` raises and catches it."""


class Authentication:
    """ASGI middleware for one route. Raises: the app's exception handlers write the response.

    A stream may outlive its token, so `revocable` is asked again while it is sent, at most every `recheck_seconds`: as
    often as heartbeats are sent, so that an idle stream is checked as well."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticate: Authenticate,
        permission: Permission,
        revocable: Revocable | None,
        recheck_seconds: float,
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._permission = permission
        self._revocable = revocable
        self._recheck_seconds = recheck_seconds

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if not (self._permission.is_open_locally and is_local(request)):
            caller = await self._authenticate(request)
            # Before the check, so that the log names the tenant of refused requests too.
            context_of(scope).caller = caller
            check_permission(request, caller, self._permission)
            if self._revocable is not None:
                await self._send_while_valid(self._revocable, request, receive, send)
                return
        await self._app(scope, receive, send)

    async def _send_while_valid(self, revocable: Revocable, request: Request, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        checked_at = loop.time()

        async def sending(message: Message) -> None:
            nonlocal checked_at
            if message.get("more_body") and loop.time() - checked_at >= self._recheck_seconds:
                checked_at = loop.time()
                if not await revocable.is_still_valid(request):
                    raise _AccessEnded
            await send(message)

        try:
            await self._app(request.scope, receive, sending)
        except _AccessEnded:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def check_permission(request: Request, caller: Caller, permission: Permission) -> None:
    """RoleRefused, ImpersonationRefused."""
    check_impersonation(request, caller, permission)
    role = permission.role
    if caller.can_impersonate and permission.bot_role is not None:
        role = permission.bot_role
    if role is not None:
        caller.scope.require(role)


def from_scope(authenticate: AuthenticateScope) -> Authenticate:
    async def authenticate_caller(request: Request) -> Caller:
        return Caller(await authenticate(request))

    return authenticate_caller


def as_local_admin(settings: Settings) -> Authenticate:
    """Every request is of the one user that the settings name."""
    caller = Caller(Scope(settings.tenant, settings.user, "admin"))

    async def authenticate_caller(request: Request) -> Caller:
        return caller

    return authenticate_caller


def is_local(request: Request) -> bool:
    """Whether the client runs on this machine. A proxy on this machine does not count: it adds a forwarding header, or
    keeps the host name that its own client used."""
    if request.client is None or request.client.host not in LOCAL_HOSTS:
        return False
    is_forwarded = any(name in request.headers for name in _FORWARDED)
    return not is_forwarded and host_name(request.headers.get("host", "")) in LOCAL_HOSTS


def check_address(host: str, *, is_authenticated: bool = False) -> str:
    """SettingsInvalid for an address that other machines can reach, unless callers authenticate."""
    if is_authenticated or host == "localhost":
        return host
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise SettingsInvalid(
            f"{host!r} can be reached from other machines, but authentication is off: "
            "serve on 127.0.0.1, ::1 or localhost, or require tokens with --authentication"
        )
    return host
