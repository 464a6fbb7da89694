"""Security headers of every response, and checks of the Origin and Host headers.

Other web sites can make a browser send requests. So responses are never cached, sniffed or framed, and pages of other
origins need to be allowed in the settings. Without authentication, only host names of this machine are accepted:
otherwise a foreign domain could point to it (DNS rebinding).
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadline.service.http.problems import Problem
from threadline.service.http.requests import host_name

_SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
_ALLOWED_METHODS = "GET, POST, PUT, PATCH, DELETE"
_ALLOWED_HEADERS = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-State-Key"
_EXPOSED_HEADERS = "X-State-Key"


class SecurityHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, sending if scope["type"] == "http" else send)


class OriginCheck:
    """Pages of `origins` may call the API. `hosts`, if given, are the only accepted host names."""

    def __init__(self, app: ASGIApp, *, origins: frozenset[str], hosts: frozenset[str] | None) -> None:
        self._app = app
        self._origins = origins
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        try:
            self._check(scope["method"], headers, origin)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        if origin is None or origin not in self._origins:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _send_preflight(send, origin)
        else:
            await self._app(scope, receive, _with_cors_headers(send, origin))

    def _check(self, method: str, headers: Headers, origin: str | None) -> None:
        host = headers.get("host", "")
        if self._hosts is not None and host_name(host) not in self._hosts:
            raise Problem(
                421, "host_refused", f"host name {host_name(host)[:100]!r} is not accepted: use localhost or 127.0.0.1"
            )
        # Programs send no Origin. Reading needs no check: without CORS headers a page cannot see the response.
        if origin is None or origin in self._origins or method in _SAFE_METHODS:
            return
        if origin.partition("://")[2] != host:
            raise Problem(
                403,
                "origin_refused",
                f"origin {origin[:100]} is not allowed: add it to service.origins in the settings",
            )


async def _send_preflight(send: Send, origin: str) -> None:
    headers = [
        (b"access-control-allow-origin", origin.encode()),
        (b"access-control-allow-methods", _ALLOWED_METHODS.encode()),
        (b"access-control-allow-headers", _ALLOWED_HEADERS.encode()),
        (b"access-control-max-age", b"600"),
        (b"vary", b"Origin"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _with_cors_headers(send: Send, origin: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = _EXPOSED_HEADERS
            # Replaces same-origin of SecurityHeaders, which would block the allowed page.
            headers["Cross-Origin-Resource-Policy"] = "cross-origin"
            headers.add_vary_header("Origin")
        await send(message)

    return sending
