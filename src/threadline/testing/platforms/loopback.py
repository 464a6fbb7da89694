"""HTTP/1.1 on loopback, the least of it: a server that asks a function for each answer, and one request out.

One exchange per connection. It is for stand-ins and for the services they talk to, and binds nothing but 127.0.0.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import h11

_PIECE = 65_536
# For a whole exchange: a client that stops in the middle must not keep the test waiting.
_SECONDS = 30.0


class Asked(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


class Told(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


class HungUp(Exception):
    """Raised by a function that answers: the connection is closed without a word."""


Answering: TypeAlias = Callable[[Asked], Awaitable[Told]]


class LoopbackServer:
    """Serves from `start` to `close`; `url` is its address."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self._server: asyncio.Server | None = None
        self._exchanges: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None, "the server has not been started"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._exchange, "127.0.0.1", port)

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for exchange in self._exchanges:
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)
        await self._server.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._exchanges.add(task)
        try:
            # A caller that goes away, or speaks something else, is no concern of the server's.
            with suppress(HungUp, OSError, TimeoutError, h11.RemoteProtocolError, asyncio.CancelledError):
                await self._converse(reader, writer)
        finally:
            self._exchanges.discard(task)
            await _closed(writer)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = h11.Connection(h11.SERVER)
        head, body = await _message(protocol, reader)
        target = urlsplit(head.target.decode("latin-1"))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        query = dict(parse_qsl(target.query, keep_blank_values=True))
        told = await self._answering(Asked(head.method.decode(), target.path, query, headers, body))
        sent = {"content-type": "application/json", **told.headers, "connection": "close"}
        length = ("content-length", str(len(told.body)))
        answer = h11.Response(status_code=told.status, headers=[*sent.items(), length])
        for part in (answer, h11.Data(data=told.body), h11.EndOfMessage()):
            writer.write(protocol.send(part) or b"")
        await writer.drain()


async def ask(method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Told:
    """One request to a plain http address. OSError or TimeoutError if there is no answer."""
    target = urlsplit(url)
    async with asyncio.timeout(_SECONDS):
        reader, writer = await asyncio.open_connection(target.hostname, target.port or 80)
        try:
            protocol = h11.Connection(h11.CLIENT)
            path = f"{target.path or '/'}?{target.query}" if target.query else target.path or "/"
            sent = {"host": target.netloc, **headers, "connection": "close", "content-length": str(len(body))}
            request = h11.Request(method=method, target=path, headers=list(sent.items()))
            for part in (request, h11.Data(data=body), h11.EndOfMessage()):
                writer.write(protocol.send(part) or b"")
            head, said = await _message(protocol, reader)
            found = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
            return Told(head.status_code, said, found)
        except h11.RemoteProtocolError as exc:
            raise ConnectionResetError("the answer broke off") from exc
        finally:
            await _closed(writer)


async def _message(protocol: h11.Connection, reader: asyncio.StreamReader) -> tuple[Any, bytes]:
    head: Any = None
    body = bytearray()
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            protocol.receive_data(await reader.read(_PIECE))
        elif isinstance(event, h11.Request | h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return head, bytes(body)
        elif isinstance(event, h11.ConnectionClosed):
            raise ConnectionResetError("closed before anything was said")


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        # A peer that never closes its half must not keep the test waiting.
        async with asyncio.timeout(1):
            await writer.wait_closed()
