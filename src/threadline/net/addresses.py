"""Which addresses a request may go to. A host is resolved once, and the connection uses the resolved address.

With `public_only`, internal addresses (loopback, private, link-local, metadata services) are refused however they are
spelled, and so are ports of other protocols. Check and connection use the same result, so a DNS name that changes
between them (DNS rebinding) has no effect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import NamedTuple
from urllib.parse import urlsplit

from threadline.core.errors import SettingsInvalid, quote
from threadline.net.retry import RequestFailed

_WEB_PORTS = frozenset((80, 443))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Target(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"


def parse_url(url: str) -> Target:
    """SettingsInvalid for anything but a plain http or https URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise SettingsInvalid(f"{quote(url)} is not a URL: {exc}") from exc
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or any(c <= " " for c in url):
        raise SettingsInvalid(f"URL must start with http:// or https:// and be plain ASCII, got {quote(url)}")
    if "@" in parts.netloc:
        # The URL is not quoted: it contains a password.
        raise SettingsInvalid("URL must not contain a user or password: use the setting for the token")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path)


async def resolve(target: Target, *, public_only: bool) -> list[str]:
    """The IP addresses to try, in order. RequestFailed if there is none, or if `public_only` forbids one of them."""
    if public_only and target.port not in _WEB_PORTS and target.port < 1024:
        raise RequestFailed(f"the agent's port must be 80, 443 or at least 1024, got {target.port}")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise RequestFailed("the agent's host name cannot be resolved", transient=True) from exc
    addresses = [str(entry[4][0]) for entry in found]
    if public_only and not all(is_public(address) for address in addresses):
        raise RequestFailed("the agent's address must be public, got an internal one")
    return list(dict.fromkeys(addresses))


def is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo[1] if parsed.teredo else None)
        if inner is None and parsed in _NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return parsed.is_global and not parsed.is_multicast
