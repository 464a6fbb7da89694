"""One request over HTTP/1.1, its answer streamed: h11 on asyncio's own sockets, nothing else.

No redirect is followed, no compression asked for, no proxy used, and every wait has an end. What goes wrong is a Fault
that says whether trying again may help.
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
from threadline.net.retry import Fault

try:
    import h11
except ModuleNotFoundError as exc:
    raise ExtraMissing("remote", "an agent behind HTTP") from exc

CONNECT_SECONDS = 10.0
_PIECE = 65_536
_BROKEN_OFF = "The agent broke off in the middle of its answer."


class Unreached(Fault):
    """Nothing was sent."""


class HttpReply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: AsyncGenerator[bytes, None]


@asynccontextmanager
async def post(
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    *,
    silence_seconds: float,
    public_only: bool,
    method: str = "POST",
) -> AsyncIterator[HttpReply]:
    """The answer's head; reading `body` reads the rest. Leaving closes the connection. Unreached if nothing was sent;
    after another Fault nobody knows."""
    reader, writer = await _connect(target, public_only=public_only)
    exchange = _Exchange(reader, writer, silence_seconds)
    try:
        yield await exchange.ask(method, target, body, headers)
    finally:
        writer.close()
        with suppress(OSError, ssl.SSLError, TimeoutError):
            async with asyncio.timeout(1):
                await writer.wait_closed()


async def _connect(target: Target, *, public_only: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    secure: dict[str, Any] = {}
    if target.scheme == "https":
        secure = {"ssl": _trusting_the_system(), "server_hostname": target.host}
    failure: OSError | TimeoutError | None = None
    for address in await _addresses(target, public_only=public_only):
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(address, target.port, **secure)
        except ssl.SSLError as exc:
            raise Unreached("The agent's certificate could not be verified.") from exc
        except (OSError, TimeoutError) as exc:
            failure = exc
    raise Unreached("The agent could not be reached.", passing=True) from failure


@functools.cache
def _trusting_the_system() -> ssl.SSLContext:
    """Made once: to read the system's certificates takes longer than most answers."""
    return ssl.create_default_context()


async def _addresses(target: Target, *, public_only: bool) -> list[str]:
    try:
        return await resolve(target, public_only=public_only)
    except Fault as fault:
        raise Unreached(str(fault), passing=fault.passing) from fault


class _Exchange:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_seconds: float) -> None:
        self._reader = reader
        self._writer = writer
        self._silence = silence_seconds
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_PIECE)

    async def ask(self, method: str, target: Target, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        sent = {
            "host": target.authority,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "accept-encoding": "identity",
            "connection": "close",
            **headers,
        }
        request = h11.Request(method=method, target=target.path, headers=list(sent.items()))
        # An agent that answers before it has read everything has hung up on the rest; its answer still counts.
        with suppress(ConnectionError, TimeoutError):
            for part in (request, h11.Data(data=body), h11.EndOfMessage()):
                self._writer.write(self._protocol.send(part) or b"")
            async with asyncio.timeout(self._silence):
                await self._writer.drain()
        head = await self._next_event()
        while isinstance(head, h11.InformationalResponse):
            head = await self._next_event()
        if not isinstance(head, h11.Response):
            raise Fault("The agent closed the connection without an answer.", passing=True)
        said = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        if said.get("content-encoding", "identity") != "identity":
            raise Fault("The agent compressed its answer, which it was not asked to.")
        return HttpReply(head.status_code, said, self._body())

    async def _body(self) -> AsyncGenerator[bytes, None]:
        while True:
            event = await self._next_event()
            match event:
                case h11.Data():
                    yield bytes(event.data)
                case h11.EndOfMessage():
                    return
                case _:
                    raise Fault(_BROKEN_OFF, passing=True)

    async def _next_event(self) -> Any:
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout(self._silence):
                    self._protocol.receive_data(await self._reader.read(_PIECE))
        except TimeoutError as exc:
            raise Fault("The agent did not answer in time.", passing=True) from exc
        except h11.RemoteProtocolError as exc:
            raise Fault(_BROKEN_OFF, passing=True) from exc
        except OSError as exc:
            raise Fault(_BROKEN_OFF, passing=True) from exc
        return event
