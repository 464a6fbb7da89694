"""Addresses of clients: which belong to trusted proxies, and under which one a client is counted."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

from starlette.types import Scope

from threadline.core.errors import SettingsInvalid

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

LOCAL_NETWORKS = ("127.0.0.0/8", "::1")
UNKNOWN = "unknown"
"""Counts the clients without an address, such as those of a Unix socket, together."""


def read_networks(proxies: Sequence[str]) -> tuple[Network, ...]:
    """SettingsInvalid for an entry that is neither an address nor a network."""
    try:
        return tuple(ipaddress.ip_network(proxy) for proxy in proxies)
    except ValueError as exc:
        raise SettingsInvalid(f"service.proxies: {exc}") from exc


def parse_address(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    # A dual-stack socket reports IPv4 clients as mapped IPv6 addresses.
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address


def is_in(host: str, networks: Sequence[Network]) -> bool:
    address = parse_address(host)
    return address is not None and any(address in network for network in networks)


def client_host(scope: Scope) -> str:
    """The address of an ASGI scope's client; empty if it has none."""
    host: str = (scope.get("client") or ("", 0))[0]
    return host


def counted_address(host: str) -> str:
    """IPv6 addresses count as their /64 network, because one customer has a whole network."""
    address = parse_address(host)
    if address is None:
        return UNKNOWN
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return str(address)
