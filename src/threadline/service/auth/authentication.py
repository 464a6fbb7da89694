"""Authentication as middleware around each route: who sent the request, and may they do this?

Runs before the handler reads anything, so a caller that is refused learns nothing about what else was wrong. Without
configured authentication every request has the user of the settings as an administrator; that is safe only on loopback
addresses, so `check_address` refuses others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Send
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


class Authentication:
    """ASGI middleware for one route. Raises: the app's exception handlers write the response."""

    def __init__(self, app: ASGIApp, *, authenticate: Authenticate, permission: Permission) -> None:
        self._app = app
        self._authenticate = authenticate
        self._permission = permission

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if not (self._permission.is_open_locally and is_local(request)):
            caller = await self._authenticate(request)
            # Before the check, so that the log names the tenant of refused requests too.
            context_of(scope).caller = caller
            check_permission(request, caller, self._permission)
        await self._app(scope, receive, send)


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
