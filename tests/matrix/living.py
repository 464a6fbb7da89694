"""Bots that live for a moment and are killed. Run by `test_restarts.py` with a file that holds their settings.

Run as a program, this imports everything once and then forks a bot for each line of its input: how long it has to live.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from tests.matrix.conftest import TIMING, Parrot
from threadline.agents.function import as_agent
from threadline.bootstrap import Threadline, open_store
from threadline.clock import SystemClock
from threadline.core.prompts import Prompt
from threadline.matrix.running import build_bot
from threadline.settings import Settings


async def live(settings: Settings) -> None:
    parrot = Parrot()

    async def answer(prompt: Prompt) -> AsyncGenerator[str, None]:
        async for each in parrot(prompt):
            yield each

    store = await open_store(settings, SystemClock())
    agents = {"parrot": as_agent(answer)}
    async with Threadline(store, settings, SystemClock(), agents=agents, timing=TIMING) as threadline:
        await build_bot(threadline).run()


def live_and_die(settings: Settings, seconds: float) -> None:
    child = os.fork()
    if child == 0:
        asyncio.run(live(settings))
        os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    sys.stdout.write(f"died {os.waitstatus_to_exitcode(status)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    told = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Settings)
    for line in sys.stdin:
        live_and_die(told, float(line))
