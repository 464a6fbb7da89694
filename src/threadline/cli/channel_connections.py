"""`threadline channels connect`: receives messages over connections that this machine opens, answers and delivers."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Sequence

from threadline.bootstrap import Threadline
from threadline.cli.connection import open_threadline
from threadline.core.errors import InvalidInput, SettingsInvalid
from threadline.core.threads import system_scope
from threadline.ports import Receiver

CONNECTABLE = ("slack", "telegram")


async def connect(args: argparse.Namespace) -> None:
    """In this process, until SIGINT or SIGTERM."""
    async with open_threadline(args) as threadline:
        settings = threadline.settings
        platforms = await _choose(threadline, args.platform)
        receivers = [threadline.messaging.open_receiver(threadline.inbox, platform) for platform in platforms]
        running = asyncio.create_task(_run(threadline, receivers))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        named = " and ".join(platforms)
        print(f"Receiving from {named} for tenant {settings.tenant} (Ctrl-C to stop)", flush=True)
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await threadline.runner.close(settings.service.grace_seconds)
        await threadline.messaging.close()


async def _choose(threadline: Threadline, wanted: Sequence[str]) -> list[str]:
    """The platforms that were named; by default, those that have credentials."""
    if wrong := [platform for platform in wanted if platform not in CONNECTABLE]:
        raise InvalidInput(f"{wrong[0]} can only use webhooks: give {' or '.join(CONNECTABLE)}, or nothing for both")
    scope = system_scope(threadline.settings.tenant)
    stored = {found.platform for found in await threadline.store.scoped(scope).all_credentials()}
    enabled = set(threadline.messaging.codecs)
    chosen = [platform for platform in CONNECTABLE if platform in (wanted or stored & enabled)]
    lacking = [platform for platform in chosen if platform not in stored]
    if lacking or not chosen:
        platform = (lacking or ["slack or telegram"])[0]
        fix = f"run threadline channels credentials set {(lacking or CONNECTABLE)[0]}"
        raise SettingsInvalid(f"no credentials for {platform}: {fix}")
    return chosen


async def _run(threadline: Threadline, receivers: Sequence[Receiver]) -> None:
    settings = threadline.settings
    tasks = [
        asyncio.create_task(work)
        for work in (
            *(receiver.run(settings.tenant) for receiver in receivers),
            threadline.messaging.run(),
            threadline.recovery.run(settings.service.recovery_seconds),
        )
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        # Once: a second cancellation would cut off a receiver that stores its last delivery.
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for result in ended:
        if isinstance(result, Exception):
            raise result
