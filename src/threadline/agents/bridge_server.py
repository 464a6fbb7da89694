"""A small HTTP server for the bridge: one POST per connection, h11 on asyncio sockets.

With `Accept: text/event-stream` the reply is streamed, otherwise it is one JSON message. Errors are problem documents
with a stable code. Without a token the server listens on loopback only and accepts only loopback host names, so that a
web page cannot reach it through a browser (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, NamedTuple

from threadline.agents.bridge import Bridge
from threadline.core import events, jsontext
from threadline.core.errors import (
    AgentFailed,
    ExtraMissing,
    InvalidInput,
    LimitExceeded,
    SettingsInvalid,
    ThreadlineError,
    quote,
)
from threadline.core.events import Event

try:
    import h11
except ModuleNotFoundError as exc:
    raise ExtraMissing("remote", "the bridge") from exc

BODY_BYTES = 1_048_576
REQUEST_SECONDS = 30.0
"""For receiving the whole request: a client that sends slowly must not occupy a connection for ever."""
LINGER_SECONDS = 1.0
"""How long the rest of a rejected request is read and dropped, so that the client can read the response."""
_READ_SIZE = 65_536


class Problem(Exception):
    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code


class _Request(NamedTuple):
    method: str
    headers: dict[str, str]
    body: bytes


class BridgeServer:
    def __init__(self, bridge: Bridge, *, token: str | None = None) -> None:
        self._bridge = bridge
        self._token = token

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handles one connection. Never raises for what the client does."""
        connection = _Connection(reader, writer)
        try:
            try:
                request = await connection.read_request()
                self._check(request)
                await self._reply(connection, request)
            except Problem as problem:
                await connection.send_problem(problem)
            except ThreadlineError as exc:
                await connection.send_problem(_problem_of(exc))
        except (OSError, h11.ProtocolError, TimeoutError):
            # The client has disconnected, or does not speak HTTP: there is no one to send an error to.
            pass
        finally:
            writer.close()

    def _check(self, request: _Request) -> None:
        host = request.headers.get("host", "")
        if self._token is None and not _is_own_name(host):
            raise Problem(421, "misdirected", f"`Host` must name this machine, got {quote(host)}: send a token")
        given = request.headers.get("authorization", "").encode()
        if self._token is not None and not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            raise Problem(401, "unauthorized", "token is missing or wrong: send `Authorization: Bearer …`")
        if request.method != "POST":
            raise Problem(405, "method_not_allowed", f"method must be POST, got {quote(request.method)}")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" or "content-encoding" in request.headers:
            raise Problem(415, "unsupported_media_type", "payload must be uncompressed `application/json`")

    async def _reply(self, connection: _Connection, request: _Request) -> None:
        body = jsontext.parse_object(request.body, "payload")
        if "text/event-stream" not in request.headers.get("accept", ""):
            await connection.send_json(200, await self._bridge.reply(body))
            return
        async with aclosing(self._bridge.stream(body)) as reply:
            # Waits for the first event, so that an upstream that cannot be reached is an error response.
            first = await anext(reply, None)
            await connection.send_stream(_with_first(first, reply))


async def _with_first(first: Event | None, rest: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    if first is not None:
        yield first
    try:
        async for event in rest:
            yield event
    except AgentFailed as exc:
        yield events.Failure(str(exc))


def _is_own_name(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name in ("localhost", "[::1]") or _is_loopback(name)


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _problem_of(error: ThreadlineError) -> Problem:
    status = 413 if isinstance(error, LimitExceeded) else 400 if isinstance(error, InvalidInput) else 502
    return Problem(status, error.code, str(error))


class _Connection:
    """Reads one request and writes one response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_READ_SIZE)

    async def read_request(self) -> _Request:
        # A client that sends half a request must not keep its connection for ever.
        async with asyncio.timeout(REQUEST_SECONDS):
            head = await self._next()
            if not isinstance(head, h11.Request):
                raise h11.RemoteProtocolError("no request")
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
            if int(headers.get("content-length", 0)) > BODY_BYTES:
                raise LimitExceeded("payload size in bytes", BODY_BYTES, int(headers["content-length"]))
            body = b""
            while isinstance(part := await self._next(), h11.Data):
                body += part.data
                if len(body) > BODY_BYTES:
                    raise LimitExceeded("payload size in bytes", BODY_BYTES, len(body))
        return _Request(head.method.decode(), headers, body)

    async def _next(self) -> Any:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            if self._protocol.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._protocol.receive_data(await self._reader.read(_READ_SIZE))
        return event

    async def send_json(self, status: int, value: dict[str, Any], kind: str = "application/json") -> None:
        raw = jsontext.dump(value, "reply")
        headers = [("content-type", kind), ("content-length", str(len(raw))), ("connection", "close")]
        await self._send(h11.Response(status_code=status, headers=headers), h11.Data(data=raw), h11.EndOfMessage())

    async def send_problem(self, problem: Problem) -> None:
        body = {"title": str(problem), "status": problem.status, "code": problem.code}
        await self.send_json(problem.status, body, "application/problem+json")
        # Closing with unread bytes resets the connection, and the client would not see the response.
        self._writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while await self._reader.read(_READ_SIZE):
                    pass

    async def send_stream(self, reply: AsyncGenerator[Event, None]) -> None:
        headers = [("content-type", "text/event-stream"), ("cache-control", "no-store"), ("connection", "close")]
        await self._send(h11.Response(status_code=200, headers=headers))
        async with aclosing(reply):
            async for event in reply:
                await self._send(h11.Data(data=b"data: " + _event_json(event) + b"\n\n"))
        await self._send(h11.Data(data=b"data: [DONE]\n\n"), h11.EndOfMessage())

    async def _send(self, *parts: Any) -> None:
        for part in parts:
            self._writer.write(self._protocol.send(part) or b"")
        await self._writer.drain()


def _event_json(event: Event) -> bytes:
    if isinstance(event, events.Failure):
        return jsontext.dump({"type": "error", "errorText": event.error}, "reply")
    return events.to_json(event)


@asynccontextmanager
async def serve_bridge(
    bridge: Bridge, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None
) -> AsyncIterator[str]:
    """Serves the bridge and yields its URL. SettingsInvalid for a public address without a token."""
    if token is not None and not token.strip():
        raise SettingsInvalid("token must not be empty: set a value, or omit it")
    if token is None and not _is_loopback(host):
        raise SettingsInvalid(f"token is missing: other machines can reach {host}, so the bridge must have one")
    try:
        server = await asyncio.start_server(BridgeServer(bridge, token=token).serve, host, port)
    except (OSError, OverflowError) as exc:
        # The message of asyncio repeats the address, so only the reason is used.
        number = getattr(exc, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else str(exc)
        raise SettingsInvalid(f"bridge cannot listen on {host} port {port}: {reason}") from exc
    async with server:
        bound, *_ = server.sockets
        name, number = bound.getsockname()[:2]
        yield f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"
