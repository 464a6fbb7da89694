"""`threadline serve`: runs the HTTP service on one address, in one or several processes, until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path

import msgspec

from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.cli.connection import load_settings
from threadline.cli.printable import printable, without_password
from threadline.core.errors import ExtraMissing, SettingsInvalid
from threadline.settings import ServiceSettings, Settings

try:
    from threadline.service.app import build_app
    from threadline.service.auth.authentication import check_address
    from threadline.service.process.logs import configure
    from threadline.service.process.server import Server, address_of, listen, serve
    from threadline.service.process.worker_metrics import named_by_role, shared_metrics
    from threadline.service.process.workers import READY, Workers
except ModuleNotFoundError as exc:
    raise ExtraMissing("service", "the service") from exc

_SERVICE_OPTIONS = ("host", "port", "workers", "role", "authentication")
_WORKER_OPTIONS = ("database", "settings", "tenant", "user", "role")


@asynccontextmanager
async def _matrix_bot(threadline: Threadline) -> AsyncIterator[None]:
    """Runs the Matrix bot in this process if `matrix.with_service` is set."""
    if not threadline.settings.matrix.with_service:
        yield
        return
    from threadline.cli.matrix import running_bot  # noqa: PLC0415 - an extra
    from threadline.matrix.build import build_bot  # noqa: PLC0415

    async with running_bot(build_bot(threadline)):
        yield


async def serve_http(args: argparse.Namespace) -> int:
    settings = load_settings(args)
    given = {name: getattr(args, name) for name in _SERVICE_OPTIONS if getattr(args, name) is not None}
    service = msgspec.structs.replace(settings.service, **given)
    configure(service.log_format)
    if args.listen_fd is not None:
        return await _serve_inherited(settings, service, args)
    if service.workers < 1:
        raise SettingsInvalid(f"`workers` must be 1 or more, got {service.workers}")
    if service.workers > 1 and settings.database == ":memory:":
        raise SettingsInvalid(
            f"an in-memory database cannot be shared by {service.workers} workers: use --workers 1 or a file"
        )
    if service.role == "web":
        require_shared_database(settings, "`--role web`")
        if service.handover_seconds <= 0:
            raise SettingsInvalid(
                "`service.handover_seconds` must be above 0 with `--role web`: for so long turns wait for a worker"
            )
    if service.workers > 1 and settings.matrix.with_service:
        raise SettingsInvalid(
            f"the Matrix bot cannot run in {service.workers} workers: use --workers 1, or unset `matrix.with_service` "
            "and run `threadline matrix run`"
        )
    listening = listen(check_address(service.host, is_authenticated=service.requires_authentication), service.port)
    announcement = f"Serving {printable(without_password(settings.database))} on {address_of(listening)}"
    with listening:
        if service.workers == 1:
            return await _serve(settings, service, listening, announcement)
        with tempfile.TemporaryDirectory(prefix="threadline-") as folder:
            workers = Workers(
                lambda inherited, number: _worker_command(args, inherited, number, folder),
                service.workers,
                listening,
                grace_seconds=service.grace_seconds,
                announce=lambda: print(announcement, flush=True),
            )
            return await workers.run()


async def _serve(
    settings: Settings,
    service: ServiceSettings,
    listening: socket.socket,
    announcement: str,
    lifeline: int | None = None,
    worker: int = 0,
    metrics_folder: str | None = None,
) -> int:
    runs_turns = service.role == "all"
    async with open_threadline(settings=settings, runs_turns=runs_turns) as threadline, _matrix_bot(threadline):
        if runs_turns:
            threadline.mcp_servers.start([name for agent in settings.agents.values() for name in agent.mcp])
        sharing: AbstractAsyncContextManager[None] = nullcontext()
        if not runs_turns:
            sharing = joined_metrics(threadline, "web")
        elif metrics_folder:
            sharing = shared_metrics(threadline.metrics, Path(metrics_folder), str(worker))
        async with sharing:
            server = Server(build_app(threadline, service), grace_seconds=service.grace_seconds)
            announcing = asyncio.create_task(announce_when_ready(server, announcement))
            await serve(server, listening, parent_pipe=lifeline)
            announcing.cancel()
    return 0


def require_shared_database(settings: Settings, what: str) -> None:
    """SettingsInvalid where processes with roles cannot work together."""
    if settings.database == ":memory:":
        raise SettingsInvalid(
            f"{what} needs a database that other processes can open, got an in-memory one: use a file"
        )
    if settings.matrix.with_service:
        raise SettingsInvalid(
            f"{what} does not run the Matrix bot: unset `matrix.with_service` and run `threadline matrix run`"
        )


@asynccontextmanager
async def joined_metrics(threadline: Threadline, role: str) -> AsyncIterator[None]:
    """While it is open, a scrape of any process with a role has the metrics of all of this machine and database."""
    with named_by_role(role, threadline.settings) as place:
        if place is None:
            yield
            return
        async with shared_metrics(threadline.metrics, *place):
            yield


async def announce_when_ready(server: Server, announcement: str) -> None:
    await server.ready.wait()
    print(announcement, flush=True)


async def _serve_inherited(settings: Settings, service: ServiceSettings, args: argparse.Namespace) -> int:
    """Runs one worker of several, on the socket inherited from the parent process."""
    inherited = socket.socket(fileno=args.listen_fd)
    return await _serve(settings, service, inherited, READY, sys.stdin.fileno(), args.worker, args.metrics_folder)


def _worker_command(args: argparse.Namespace, inherited: int, number: int, metrics_folder: str) -> list[str]:
    """The command line of one worker. Workers read the environment and the settings file themselves."""
    given = [(f"--{name}", getattr(args, name)) for name in _WORKER_OPTIONS if getattr(args, name) is not None]
    command = [sys.executable, "-m", "threadline", "serve"]
    command += ["--listen-fd", str(inherited), "--worker", str(number), "--metrics-folder", metrics_folder]
    command += ["--authentication"] if args.authentication else []
    return command + [word for option, value in given for word in (option, value)]
