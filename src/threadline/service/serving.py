"""Serving the app with uvicorn, inside a loop that is running already.

A wish to end (SIGTERM, SIGINT) is not passed on: no new requests are taken, turns get their time to end, and then
`serve` returns to whoever opened the database, who closes it.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from threadline.core.errors import SettingsInvalid

_BACKLOG = 2048


class Server(uvicorn.Server):
    """`ready` is set once requests are taken; the app's `ending`, once no more are, so that nobody waits for news."""

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
        if isinstance(app, Starlette):
            app.state.ending = self._ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's own sends the signal again afterwards, which ends the process before the database is closed."""
        yield


async def serve(server: Server, listening: socket.socket) -> None:
    """Until the process is told to end. A second SIGINT does not wait for anyone."""
    calm_collector()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: server.handle_exit(signal.SIGINT, None))
    try:
        await server.serve(sockets=[listening])
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


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
        raise SettingsInvalid(f"cannot serve on {host}:{port}: {exc.strerror}") from exc
    return found


def address_of(listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
