"""`threadline worker`: runs the turns that other processes accepted, delivers to platforms and sweeps, until SIGINT or
SIGTERM."""

from __future__ import annotations

import argparse
import asyncio

import msgspec

from threadline.cli.connection import load_settings
from threadline.cli.printable import printable, without_password
from threadline.cli.serve import announce_when_ready, joined_metrics, require_shared_database
from threadline.core.errors import ExtraMissing

try:
    from threadline.service.app import build_app
    from threadline.service.auth.authentication import check_address
    from threadline.service.process.logs import configure
    from threadline.service.process.server import Server, address_of, listen, serve
except ModuleNotFoundError as exc:
    raise ExtraMissing("service", "the worker") from exc

from threadline.bootstrap import open as open_threadline


async def run_worker(args: argparse.Namespace) -> int:
    settings = load_settings(args)
    service = settings.service
    if args.host is not None:
        service = msgspec.structs.replace(service, host=args.host)
    configure(service.log_format)
    require_shared_database(settings, "a worker")
    listening = None
    if args.port is not None:
        listening = listen(check_address(service.host, is_authenticated=service.requires_authentication), args.port)
    announcement = f"Working on {printable(without_password(settings.database))}"
    if listening is not None:
        announcement += f", monitored on {address_of(listening)}"
    async with open_threadline(settings=settings) as threadline, joined_metrics(threadline, "worker"):
        threadline.mcp_servers.start([name for agent in settings.agents.values() for name in agent.mcp])
        server = Server(build_app(threadline, service, serves_api=False), grace_seconds=service.grace_seconds)
        announcing = asyncio.create_task(announce_when_ready(server, announcement))
        await serve(server, listening)
        announcing.cancel()
    return 0
