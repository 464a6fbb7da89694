"""`threadline serve`: the HTTP service on one address, by one process or several, until it is told to end."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.cli.connection import settings_of
from threadline.cli.printable import shown, without_password
from threadline.core.errors import ExtraMissing, SettingsInvalid
from threadline.settings import ServiceSettings, Settings

try:
    from threadline.service.app import build_app
    from threadline.service.auth.callers import check_address
    from threadline.service.logs import configure
    from threadline.service.server import Server, address_of, listen, serve
    from threadline.service.workers import READY, Workers
except ModuleNotFoundError as exc:
    raise ExtraMissing("service", "the service") from exc

_OF_SERVICE = ("host", "port", "workers", "authentication")
_PASSED_ON = ("database", "settings", "tenant", "user")


@asynccontextmanager
async def _bot_beside(threadline: Threadline) -> AsyncIterator[None]:
    """The Matrix bot, where the settings say that it belongs to the service."""
    if not threadline.settings.matrix.with_service:
        yield
        return
    from threadline.cli.matrix import running_bot  # noqa: PLC0415 - an extra
    from threadline.matrix.build import build_bot  # noqa: PLC0415

    async with running_bot(build_bot(threadline)):
        yield


async def serve_http(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    given = {name: getattr(args, name) for name in _OF_SERVICE if getattr(args, name) is not None}
    service = msgspec.structs.replace(settings.service, **given)
    configure(service.log_format)
    if args.listen_fd is not None:
        return await _work(settings, service, args.listen_fd, args.worker)
    if service.workers < 1:
        raise SettingsInvalid(f"{service.workers} workers cannot serve: say 1 or more")
    if service.workers > 1 and settings.database == ":memory:":
        raise SettingsInvalid("a database in memory has one process: serve it with one worker, or name a file")
    if service.workers > 1 and settings.matrix.with_service:
        raise SettingsInvalid(
            "the Matrix bot is one process: serve with one worker, or run `threadline matrix run` beside"
        )
    listening = listen(check_address(service.host, asks_who=service.requires_authentication), service.port)
    serves = f"Threadline serves {shown(without_password(settings.database))} on {address_of(listening)}"
    with listening:
        if service.workers == 1:
            return await _serve(settings, service, listening, serves)
        workers = Workers(
            lambda inherited, number: _command(args, inherited, number),
            service.workers,
            listening,
            grace_seconds=service.grace_seconds,
            announce=lambda: print(serves, flush=True),
        )
        return await workers.run()


async def _serve(
    settings: Settings,
    service: ServiceSettings,
    listening: socket.socket,
    announced: str,
    lifeline: int | None = None,
    worker: int | None = None,
) -> int:
    async with open_threadline(settings=settings) as threadline, _bot_beside(threadline):
        if worker is not None:
            threadline.metrics.mark("worker", str(worker))
        server = Server(build_app(threadline, service), grace_seconds=service.grace_seconds)
        announcing = asyncio.create_task(_announce(server, announced))
        await serve(server, listening, lifeline=lifeline)
        announcing.cancel()
    return 0


async def _announce(server: Server, announced: str) -> None:
    await server.ready.wait()
    print(announced, flush=True)


async def _work(settings: Settings, service: ServiceSettings, inherited: int, worker: int) -> int:
    """One of several, on the socket of its parent."""
    return await _serve(settings, service, socket.socket(fileno=inherited), READY, sys.stdin.fileno(), worker)


def _command(args: argparse.Namespace, inherited: int, number: int) -> list[str]:
    """How this service was started, without what the environment and the settings file say by themselves."""
    said = [(f"--{name}", getattr(args, name)) for name in _PASSED_ON if getattr(args, name) is not None]
    command = [sys.executable, "-m", "threadline", "serve"]
    command += ["--listen-fd", str(inherited), "--worker", str(number)]
    command += ["--authentication"] if args.authentication else []
    return command + [word for option, value in said for word in (option, value)]
