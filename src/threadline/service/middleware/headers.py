"""What every answer carries, and which pages and host names may ask.

A browser is the one client that others can steer. So an answer is never stored, never sniffed and never framed; a page
of another origin may ask only if the settings name it; and where there is no authentication, only under a name of this
machine, because any name on the web can be made to point at it.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadline.service.problems import Problem

_ALWAYS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
_READING = frozenset(("GET", "HEAD", "OPTIONS"))
_ALLOWED_METHODS = "GET, POST, PUT, PATCH, DELETE"
_ALLOWED_HEADERS = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-State-Key"
_EXPOSED_HEADERS = "X-State-Key"


class SafeHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, sending if scope["type"] == "http" else send)


class OriginGate:
    """`origins` may read and write from a browser. `hosts`, if given, are the only names this service answers to."""

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
            await _answer_preflight(send, origin)
        else:
            await self._app(scope, receive, _sharing(send, origin))

    def _check(self, method: str, headers: Headers, origin: str | None) -> None:
        host = headers.get("host", "")
        if self._hosts is not None and host_name(host) not in self._hosts:
            raise Problem(421, "host_refused", "This service does not answer to that host name.")
        if origin is None or origin in self._origins or method in _READING:
            return
        if origin.partition("://")[2] != host:
            raise Problem(403, "origin_refused", "Pages of this origin may not use the service: see the settings.")


def host_name(host: str) -> str:
    """The name of a Host header, without its port; an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


async def _answer_preflight(send: Send, origin: str) -> None:
    headers = [
        (b"access-control-allow-origin", origin.encode()),
        (b"access-control-allow-methods", _ALLOWED_METHODS.encode()),
        (b"access-control-allow-headers", _ALLOWED_HEADERS.encode()),
        (b"access-control-max-age", b"600"),
        (b"vary", b"Origin"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _sharing(send: Send, origin: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = _EXPOSED_HEADERS
            headers["Cross-Origin-Resource-Policy"] = "cross-origin"
            headers.add_vary_header("Origin")
        await send(message)

    return sending
