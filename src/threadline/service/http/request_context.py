"""What is known about one request: its id for the log, and its caller once it is authenticated.

The request log middleware creates the context, the authentication middleware sets the caller, and handlers read it.
"""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request
from starlette.types import Scope as ASGIScope

from threadline.core.threads import Scope
from threadline.core.turns import Surface

_KEY = "threadline.request"


class Caller(NamedTuple):
    """`surface` is where the turns of this request come from. `can_impersonate` is True for a token that may act for
    other users but sent this request on its own account; `is_impersonating`, if it sent it for another user.
    `session_id` is the sign-in of a person whose browser sent a session cookie."""

    scope: Scope
    surface: Surface = "web"
    can_impersonate: bool = False
    is_impersonating: bool = False
    session_id: str | None = None


class RequestContext:
    """Mutable: filled in while the request passes the middleware. `token_id` is only set for impersonating tokens, so
    that the log says which token acted; it is set before the headers are checked."""

    __slots__ = ("caller", "request_id", "token_id")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.caller: Caller | None = None
        self.token_id: str | None = None


def create_context(scope: ASGIScope, request_id: str) -> RequestContext:
    context = scope[_KEY] = RequestContext(request_id)
    return context


def context_of(scope: ASGIScope) -> RequestContext:
    context = scope[_KEY]
    # ASGI scopes are untyped; only `create_context` writes this key.
    assert isinstance(context, RequestContext)
    return context


def request_id_of(scope: ASGIScope) -> str | None:
    """None outside of the request log middleware."""
    return context_of(scope).request_id if _KEY in scope else None


def caller_of(request: Request) -> Caller:
    """Only for routes that require authentication: the middleware has set the caller before the handler runs."""
    caller = context_of(request.scope).caller
    assert caller is not None, "no authentication on this route: see auth/permissions.py"
    return caller


def scope_of(request: Request) -> Scope:
    return caller_of(request).scope
