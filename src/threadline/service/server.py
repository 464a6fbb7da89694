"""Serving the app with uvicorn, inside a loop that is running already.

A wish to end (SIGTERM, SIGINT) is not passed on: no new requests are taken, turns get their time to end, and then
`serve` returns to whoever opened the database, who closes it.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.types import ASGIApp

from threadline.core.errors import SettingsInvalid

_BACKLOG = 2048


class Server(uvicorn.Server):
    """`ready` is set once requests are taken; the app's `ending`, once no more are, so that nobody waits for news, and
    its `deadline`, the loop's time by which its turns have to end; its `hurry`, if they are not to be waited for."""

    def __init__(self, app: ASGIApp, *, grace_seconds: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                timeout_graceful_shutdown=max(1, round(grace_seconds)),
            )
        )
        self.ready = asyncio.Event()
        self._ending = asyncio.Event()
        self._grace = grace_seconds
        self._state = app.state if isinstance(app, Starlette) else State()
        self._state.ending = self._ending
        self._state.hurry = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending.set()
        self._state.deadline = asyncio.get_running_loop().time() + self._grace
        await super().shutdown(sockets)
        if self.force_exit:
            # Uvicorn leaves the app as it is then; what its turns showed is to be kept.
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self.force_exit:
            self._state.hurry.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's own sends the signal again afterwards, which ends the process before the database is closed."""
        yield


async def serve(server: Server, listening: socket.socket, *, lifeline: int | None = None) -> None:
    """Until the process is told to end. A second SIGINT does not wait for anyone. The end of `lifeline`, a pipe from
    the parent, means that the parent is gone, and is the same wish."""
    calm_collector()
    loop = asyncio.get_running_loop()
    if lifeline is not None:
        loop.add_reader(lifeline, _look_at, lifeline, server)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: server.handle_exit(signal.SIGINT, None))
    try:
        await server.serve(sockets=[listening])
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _look_at(lifeline: int, server: Server) -> None:
    if not os.read(lifeline, 1):
        asyncio.get_running_loop().remove_reader(lifeline)
        server.handle_exit(signal.SIGINT, None)


def calm_collector() -> None:
    """What is there at the start is never garbage, and the collector need not look so often. With ten thousand open
    streams it stopped everything for a second every few words; this way a word reaches all of them in a quarter."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def listen(host: str, port: int) -> socket.socket:
    """Port 0 takes a free one. SettingsInvalid if the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise SettingsInvalid(f"cannot serve on {host}:{port}: {exc.strerror}") from exc
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(_BACKLOG)
    except OSError as exc:
        found.close()
        hint = "; --port chooses another, 0 a free one" if exc.errno == errno.EADDRINUSE else ""
        raise SettingsInvalid(f"cannot serve on {host}:{port}: {exc.strerror}{hint}") from exc
    return found


def address_of(listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
