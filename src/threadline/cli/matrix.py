"""`threadline matrix run`: the Matrix bot, until it is told to end."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal

from threadline.cli.opening import opened
from threadline.core.errors import ExtraMissing, SettingsInvalid

try:
    from threadline.matrix.homeserver import HomeserverRefused
    from threadline.matrix.running import build_bot
except ModuleNotFoundError as exc:
    raise ExtraMissing("matrix", "the Matrix bot") from exc


async def run_bot(args: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # matrix-nio says at INFO and WARNING what the bot says in its own words, or what is of no use to an operator.
    logging.getLogger("nio").setLevel(logging.ERROR)
    async with opened(args) as threadline:
        bot = build_bot(threadline)
        running = asyncio.create_task(bot.run())
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(signal_number, running.cancel)
        ready = asyncio.create_task(bot.ready.wait())
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not running.done():
            print(f"{threadline.settings.matrix.user} listens on {threadline.settings.matrix.homeserver}", flush=True)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await running
        except HomeserverRefused as exc:
            raise SettingsInvalid(f"the homeserver refused the bot: {exc}") from exc
