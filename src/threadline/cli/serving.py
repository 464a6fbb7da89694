"""`threadline serve`: the HTTP service on one address, until it is told to end."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.cli.opening import settings_of
from threadline.core.errors import ExtraMissing

try:
    from threadline.service.app import build_app
    from threadline.service.callers import check_address
    from threadline.service.logs import configure
    from threadline.service.serving import Server, address_of, listen, serve
except ModuleNotFoundError as exc:
    raise ExtraMissing("service", "the service") from exc


@asynccontextmanager
async def _bot_beside(threadline: Threadline) -> AsyncIterator[None]:
    """The Matrix bot, where the settings say that it belongs to the service."""
    if not threadline.settings.matrix.with_service:
        yield
        return
    from threadline.cli.matrix import running_bot  # noqa: PLC0415 - an extra

    async with running_bot(threadline):
        yield


async def serve_http(args: argparse.Namespace) -> None:
    settings = settings_of(args)
    given = {
        name: getattr(args, name) for name in ("host", "port", "authentication") if getattr(args, name) is not None
    }
    service = msgspec.structs.replace(settings.service, **given)
    configure(service.log_format)
    async with open_threadline(settings=settings) as threadline, _bot_beside(threadline):
        listening = listen(check_address(service.host, asks_who=service.asks_who), service.port)
        server = Server(build_app(threadline, service), grace_seconds=service.grace_seconds)
        print(f"Threadline serves {settings.database} on {address_of(listening)}", flush=True)
        await serve(server, listening)
