"""Whose request it is when a proxy stands in between: `X-Forwarded-For` and `X-Forwarded-Proto`, where they are true.

A header is worth what its sender is. The last hop is read from the connection; if that is a proxy of the settings, the
hop before it is what the proxy says, and so on back, until an address that is no proxy of ours: that one is the
client. Whatever stands further left is anybody's word.
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


def networks(proxies: Sequence[str]) -> tuple[Network, ...]:
    """SettingsInvalid for what is no address and no network."""
    try:
        return tuple(ipaddress.ip_network(proxy) for proxy in proxies)
    except ValueError as exc:
        raise SettingsInvalid(f"service.proxies: {exc}") from exc


class ClientAddress:
    """Puts the client's address and scheme where everyone looks for them."""

    def __init__(self, app: ASGIApp, *, proxies: tuple[Network, ...]) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._proxies and scope["type"] == "http" and self._is_proxy((scope.get("client") or ("", 0))[0]):
            headers = Headers(scope=scope)
            hops = [hop.strip() for line in headers.getlist("x-forwarded-for") for hop in line.split(",")]
            scheme = headers.get("x-forwarded-proto", "").strip().lower()
            # In place: those who stand before look at the same scope afterwards.
            scope["client"] = (self._client(hops) or scope["client"][0], 0)
            scope["scheme"] = scheme if scheme in _SCHEMES else scope["scheme"]
        await self._app(scope, receive, send)

    def _client(self, hops: list[str]) -> str | None:
        """The last hop that is no proxy of ours; None if the proxy named none that can be read."""
        for hop in reversed(hops):
            if _parsed(hop) is None:
                return None
            if not self._is_proxy(hop):
                return hop
        return None

    def _is_proxy(self, host: str) -> bool:
        address = _parsed(host)
        return address is not None and any(address in network for network in self._proxies)


def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address
