"""Where a request may go: the host is resolved here, once, and the connection is made to what was found.

With `public_only`, an address inside the house (loopback, private, link-local, a metadata service) is refused however
it is spelled, and so is a port that belongs to another protocol. Because the check and the connection use the same
answer, a name that changes its mind in between changes nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import NamedTuple
from urllib.parse import urlsplit

from threadline.core.errors import SettingsInvalid
from threadline.net.retry import Fault

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
    """SettingsInvalid for anything but a plain http or https address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise SettingsInvalid(f"{url!r} is no address: {exc}") from exc
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or any(c <= " " for c in url):
        raise SettingsInvalid(f"{url!r} is no address: give http://… or https://…")
    if "@" in parts.netloc:
        raise SettingsInvalid("an address holds no user or password: give the token as a setting of its own")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path)


async def resolve(target: Target, *, public_only: bool) -> list[str]:
    """The addresses to try, in order. Fault if there is none, or if one of them may not be reached."""
    if public_only and target.port not in _WEB_PORTS and target.port < 1024:
        raise Fault(f"The agent's port {target.port} may not be used.")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise Fault("The agent's address cannot be found.", passing=True) from exc
    addresses = [str(entry[4][0]) for entry in found]
    if public_only and not all(is_public(address) for address in addresses):
        raise Fault("The agent's address is not a public one.")
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
