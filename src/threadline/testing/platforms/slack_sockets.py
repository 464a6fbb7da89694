"""Slack's Socket Mode: connections that the service opens, and envelopes that it acknowledges.

It follows Slack's public rules: the address of a connection works once; an app has ten connections at most; an envelope
goes to one of them and is repeated, under a new id, if it is not acknowledged within three seconds; nothing is
deduplicated. `retry_seconds` are the waits before each repetition.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from threadline.core.ids import new_id

_MOST_CONNECTIONS = 10


class NotAcknowledged(Exception):
    """No connection acknowledged the envelope, however often it was sent."""


class SlackSockets:
    """`connections` are open and take envelopes; `attempts` counts envelopes, repetitions included."""

    def __init__(self, *, ack_seconds: float = 3.0, retry_seconds: Sequence[float] = (0.0, 60.0, 300.0)) -> None:
        self.ack_seconds = ack_seconds
        self.retry_seconds = retry_seconds
        self._tickets: set[str] = set()
        self._acknowledged: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._server: Server | None = None
        self._changed = asyncio.Condition()
        self._turn = 0
        self.connections: list[ServerConnection] = []
        self.opened = 0
        self.attempts = 0

    async def start(self) -> None:
        self._server = await serve(self._hold, "127.0.0.1", 0, process_request=self._check_ticket)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close(close_connections=True)
            await self._server.wait_closed()

    def new_url(self) -> str:
        """What `apps.connections.open` returns."""
        assert self._server is not None, "the server has not been started"
        ticket = new_id()
        self._tickets.add(ticket)
        port = next(iter(self._server.sockets)).getsockname()[1]
        return f"ws://127.0.0.1:{port}/link/?ticket={ticket}&app_id=A0FAKE"

    def _check_ticket(self, connection: ServerConnection, request: Request) -> Response | None:
        (ticket,) = parse_qs(urlsplit(request.path).query).get("ticket", [""])
        if ticket not in self._tickets:
            return connection.respond(HTTPStatus.FORBIDDEN, "expired ticket")
        self._tickets.remove(ticket)
        return None

    async def _hold(self, connection: ServerConnection) -> None:
        if len(self.connections) >= _MOST_CONNECTIONS:
            await connection.send(json.dumps({"type": "disconnect", "reason": "too_many_websockets"}))
            return
        about = {"host": "fake", "approximate_connection_time": 18_060}
        hello = {"type": "hello", "num_connections": len(self.connections) + 1, "debug_info": about}
        await connection.send(json.dumps({**hello, "connection_info": {"app_id": "A0FAKE"}}))
        async with self._changed:
            self.connections.append(connection)
            self.opened += 1
            self._changed.notify_all()
        try:
            async for frame in connection:
                acknowledged = json.loads(frame)
                waiting = self._acknowledged.get(acknowledged["envelope_id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(acknowledged)
        finally:
            async with self._changed:
                self._forget(connection)
                self._changed.notify_all()

    async def until_connected(self, opened: int = 1, seconds: float = 60.0) -> None:
        """Until so many connections were opened in all, and one is open. TimeoutError."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: self.opened >= opened and bool(self.connections))

    async def push(self, kind: str, payload: Any) -> dict[str, Any]:
        """Delivers an envelope until it is acknowledged: the acknowledgement. NotAcknowledged."""
        for attempt, wait in enumerate((0.0, *self.retry_seconds)):
            await asyncio.sleep(wait)
            retried = {"retry_attempt": attempt, "retry_reason": "timeout" if attempt else ""}
            found = await self._push_once(kind, payload, retried if kind == "events_api" else {})
            if found is not None:
                return found
        raise NotAcknowledged

    async def _push_once(self, kind: str, payload: Any, more: dict[str, Any]) -> dict[str, Any] | None:
        if not self.connections:
            return None
        self._turn += 1
        connection = self.connections[self._turn % len(self.connections)]
        envelope_id = new_id()
        waiting = self._acknowledged[envelope_id] = asyncio.get_running_loop().create_future()
        self.attempts += 1
        about = {"type": kind, "envelope_id": envelope_id, "accepts_response_payload": kind != "events_api"}
        try:
            await connection.send(json.dumps({**about, "payload": payload, **more}))
            async with asyncio.timeout(self.ack_seconds):
                return dict(await waiting)
        except (ConnectionClosed, TimeoutError):
            return None
        finally:
            del self._acknowledged[envelope_id]

    async def send_all(self, frame: str) -> None:
        for connection in self.connections:
            await connection.send(frame)

    async def disconnect(self, reason: str = "refresh_requested", *, drain_seconds: float = 0.05) -> None:
        """Announces to every connection that it will be closed, sends it no more envelopes, and closes it."""
        closing = list(self.connections)
        for connection in closing:
            await connection.send(json.dumps({"type": "disconnect", "reason": reason, "debug_info": {"host": "fake"}}))
            self._forget(connection)
        await asyncio.sleep(drain_seconds)
        for connection in closing:
            await connection.close()

    def cut_off(self) -> None:
        """Every connection breaks without a word."""
        for connection in list(self.connections):
            connection.transport.abort()

    def _forget(self, connection: ServerConnection) -> None:
        with suppress(ValueError):
            self.connections.remove(connection)
