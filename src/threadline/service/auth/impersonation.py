"""Impersonation: one token of a program that serves many users, with a header that names the user of each request.

Only a token created for it may send the headers, only for users of its own tenant, never with more than the role of a
member, and only for operations that `permissions` allows. Any other request with these headers is refused rather than
handled as its own caller, because its sender means another user.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from threadline.core.access import ApiToken
from threadline.core.errors import ImpersonationRefused, InvalidInput, InvalidName, quote
from threadline.core.ids import USER_ID_LENGTH, check_user_id
from threadline.core.threads import SYSTEM_USER, Scope, system_scope
from threadline.core.turns import Surface
from threadline.ports import Store
from threadline.service.auth.permissions import Permission
from threadline.service.http.request_context import Caller, context_of
from threadline.service.http.requests import read_header

ON_BEHALF_OF = "X-On-Behalf-Of"
SURFACE = "X-Surface"
BotSurface: TypeAlias = Literal["matrix"]
"""Surfaces whose bot may be a separate program. The service itself answers the others, to places it already knows."""
# Percent-encoded, because a header is ASCII. A comma is refused: it may come from two headers joined by a proxy.
_ENCODED_USER = re.compile(r"(?:[ -$&-+\--~]|%[0-9A-Fa-f]{2})+")
# Every character of a user id may take four bytes in UTF-8, and each byte three characters when percent-encoded.
_MAX_LENGTH = 12 * USER_ID_LENGTH


def has_user_header(request: Request) -> bool:
    return ON_BEHALF_OF in request.headers


async def impersonate(request: Request, store: Store, tenant_id: str, token: ApiToken) -> Caller:
    """The user that the request names. InvalidName, InvalidInput; ImpersonationRefused for the system user."""
    context_of(request.scope).token_id = token.id
    user_id = _read_user(read_header(request, ON_BEHALF_OF, _MAX_LENGTH) or "")
    if user_id == SYSTEM_USER:
        raise ImpersonationRefused(f"no token can act for {SYSTEM_USER!r}: name another user in {ON_BEHALF_OF}")
    user = await store.scoped(system_scope(tenant_id)).user(user_id)
    if user is not None and user.disabled_at is not None:
        raise ImpersonationRefused(f"user {quote(user_id)} is disabled: an administrator must enable them first")
    roles = (token.role, "member" if user is None else user.role)
    scope = Scope(tenant_id, user_id, "viewer" if "viewer" in roles else "member")
    return Caller(scope, _read_surface(read_header(request, SURFACE)), is_impersonating=True)


def check_impersonation(request: Request, caller: Caller, permission: Permission) -> None:
    """ImpersonationRefused if the caller may not send the headers, or the operation does not allow them."""
    if not caller.is_impersonating:
        if ON_BEHALF_OF in request.headers or SURFACE in request.headers:
            raise ImpersonationRefused(
                f"this token cannot act for other users: leave out {ON_BEHALF_OF} and {SURFACE}, "
                "or use a token created with `actsForUsers`"
            )
    elif not permission.on_behalf:
        raise ImpersonationRefused(f"this cannot be done on behalf of another user: leave out {ON_BEHALF_OF}")


def _read_user(given: str) -> str:
    if not _ENCODED_USER.fullmatch(given):
        raise InvalidName(f"{ON_BEHALF_OF} must be a user id in ASCII: percent-encode commas and other characters")
    try:
        return check_user_id(unquote_to_bytes(given).decode())
    except UnicodeDecodeError:
        raise InvalidName(f"{ON_BEHALF_OF} must be percent-encoded UTF-8") from None


def _read_surface(given: str | None) -> Surface:
    if given is None:
        return "web"
    if given != "matrix":
        raise InvalidInput(f"{SURFACE} must be matrix or absent, got {given!r}")
    return "matrix"
