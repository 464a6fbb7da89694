"""The client's address behind proxies, from `X-Forwarded-For` and `X-Forwarded-Proto`.

The headers are only believed if the connection comes from a proxy named in the settings. Then the hops are read from
right to left: the first address that is not a known proxy is the client. What is further left could be forged.

All clients of a proxy share its connections, so the server cannot limit the connections of one of them. Their open
requests are limited here instead.
"""

from __future__ import annotations

from collections import Counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from threadline.service.http.client_addresses import Network, client_host, counted_address, is_in, parse_address
from threadline.service.http.problems import Problem

_SCHEMES = frozenset(("http", "https"))


class ClientAddress:
    """Sets `client` and `scheme` of the ASGI scope. A client behind a proxy may have `max_open` requests open."""

    def __init__(self, app: ASGIApp, *, proxies: tuple[Network, ...], max_open: int) -> None:
        self._app = app
        self._proxies = proxies
        self._max_open = max_open
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_in(client_host(scope), self._proxies):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        hops = [hop.strip() for line in headers.getlist("x-forwarded-for") for hop in line.split(",")]
        scheme = headers.get("x-forwarded-proto", "").strip().lower()
        client = self._client(hops)
        # In place: the middleware outside of this one reads the same scope afterwards.
        scope["client"] = (client or client_host(scope), 0)
        scope["scheme"] = scheme if scheme in _SCHEMES else scope["scheme"]
        if client is None:
            await self._app(scope, receive, send)
        else:
            await self._run_counted(counted_address(client), scope, receive, send)

    async def _run_counted(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        if self._open[address] >= self._max_open:
            await _too_many(self._max_open).response()(scope, receive, send)
            return
        self._open[address] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    def _client(self, hops: list[str]) -> str | None:
        """The last hop that is not a known proxy; None if there is none, or one cannot be parsed."""
        for hop in reversed(hops):
            if parse_address(hop) is None:
                return None
            if not is_in(hop, self._proxies):
                return hop
        return None


def _too_many(limit: int) -> Problem:
    detail = f"more than {limit} open requests from one address: close some and try again"
    return Problem(429, "too_many_connections", detail, {"Retry-After": "5"})
