"""`threadline matrix run`: the Matrix bot, until it is told to end. `threadline serve` may run it as well."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from threadline.bootstrap import Threadline
from threadline.cli.opening import opened
from threadline.core.errors import ExtraMissing, SettingsInvalid

try:
    from threadline.matrix.homeserver import HomeserverRefused
    from threadline.matrix.running import build_bot
except ModuleNotFoundError as exc:
    raise ExtraMissing("matrix", "the Matrix bot") from exc


@asynccontextmanager
async def running_bot(threadline: Threadline) -> AsyncIterator[asyncio.Task[None]]:
    """The bot once it listens. SettingsInvalid if it cannot be, or may not log in."""
    # matrix-nio says at INFO and WARNING what the bot says in its own words, or what is of no use to an operator.
    logging.getLogger("nio").setLevel(logging.ERROR)
    bot = build_bot(threadline)
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
    task = asyncio.current_task()
    assert task is not None
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with opened(args) as threadline, running_bot(threadline) as running:
            matrix = threadline.settings.matrix
            print(f"{matrix.user} listens on {matrix.homeserver}", flush=True)
            await running
