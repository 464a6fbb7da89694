"""Acting for users: a program that many people talk to has one token, and says in a header for whom it asks.

Only a token that was made for it may, only for users of its own tenant, never as more than a member, and only for what
is a user's own business: whatever outlives the token, such as a code that links an account, is not made on behalf of
anyone. Anybody else who sends these headers is refused, whoever they are, rather than taken for someone they may not
mean to be.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from threadline.core.access import ApiToken
from threadline.core.errors import ImpersonationRefused, InvalidInput, InvalidName
from threadline.core.ids import USER_ID_LENGTH, check_user_id
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Surface
from threadline.ports import Store
from threadline.service.operation import Operation, Tag
from threadline.service.requests import header

ON_BEHALF_OF = "X-On-Behalf-Of"
SURFACE = "X-Surface"
_USERS_OWN: frozenset[Tag] = frozenset(("chat", "threads", "saves", "agents"))
"""What is done for others as it is done for oneself. Of the rest, only what its operation declares."""
ActedFrom: TypeAlias = Literal["matrix"]
"""Surfaces whose bot is a program of its own. The others are answered by the service itself, to a place that it knows
from what arrived there."""
_HOUSE = "system"
# Percent-encoded, since a header holds no more than ASCII. A comma is refused: it may be two headers put together.
_SPELT = re.compile(r"(?:[ -$&-+\--~]|%[0-9A-Fa-f]{2})+")
_LONGEST = 12 * USER_ID_LENGTH
_MAY_ACT, _ACTING = "threadline.may_act", "threadline.acting"
ACTED_BY_KEY = "threadline.token"
"""Where the id of a token that acts for someone stands in a request's ASGI scope, for the log."""


def is_for_others(operation: Operation) -> bool:
    """Whether it may be done on behalf of a user."""
    return operation.needs is not None and (operation.tag in _USERS_OWN or operation.for_others)


def names_someone(request: Request) -> bool:
    return ON_BEHALF_OF in request.headers


async def acting_scope(request: Request, store: Store, tenant_id: str, token: ApiToken) -> Scope:
    """The scope of whom the request names. InvalidName, InvalidInput; ImpersonationRefused for the house."""
    request.scope[ACTED_BY_KEY] = token.id
    user_id = _read_user(header(request, ON_BEHALF_OF, _LONGEST) or "")
    if user_id == _HOUSE:
        raise ImpersonationRefused("nobody acts for the house itself")
    user = await store.scoped(system_scope(tenant_id)).user(user_id)
    roles = (token.role, "member" if user is None else user.role)
    request.scope[_ACTING] = _read_surface(header(request, SURFACE))
    return Scope(tenant_id, user_id, "viewer" if "viewer" in roles else "member")


def note_may_act(request: Request) -> None:
    """The request is of a token that acts for users, on its own account."""
    request.scope[_MAY_ACT] = True


def may_act(request: Request) -> bool:
    return _MAY_ACT in request.scope


def check_acting(request: Request, declared: Operation | None) -> None:
    """ImpersonationRefused for headers that nobody granted, and for what is not done on behalf of others."""
    if _ACTING not in request.scope:
        if ON_BEHALF_OF in request.headers or SURFACE in request.headers:
            raise ImpersonationRefused(f"{ON_BEHALF_OF} and {SURFACE} are for tokens that act for users: this is none")
    elif declared is None or not is_for_others(declared):
        raise ImpersonationRefused("this is not done on behalf of others")


def surface_of(request: Request) -> Surface:
    """From where a turn comes that this request begins."""
    surface: Surface = request.scope.get(_ACTING, "web")
    return surface


def _read_user(given: str) -> str:
    if not _SPELT.fullmatch(given):
        raise InvalidName(f"{ON_BEHALF_OF} is a user id in ASCII, everything else and ',' percent-encoded as UTF-8")
    try:
        return check_user_id(unquote_to_bytes(given).decode())
    except UnicodeDecodeError:
        raise InvalidName(f"{ON_BEHALF_OF} is percent-encoded UTF-8") from None


def _read_surface(given: str | None) -> Surface:
    if given is None:
        return "web"
    if given != "matrix":
        raise InvalidInput(f"{SURFACE} is matrix, or not given")
    return "matrix"
