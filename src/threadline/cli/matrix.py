"""`threadline matrix run`: the Matrix bot, on a database or on a service elsewhere, until it is told to end.

`threadline serve` may run it as well."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from threadline.cli.connection import opened, settings_of
from threadline.core.errors import ExtraMissing, InvalidInput, SettingsInvalid
from threadline.settings import Settings

try:
    from threadline.matrix.bot import Bot
    from threadline.matrix.build import build_bot
    from threadline.matrix.homeserver import HomeserverRefused
except ModuleNotFoundError as exc:
    raise ExtraMissing("matrix", "the Matrix bot") from exc


@asynccontextmanager
async def running_bot(bot: Bot) -> AsyncIterator[asyncio.Task[None]]:
    """The bot once it listens. SettingsInvalid if it may not log in."""
    # matrix-nio says at INFO and WARNING what the bot says in its own words, or what is of no use to an operator.
    logging.getLogger("nio").setLevel(logging.ERROR)
    running, ready = asyncio.create_task(bot.run()), asyncio.create_task(bot.ready.wait())
    try:
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        yield running
    except HomeserverRefused as exc:
        raise SettingsInvalid(f"the homeserver refused the bot: {exc}") from exc
    finally:
        ready.cancel()
        running.cancel()
        await asyncio.gather(running, ready, return_exceptions=True)


async def run_bot(args: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # The client's library tells of every request.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    task = asyncio.current_task()
    assert task is not None
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, task.cancel)
    settings = settings_of(args)
    with contextlib.suppress(asyncio.CancelledError):
        async with _built(args, settings) as bot, running_bot(bot) as running:
            print(f"{settings.matrix.user} listens on {settings.matrix.homeserver}", flush=True)
            await running


@asynccontextmanager
async def _built(args: argparse.Namespace, settings: Settings) -> AsyncIterator[Bot]:
    if args.server is None:
        async with opened(args) as threadline:
            yield build_bot(threadline)
        return
    from threadline.client import connect  # noqa: PLC0415 - an extra
    from threadline.matrix.remote import remote_bot  # noqa: PLC0415

    if args.database:
        raise InvalidInput("with --server, the threads are the service's: leave --database out")
    token = args.token or os.environ.get("THREADLINE_TOKEN")
    async with connect(args.server, token=token) as client, remote_bot(client, settings) as bot:
        yield bot
