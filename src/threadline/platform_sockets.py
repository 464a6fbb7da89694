"""WebSockets to messaging platforms: only to the platforms' own hosts, over TLS.

The settings may name a simulator on this machine instead. The library answers pings and sends its own, so that a
connection that is silently gone is noticed within a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from threadline.core.errors import SettingsInvalid
from threadline.core.platform_messages import Transient
from threadline.net.addresses import Target, parse_url, resolve
from threadline.net.retry import RequestFailed
from threadline.version import __version__

log = logging.getLogger("threadline.socket_mode")

_SCHEMES = {"wss": "https", "ws": "http"}
_DOMAIN = ".slack.com"
_LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))
# Larger than any event: Slack cuts texts at 40,000 characters.
_LONGEST_FRAME = 4 * 1_048_576
_CONNECT_SECONDS = 10.0
_PING_SECONDS = 20.0
# Slack does not close the TCP connection after the closing handshake.
_CLOSE_SECONDS = 1.0


class PlatformSockets:
    """`stand_ins` are addresses of simulated platforms on this machine: with one, its connections may stay here."""

    def __init__(self, stand_ins: Iterable[str] = ()) -> None:
        self._may_be_local = bool(list(stand_ins))

    async def open(self, url: str) -> PlatformSocket | Transient:
        target = _target(url)
        is_local = target is not None and target.scheme == "http" and self._may_be_local and target.host in _LOOPBACK
        if target is None or not (is_local or (target.scheme == "https" and target.host.endswith(_DOMAIN))):
            return Transient("the address is not a platform's")
        try:
            addresses = await resolve(target, public_only=not is_local)
            connection = await connect(
                url,
                # The address that was checked is the one that is used.
                host=addresses[0],
                port=target.port,
                open_timeout=_CONNECT_SECONDS,
                ping_interval=_PING_SECONDS,
                ping_timeout=_PING_SECONDS,
                close_timeout=_CLOSE_SECONDS,
                max_size=_LONGEST_FRAME,
                user_agent_header=f"threadline/{__version__}",
                proxy=None,
                logger=_library_log(),
            )
        except (RequestFailed, WebSocketException, OSError, TimeoutError):
            # Their texts may contain the address, which is a secret.
            return Transient("the platform could not be reached", is_outage=True)
        return PlatformSocket(connection)


class PlatformSocket:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def receive(self) -> str | None:
        try:
            frame = await self._connection.recv()
        except ConnectionClosed:
            return None
        return frame if isinstance(frame, str) else frame.decode(errors="replace")

    async def send(self, frame: str) -> None:
        try:
            await self._connection.send(frame)
        except ConnectionClosed:
            log.info("acknowledgement not sent: the connection is closed")

    async def close(self) -> None:
        await self._connection.close()


def _target(url: str) -> Target | None:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        return None
    try:
        return parse_url(f"{_SCHEMES[scheme]}://{rest}")
    except SettingsInvalid:
        return None


def _library_log() -> logging.Logger:
    """The library logs whole frames and addresses at its lower levels."""
    quiet = logging.getLogger("threadline.socket_mode.library")
    quiet.setLevel(logging.ERROR)
    return quiet
