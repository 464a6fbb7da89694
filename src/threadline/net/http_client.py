"""One HTTP/1.1 request with a streamed response: h11 on asyncio sockets.

No redirects, no compression, no proxies, and a timeout on every wait. Failures are RequestFailed, which says whether a
retry may help.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from threadline.core.errors import ExtraMissing
from threadline.net.addresses import Target, resolve
from threadline.net.retry import RequestFailed

try:
    import h11
except ModuleNotFoundError as exc:
    raise ExtraMissing("remote", "a remote agent") from exc

CONNECT_SECONDS = 10.0
"""Per address. Shorter than the read timeout: a server that is up accepts a connection within a second or two."""
CLOSE_SECONDS = 1.0
"""A TLS peer may never answer the closing handshake; nothing more is read, so it is not worth waiting for."""
_READ_SIZE = 65_536
_BROKEN_OFF = "the agent closed the connection too early"


class NotSent(RequestFailed):
    """The connection could not be made, so nothing was sent: repeating the request cannot do anything twice."""


class HttpReply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: AsyncGenerator[bytes, None]


@asynccontextmanager
async def send_request(
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    *,
    silence_seconds: float,
    public_only: bool,
    method: str = "POST",
) -> AsyncIterator[HttpReply]:
    """Status and headers of the response; iterate over `body` for the rest. Leaving closes the connection. NotSent if
    nothing was sent; after any other RequestFailed the server may have received the request."""
    reader, writer = await _connect(target, public_only=public_only)
    exchange = _Exchange(reader, writer, silence_seconds)
    try:
        yield await exchange.send(method, target, body, headers)
    finally:
        writer.close()
        with suppress(OSError, ssl.SSLError, TimeoutError):
            # A TLS peer that never answers the close must not hold the caller; the transport is dropped afterwards.
            async with asyncio.timeout(CLOSE_SECONDS):
                await writer.wait_closed()


async def _connect(target: Target, *, public_only: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    secure: dict[str, Any] = {}
    if target.scheme == "https":
        secure = {"ssl": _system_tls_context(), "server_hostname": target.host}
    failure: OSError | TimeoutError | None = None
    for address in await _addresses(target, public_only=public_only):
        try:
            # Per address: a host with one dead address still has time for the next one.
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(address, target.port, **secure)
        except ssl.SSLError as exc:
            raise NotSent("the agent's TLS certificate could not be verified") from exc
        except (OSError, TimeoutError) as exc:
            failure = exc
    raise NotSent("the agent could not be reached", transient=True) from failure


@functools.cache
def _system_tls_context() -> ssl.SSLContext:
    """Cached: reading the system's certificates takes longer than most requests."""
    return ssl.create_default_context()


async def _addresses(target: Target, *, public_only: bool) -> list[str]:
    try:
        return await resolve(target, public_only=public_only)
    except RequestFailed as error:
        raise NotSent(str(error), transient=error.transient) from error


class _Exchange:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_seconds: float) -> None:
        self._reader = reader
        self._writer = writer
        self._silence = silence_seconds
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_READ_SIZE)

    async def send(self, method: str, target: Target, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        all_headers = {
            "host": target.authority,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "accept-encoding": "identity",
            "connection": "close",
            **headers,
        }
        request = h11.Request(method=method, target=target.path, headers=list(all_headers.items()))
        # A server may reply and close before it has read the whole body; its reply still counts.
        with suppress(ConnectionError, TimeoutError):
            for part in (request, h11.Data(data=body), h11.EndOfMessage()):
                self._writer.write(self._protocol.send(part) or b"")
            # A server that does not read would block the write for ever.
            async with asyncio.timeout(self._silence):
                await self._writer.drain()
        head = await self._next_event()
        while isinstance(head, h11.InformationalResponse):
            head = await self._next_event()
        if not isinstance(head, h11.Response):
            raise RequestFailed("the agent closed the connection without a reply", transient=True)
        received = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        if received.get("content-encoding", "identity") != "identity":
            raise RequestFailed("the agent compressed its reply, which is not supported")
        return HttpReply(head.status_code, received, self._body())

    async def _body(self) -> AsyncGenerator[bytes, None]:
        while True:
            event = await self._next_event()
            match event:
                case h11.Data():
                    yield bytes(event.data)
                case h11.EndOfMessage():
                    return
                case _:
                    raise RequestFailed(_BROKEN_OFF, transient=True)

    async def _next_event(self) -> Any:
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                # The timeout is for silence, not for the whole reply: a model may stream for minutes.
                async with asyncio.timeout(self._silence):
                    self._protocol.receive_data(await self._reader.read(_READ_SIZE))
        except TimeoutError as exc:
            raise RequestFailed("the agent did not reply in time", transient=True) from exc
        except h11.RemoteProtocolError as exc:
            raise RequestFailed(_BROKEN_OFF, transient=True) from exc
        except OSError as exc:
            raise RequestFailed(_BROKEN_OFF, transient=True) from exc
        return event
