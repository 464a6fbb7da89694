"""The bridge's own small HTTP server: one POST per connection, h11 on asyncio's own sockets.

`Accept: text/event-stream` streams the answer, anything else gets it as one JSON message. What is wrong with a request
is answered as a problem with a stable code. Without a token it serves this machine only, and only under its own names,
so that a web page cannot reach it by way of a browser.
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
)
from threadline.core.events import Event

try:
    import h11
except ModuleNotFoundError as exc:
    raise ExtraMissing("remote", "the bridge") from exc

BODY_BYTES = 1_048_576
REQUEST_SECONDS = 30.0
LINGER_SECONDS = 1.0
_PIECE = 65_536


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
        """One connection, from its request to its end."""
        wire = _Wire(reader, writer)
        try:
            try:
                request = await wire.request()
                self._admit(request)
                await self._answer(wire, request)
            except Problem as problem:
                await wire.refuse(problem)
            except ThreadlineError as exc:
                await wire.refuse(_problem_of(exc))
        except (OSError, h11.ProtocolError, TimeoutError):
            # Whoever asked has gone, or never spoke HTTP.
            pass
        finally:
            writer.close()

    def _admit(self, request: _Request) -> None:
        host = request.headers.get("host", "")
        if self._token is None and not _is_own_name(host):
            raise Problem(421, "misdirected", "this bridge answers only under this machine's own names")
        given = request.headers.get("authorization", "").encode()
        if self._token is not None and not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            raise Problem(401, "unauthorized", "the bridge needs its token: Authorization: Bearer …")
        if request.method != "POST":
            raise Problem(405, "method_not_allowed", "post a dispatch payload")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" or "content-encoding" in request.headers:
            raise Problem(415, "unsupported_media_type", "the payload is application/json, not compressed")

    async def _answer(self, wire: _Wire, request: _Request) -> None:
        body = jsontext.parse(request.body, "the payload")
        if not isinstance(body, dict):
            raise InvalidInput("the payload is a JSON object")
        if "text/event-stream" not in request.headers.get("accept", ""):
            await wire.reply(200, await self._bridge.reply(body))
            return
        async with aclosing(self._bridge.stream(body)) as said:
            # The first event is waited for, so that a server that cannot be asked is an error and not a stream.
            first = await anext(said, None)
            await wire.stream(_with_first(first, said))


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


class _Wire:
    """One connection's bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_PIECE)

    async def request(self) -> _Request:
        async with asyncio.timeout(REQUEST_SECONDS):
            head = await self._next()
            if not isinstance(head, h11.Request):
                raise h11.RemoteProtocolError("no request")
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
            if int(headers.get("content-length", 0)) > BODY_BYTES:
                raise LimitExceeded("the payload's size in bytes", BODY_BYTES, int(headers["content-length"]))
            body = b""
            while isinstance(part := await self._next(), h11.Data):
                body += part.data
                if len(body) > BODY_BYTES:
                    raise LimitExceeded("the payload's size in bytes", BODY_BYTES, len(body))
        return _Request(head.method.decode(), headers, body)

    async def _next(self) -> Any:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            if self._protocol.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._protocol.receive_data(await self._reader.read(_PIECE))
        return event

    async def reply(self, status: int, value: dict[str, Any], kind: str = "application/json") -> None:
        raw = jsontext.dump(value, "the answer")
        headers = [("content-type", kind), ("content-length", str(len(raw))), ("connection", "close")]
        await self._send(h11.Response(status_code=status, headers=headers), h11.Data(data=raw), h11.EndOfMessage())

    async def refuse(self, problem: Problem) -> None:
        body = {"title": str(problem), "status": problem.status, "code": problem.code}
        await self.reply(problem.status, body, "application/problem+json")
        # Closing on bytes that were not read resets the connection, and the refusal is lost with it.
        self._writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while await self._reader.read(_PIECE):
                    pass

    async def stream(self, said: AsyncGenerator[Event, None]) -> None:
        headers = [("content-type", "text/event-stream"), ("cache-control", "no-store"), ("connection", "close")]
        await self._send(h11.Response(status_code=200, headers=headers))
        async with aclosing(said):
            async for event in said:
                await self._send(h11.Data(data=b"data: " + _event_json(event) + b"\n\n"))
        await self._send(h11.Data(data=b"data: [DONE]\n\n"), h11.EndOfMessage())

    async def _send(self, *parts: Any) -> None:
        for part in parts:
            self._writer.write(self._protocol.send(part) or b"")
        await self._writer.drain()


def _event_json(event: Event) -> bytes:
    if isinstance(event, events.Failure):
        return jsontext.dump({"type": "error", "errorText": event.error}, "the answer")
    return events.to_json(event)


@asynccontextmanager
async def serving(
    bridge: Bridge, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None
) -> AsyncIterator[str]:
    """The bridge's address, while it is served. SettingsInvalid for an address others can reach without a token."""
    if token is not None and not token.strip():
        raise SettingsInvalid("the bridge's token is empty: give it a value, or leave it out")
    if token is None and not _is_loopback(host):
        raise SettingsInvalid(f"the bridge serves {host} only with a token: without one, anyone there could use it")
    try:
        server = await asyncio.start_server(BridgeServer(bridge, token=token).serve, host, port)
    except (OSError, OverflowError) as exc:
        # asyncio's own words repeat the address.
        number = getattr(exc, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else str(exc)
        raise SettingsInvalid(f"the bridge cannot listen on {host} port {port}: {reason}") from exc
    async with server:
        bound, *_ = server.sockets
        name, number = bound.getsockname()[:2]
        yield f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"
