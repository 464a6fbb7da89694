"""Security headers of every response, and checks of the Origin and Host headers.

Other web sites can make a browser send requests. So responses are never cached, sniffed or framed, and pages of other
origins need to be allowed in the settings. Without authentication, only host names of this machine are accepted:
otherwise a foreign domain could point to it (DNS rebinding).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadline.core.errors import SettingsInvalid
from threadline.observability.log_throttle import LogThrottle
from threadline.service.http.problems import Problem
from threadline.service.http.requests import host_name

log = logging.getLogger("threadline.service")

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
ALLOWED_HEADERS = (
    "Accept",
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
    "Traceparent",
    "X-AI-SDK",
    "X-On-Behalf-Of",
    "X-Request-Id",
    "X-State-Key",
    "X-Stream-Format",
    "X-Surface",
)
"""Every request header that the service reads; a page of an allowed origin may send others too."""
EXPOSED_HEADERS = ("Content-Disposition", "Retry-After", "X-Request-Id", "X-State-Key")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
# Browsers cache a preflight for at most two hours; this is short enough to change the setting.
_PREFLIGHT_SECONDS = b"600"
_ORIGIN_SCHEMES = frozenset(("http", "https"))


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


def read_origins(origins: Sequence[str]) -> frozenset[str]:
    """SettingsInvalid for an entry that no browser would send, because it would never match."""
    return frozenset(map(_read_origin, origins))


def _read_origin(given: str) -> str:
    parts = urlsplit(given)
    if parts.scheme not in _ORIGIN_SCHEMES or not parts.netloc or parts.path not in ("", "/") or parts.query:
        raise SettingsInvalid(
            f"service.origins: an origin must be scheme and host such as http://localhost:3000, got {given[:100]!r}"
        )
    return f"{parts.scheme}://{parts.netloc.lower()}"


class OriginCheck:
    """Pages of `origins` may call the API. `hosts`, if given, are the only accepted host names."""

    def __init__(self, app: ASGIApp, *, origins: frozenset[str], hosts: frozenset[str] | None) -> None:
        self._app = app
        self._origins = origins
        self._hosts = hosts
        self._throttle = LogThrottle(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        is_preflight = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
        try:
            self._check(headers, origin, is_read=scope["method"] in _SAFE_METHODS and not is_preflight)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        if origin is None or origin not in self._origins:
            await self._app(scope, receive, send)
        elif is_preflight:
            await _send_preflight(send, origin, headers.get("access-control-request-headers", ""))
        else:
            await self._app(scope, receive, _with_cors_headers(send, origin))

    def _check(self, headers: Headers, origin: str | None, *, is_read: bool) -> None:
        hosts = headers.getlist("host")
        if len(hosts) > 1:
            # A proxy and the service might each believe another one of them.
            raise Problem(400, "invalid_input", f"header Host must be given once, got {len(hosts)}")
        host = headers.get("host", "")
        if self._hosts is not None and host_name(host) not in self._hosts:
            name = host_name(host)[:100]
            # Platforms do not show what their webhooks are answered with, so the log has to tell.
            self._throttle.warning("host name refused: see the setting service.authentication", "host", host=name)
            raise Problem(
                421,
                "host_refused",
                f"host name {name!r} is not accepted without authentication: use localhost or 127.0.0.1, or "
                "serve other names with `authentication = true` under [service] in threadline.toml, or with "
                "THREADLINE_SERVICE__AUTHENTICATION=true",
            )
        # Programs send no Origin. Reading needs no check: without CORS headers a page cannot see the response.
        if origin is None or origin in self._origins or is_read:
            return
        if origin.partition("://")[2] != host:
            # A browser hides the response to a preflight from its page and its developer, so the log has to tell.
            self._throttle.warning("origin refused: see the setting service.origins", "origin", origin=origin[:100])
            raise Problem(
                403,
                "origin_refused",
                f"pages of {origin[:100]} may not use this service: add it to `origins` under [service] in "
                "threadline.toml, or to THREADLINE_SERVICE__ORIGINS",
            )


async def _send_preflight(send: Send, origin: str, requested: str) -> None:
    names = {name.lower(): name for name in ALLOWED_HEADERS}
    # The page is trusted, so it may send headers that mean nothing here, such as those of its own tracing.
    names |= {name.lower(): name for name in map(str.strip, requested.split(",")) if _HEADER_NAME.fullmatch(name)}
    headers = [
        (b"access-control-allow-origin", origin.encode()),
        (b"access-control-allow-methods", _ALLOWED_METHODS.encode()),
        (b"access-control-allow-headers", ", ".join(sorted(names.values())).encode()),
        (b"access-control-max-age", _PREFLIGHT_SECONDS),
        (b"vary", b"Origin, Access-Control-Request-Headers"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _with_cors_headers(send: Send, origin: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = ", ".join(EXPOSED_HEADERS)
            # Replaces same-origin of SecurityHeaders, which would block the allowed page.
            headers["Cross-Origin-Resource-Policy"] = "cross-origin"
            headers.add_vary_header("Origin")
        await send(message)

    return sending
