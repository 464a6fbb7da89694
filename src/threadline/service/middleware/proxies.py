"""The client's address behind proxies, from `X-Forwarded-For` and `X-Forwarded-Proto`.

The headers are only believed if the connection comes from a proxy named in the settings. Then the hops are read from
right to left: the first address that is not a known proxy is the client. What is further left could be forged.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from threadline.core.errors import SettingsInvalid

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_SCHEMES = frozenset(("http", "https"))


def read_networks(proxies: Sequence[str]) -> tuple[Network, ...]:
    """SettingsInvalid for an entry that is neither an address nor a network."""
    try:
        return tuple(ipaddress.ip_network(proxy) for proxy in proxies)
    except ValueError as exc:
        raise SettingsInvalid(f"service.proxies: {exc}") from exc


class ClientAddress:
    """Sets `client` and `scheme` of the ASGI scope."""

    def __init__(self, app: ASGIApp, *, proxies: tuple[Network, ...]) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._proxies and scope["type"] == "http" and self._is_proxy((scope.get("client") or ("", 0))[0]):
            headers = Headers(scope=scope)
            hops = [hop.strip() for line in headers.getlist("x-forwarded-for") for hop in line.split(",")]
            scheme = headers.get("x-forwarded-proto", "").strip().lower()
            # In place: the middleware outside of this one reads the same scope afterwards.
            scope["client"] = (self._client(hops) or scope["client"][0], 0)
            scope["scheme"] = scheme if scheme in _SCHEMES else scope["scheme"]
        await self._app(scope, receive, send)

    def _client(self, hops: list[str]) -> str | None:
        """The last hop that is not a known proxy; None if there is none, or one cannot be parsed."""
        for hop in reversed(hops):
            if _parse(hop) is None:
                return None
            if not self._is_proxy(hop):
                return hop
        return None

    def _is_proxy(self, host: str) -> bool:
        address = _parse(host)
        return address is not None and any(address in network for network in self._proxies)


def _parse(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    # A dual-stack socket reports IPv4 clients as mapped IPv6 addresses.
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address
