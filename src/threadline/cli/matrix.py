"""`threadline matrix run`: runs the Matrix bot on a database or on a service (`--server`) until SIGINT or SIGTERM.

`setup-encryption` signs the bot's device, for accounts that need a secret for it. `threadline serve` runs the same bot
if `matrix.with_service` is set.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from threadline.cli.connection import load_settings, open_threadline
from threadline.core.errors import ExtraMissing, InvalidInput, ServiceUnavailable, SettingsInvalid
from threadline.settings import Settings

try:
    from threadline.matrix.bot import Bot
    from threadline.matrix.build import build_bot, set_up_encryption
    from threadline.matrix.encryption import EncryptionIncomplete
    from threadline.matrix.homeserver import HomeserverAway, HomeserverRefused
except ModuleNotFoundError as exc:
    raise ExtraMissing("matrix", "the Matrix bot") from exc


@asynccontextmanager
async def running_bot(bot: Bot) -> AsyncIterator[asyncio.Task[None]]:
    """Starts the bot and waits until it is ready. SettingsInvalid if the homeserver rejects the login."""
    # Below ERROR matrix-nio logs what the bot logs itself, or what an operator cannot act on.
    logging.getLogger("nio").setLevel(logging.ERROR)
    running, ready = asyncio.create_task(bot.run()), asyncio.create_task(bot.ready.wait())
    try:
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        yield running
    except HomeserverRefused as exc:
        raise SettingsInvalid(f"the homeserver rejected the bot: {exc}") from exc
    finally:
        ready.cancel()
        running.cancel()
        await asyncio.gather(running, ready, return_exceptions=True)


async def run_bot(args: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # httpx2 logs every request at INFO.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    task = asyncio.current_task()
    assert task is not None  # a coroutine always runs in a task
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, task.cancel)
    settings = load_settings(args)
    with contextlib.suppress(asyncio.CancelledError):
        async with _open_bot(args, settings) as bot, running_bot(bot) as running:
            print(f"{settings.matrix.user} is listening on {settings.matrix.homeserver}", flush=True)
            await running


@asynccontextmanager
async def _open_bot(args: argparse.Namespace, settings: Settings) -> AsyncIterator[Bot]:
    if args.server is None:
        async with open_threadline(args) as threadline:
            yield build_bot(threadline)
        return
    from threadline.client import connect  # noqa: PLC0415 - an extra
    from threadline.matrix.build import remote_bot  # noqa: PLC0415

    if args.database:
        raise InvalidInput("--database cannot be used with --server: the service has its own database")
    token = args.token or os.environ.get("THREADLINE_TOKEN")
    async with connect(args.server, token=token) as client, remote_bot(client, settings) as bot:
        yield bot


async def setup_encryption(args: argparse.Namespace) -> None:
    settings = load_settings(args).matrix
    recovery_key = None
    if args.recover:
        # Not an option's value: other users of the machine could read it in the list of processes.
        recovery_key = getpass.getpass("Recovery key: ") if sys.stdin.isatty() else sys.stdin.readline()
    try:
        print(await set_up_encryption(settings, recovery_key=recovery_key, reset=args.reset))
    except (EncryptionIncomplete, HomeserverRefused) as exc:
        raise SettingsInvalid(str(exc)) from exc
    except HomeserverAway as exc:
        raise ServiceUnavailable(f"{settings.homeserver} cannot be reached: {exc}") from exc
