"""A gate between the bot and its homeserver: it lets everything through until it is told to refuse, or to be away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from tests.matrix.bot_fixtures import World

_NOT_PASSED_ON = {"host", "content-length", "transfer-encoding", "content-encoding", "connection"}


class Gate:
    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._refused: str | None = None
        self._lost: str | None = None
        self._unanswered: str | None = None
        self._away = asyncio.Event()
        self._limits = 0
        self._holds_keys = False
        self._held_keys: list[Any] = []
        self.turned_away = asyncio.Event()
        """Set when someone came while it was away, or for what is lost."""
        self.synced = asyncio.Event()
        """Set when a sync was answered."""
        self.slowed = asyncio.Event()
        """Set when a message came too soon."""
        self.gave_keys = asyncio.Event()
        """Set when keys for encrypted rooms went through."""

    def refuse(self, path: str) -> None:
        """Whatever has this in its path is forbidden."""
        self._refused = path

    def lose(self, path: str) -> None:
        """Whatever has this in its path gets no answer."""
        self._lost = path

    def keep_answers(self, path: str) -> None:
        """Forwards requests with this in their path and drops the responses."""
        self._unanswered = path

    def go_away(self) -> None:
        """Stops answering."""
        self._away.set()

    def limit(self, times: int) -> None:
        """The next so many messages come too soon."""
        self._limits = times

    def hold_keys(self) -> None:
        """Keys for encrypted rooms are kept back until the gate is open again."""
        self._holds_keys = True

    def give_keys(self) -> None:
        self._holds_keys = False

    def open(self) -> None:
        self.give_keys()
        self._refused = None
        self._lost = None
        self._unanswered = None
        self._away.clear()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self._away.is_set() or (self._lost is not None and self._lost in request.path):
            return self._broken(request)
        if self._refused is not None and self._refused in request.path:
            return web.json_response({"errcode": "M_FORBIDDEN", "error": "not today"}, status=403)
        if self._limits and "/send/" in request.path:
            self._limits -= 1
            self.slowed.set()
            error = {"errcode": "M_LIMIT_EXCEEDED", "error": "too fast", "retry_after_ms": 20}
            return web.json_response(error, status=429)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED_ON}
        body = await request.read()
        async with (
            aiohttp.ClientSession(auto_decompress=True) as session,
            session.request(request.method, self._upstream + request.path_qs, data=body, headers=headers) as found,
        ):
            text = await found.read()
        if self._away.is_set() or (self._unanswered is not None and self._unanswered in request.path):
            return self._broken(request)
        if request.path.endswith("/sync"):
            self.synced.set()
            text = self._without_keys(text)
        return web.Response(status=found.status, body=text, content_type="application/json")

    def _without_keys(self, text: bytes) -> bytes:
        told = json.loads(text)
        self._held_keys += told.get("to_device", {}).get("events", [])
        keys, self._held_keys = ([], self._held_keys) if self._holds_keys else (self._held_keys, [])
        if keys:
            self.gave_keys.set()
        return json.dumps({**told, "to_device": {"events": keys}}).encode()

    def _broken(self, request: web.Request) -> web.Response:
        self.turned_away.set()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


@asynccontextmanager
async def gate_to(world: World) -> AsyncIterator[Gate]:
    """Puts a gate before the bot of this world."""
    gate = Gate(world.synapse.url)
    app = web.Application(client_max_size=10_000_000)
    app.router.add_route("*", "/{path:.*}", gate.answer)
    # A bot that is gone must not be told anything any more: the keys it would be given are lost to its next life.
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    world.change(homeserver=f"http://127.0.0.1:{port}")
    try:
        yield gate
    finally:
        await runner.cleanup()
