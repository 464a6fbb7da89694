"""Bots and services that run for a moment and are killed.

Run as a program with what is to live (see `LIVES`), a file that holds its settings, and what else it needs, this
imports everything once and then forks a life for each line of its input: how long it has to live.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.client.conftest import IMPATIENT
from tests.matrix.bot_fixtures import TIMING, Parrot, World
from tests.matrix.people import PATIENCE
from threadline.agents.function import as_agent
from threadline.bootstrap import Threadline
from threadline.client import connect
from threadline.clock import SystemClock
from threadline.core.prompts import Prompt
from threadline.databases import open_store
from threadline.matrix.build import build_bot, remote_bot
from threadline.service.app import build_app
from threadline.service.process.server import Server, listen
from threadline.settings import Settings


@asynccontextmanager
async def service(settings: Settings) -> AsyncIterator[Threadline]:
    parrot = Parrot()

    async def answer(prompt: Prompt) -> AsyncGenerator[str, None]:
        async for each in parrot(prompt):
            yield each

    store = await open_store(settings, SystemClock())
    agents = {"parrot": as_agent(answer)}
    async with Threadline(store, settings, SystemClock(), agents=agents, timing=TIMING) as threadline:
        yield threadline


async def bot(settings: Settings) -> None:
    async with service(settings) as threadline:
        await build_bot(threadline).run()


async def bot_over_http(settings: Settings, url: str, token: str) -> None:
    async with connect(url, token=token, retry=IMPATIENT) as client, remote_bot(client, settings) as remote:
        await remote.run()


async def serve(settings: Settings, port: str) -> None:
    async with service(settings) as threadline:
        await Server(build_app(threadline), grace_seconds=0.1).serve(sockets=[listen("127.0.0.1", int(port))])


LIVES: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "bot": bot,
    "bot over http": bot_over_http,
    "service": serve,
}


def live_and_die(life: Coroutine[Any, Any, None], seconds: float) -> None:
    child = os.fork()
    if child == 0:
        asyncio.run(life)
        os._exit(1)
    life.close()
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    sys.stdout.write(f"died {os.waitstatus_to_exitcode(status)}\n")
    sys.stdout.flush()


@asynccontextmanager
async def nursery(world: World, kind: str, *more: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Makes lives in processes of their own; each is killed within a second or so of its birth."""
    chance = random.Random(7)
    told_of = world.folder / "settings.json"
    told_of.write_bytes(msgspec.json.encode(world.settings))
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.matrix.killable_bot", kind, str(told_of), *more, stdin=PIPE, stdout=PIPE
    )
    assert made.stdin is not None
    assert made.stdout is not None
    births, news = made.stdin, made.stdout

    async def born() -> None:
        births.write(f"{chance.uniform(0.1, 1.2)}\n".encode())
        assert await asyncio.wait_for(news.readline(), PATIENCE) == b"died -9\n"

    try:
        yield born
    finally:
        births.close()
        await made.wait()


if __name__ == "__main__":
    kind, file, *rest = sys.argv[1:]
    told = msgspec.json.decode(Path(file).read_bytes(), type=Settings)
    for line in sys.stdin:
        live_and_die(LIVES[kind](told, *rest), float(line))
