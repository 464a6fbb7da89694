"""Who asks, and what they may. Every handler gets its scope from here, and from nowhere else.

Without authentication there is one user, the one of the settings, who may do everything; that is safe only while nobody
but this machine can reach the service, so `check_address` refuses any other. Whoever mounts the service behind their
own authentication gives a function of their own instead. Whoever asks, the role that the operation declares is asked
for here, before a handler reads anything; and whoever asks for somebody else is refused here, unless they may.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.requests import Request

from threadline.core.errors import SettingsInvalid
from threadline.core.threads import Scope
from threadline.service.auth.impersonation import check_acting, may_act
from threadline.service.operation import operation_of
from threadline.settings import Settings

WhoAsks: TypeAlias = Callable[[Request], Awaitable[Scope]]
"""The scope of whoever sent the request; raises a Problem with status 401 for nobody."""

LOCAL_HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))


def only_local(settings: Settings) -> WhoAsks:
    scope = Scope(settings.tenant, settings.user, "admin")

    async def who(request: Request) -> Scope:
        return scope

    return who


def by_role(who_asks: WhoAsks) -> WhoAsks:
    """The same callers, each only for what their role allows; RoleRefused for the rest. What declares no role needs
    that of a member, unless it only reads."""

    async def who(request: Request) -> Scope:
        scope = await who_asks(request)
        declared = operation_of(request.scope["endpoint"])
        check_acting(request, declared)
        reads = request.method in ("GET", "HEAD")
        scope.require("viewer" if reads else "member")
        if declared is not None and declared.needs is not None and not (declared.for_bots and may_act(request)):
            scope.require(declared.needs)
        return scope

    return who


def check_address(host: str, *, asks_who: bool = False) -> str:
    """SettingsInvalid for an address that others can reach, if nobody is asked who they are."""
    if asks_who or host == "localhost":
        return host
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise SettingsInvalid(
            f"{host!r} can be reached by others, and there is no authentication: serve on 127.0.0.1, ::1 or localhost, "
            "or ask for tokens with --authentication"
        )
    return host
