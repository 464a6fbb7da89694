"""A uvicorn server inside a running event loop.

SIGTERM and SIGINT do not end the process directly: the server stops accepting requests, turns get their grace period,
and `serve` returns to its caller, which closes the database.
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
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from threadline.core.errors import SettingsInvalid
from threadline.observability.metrics import Metrics
from threadline.service.app import ServiceApp
from threadline.service.context import ConnectionPolicy, Shutdown
from threadline.service.process.connections import ConnectionTable, raise_descriptor_limit
from threadline.service.process.http_protocol import BoundedHttpProtocol
from threadline.settings import ConnectionLimits

# Connections that wait to be accepted while the loop is busy.
_BACKLOG = 2048
# asyncio accepts up to `backlog` connections before anything else runs, each in about 0.1 ms: a thousand clients that
# connect at once would delay everyone by a tenth of a second.
_ACCEPTED_AT_ONCE = 64
_ACCEPT_FAILED = "socket.accept() out of system resource"


class Server(uvicorn.Server):
    """`ready` is set once requests are accepted."""

    def __init__(self, app: ASGIApp, *, grace_seconds: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="on",
                # `process.logs` formats the log, and the middleware RequestLog logs requests.
                log_config=None,
                access_log=False,
                server_header=False,
                # The middleware ClientAddress reads them, from the configured proxies only.
                proxy_headers=False,
                ws="none",
                http=BoundedHttpProtocol,
                backlog=_ACCEPTED_AT_ONCE,
                timeout_graceful_shutdown=max(1, round(grace_seconds)),
            )
        )
        # First, because the table's limits follow from it.
        raise_descriptor_limit()
        policy = app.connections if isinstance(app, ServiceApp) else ConnectionPolicy(ConnectionLimits(), (), Metrics())
        self.server_state: ConnectionTable = ConnectionTable(policy)
        self.ready = asyncio.Event()
        self._grace_seconds = grace_seconds
        self._shutdown = app.shutdown if isinstance(app, ServiceApp) else Shutdown()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._handle_loop_error)
        await super().startup(sockets)
        for listening in sockets or ():
            # Uvicorn has set the kernel's queue to the number that asyncio accepts at once.
            listening.listen(_BACKLOG)
        self.ready.set()

    def _handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio reports every failed attempt to accept a connection, thousands a second; the table logs it once."""
        if str(context.get("message", "")).startswith(_ACCEPT_FAILED):
            self.server_state.report("accept_failed")
            self.server_state.free_descriptors()
        else:
            loop.default_exception_handler(context)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._shutdown.start(self._grace_seconds)
        await super().shutdown(sockets)
        asyncio.get_running_loop().set_exception_handler(None)
        if self.force_exit:
            # Uvicorn skips the lifespan's end after a second signal. It still has to run: it stores the turns' output.
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self.force_exit:
            self._shutdown.forced.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Does nothing. Uvicorn's version raises the signal again at the end, which would kill the process before the
        database is closed."""
        yield


async def serve(server: Server, listening: socket.socket | None, *, parent_pipe: int | None = None) -> None:
    """Serves until SIGINT or SIGTERM; a second signal does not wait for turns. Without a socket only the app's lifespan
    runs. The end of `parent_pipe` means that the
    parent process is gone, and stops the server too."""
    reduce_gc_pauses()
    loop = asyncio.get_running_loop()
    if parent_pipe is not None:
        loop.add_reader(parent_pipe, _read_parent_pipe, parent_pipe, server)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: server.handle_exit(signal.SIGINT, None))
    try:
        await server.serve(sockets=[] if listening is None else [listening])
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _read_parent_pipe(parent_pipe: int, server: Server) -> None:
    if not os.read(parent_pipe, 1):
        asyncio.get_running_loop().remove_reader(parent_pipe)
        server.handle_exit(signal.SIGINT, None)


def reduce_gc_pauses() -> None:
    """Excludes what is loaded at the start from garbage collection, and collects less often. Measured with ten thousand
    open streams: with the defaults each word took a second to reach all of them, this way a quarter."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def listen(host: str, port: int) -> socket.socket:
    """Port 0 picks a free one. SettingsInvalid if the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise SettingsInvalid(f"cannot serve on {host}:{port}: {exc.strerror}") from exc
    try:
        # A restarted service can bind while connections of the old one are in TIME_WAIT.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as exc:
        listening.close()
        hint = "; choose another port with --port, or 0 for a free one" if exc.errno == errno.EADDRINUSE else ""
        raise SettingsInvalid(f"cannot serve on {host}:{port}: {exc.strerror}{hint}") from exc
    return listening


def address_of(listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
