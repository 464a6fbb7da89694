"""A program that asks a question with the library, with the settings as they are shipped, and is killed in the answer.

Run by `test_dead_holders.py` and `test_skewed_clocks.py`. It prints `begun` when the first words are stored. Its agent
never ends its answer. `--clock-ahead SECONDS` sets the clock of the whole program, as an operating system with a wrong
clock would. `--process-folder` hides it from the others, as a container would. With `--sweep` it asks nothing: it
recovers what it takes for abandoned, once, and prints how many turns.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import sys
from collections.abc import AsyncIterator

import threadline
from threadline import clock
from threadline.bootstrap import Threadline
from threadline.core.prompts import Prompt
from threadline.core.turns import Surface
from threadline.settings import ServiceSettings, Settings
from threadline.stores.postgres import store as postgres_store
from threadline.stores.sqlite import store as sqlite_store

WORDS = ("Once ", "upon ", "a time.")


async def tell(prompt: Prompt) -> AsyncIterator[str]:
    for word in WORDS:
        yield word


async def tell_and_hang(prompt: Prompt) -> AsyncIterator[str]:
    yield WORDS[0]
    yield WORDS[1]
    await asyncio.Event().wait()


def settings_of(database: str, tenant_id: str, folder: str = "", lease_seconds: float = 30.0) -> Settings:
    service = ServiceSettings(lease_seconds=lease_seconds)
    return Settings(database=database, tenant=tenant_id, agent="teller", process_folder=folder, service=service)


async def ask(args: argparse.Namespace) -> None:
    settings = settings_of(args.database, args.tenant, args.process_folder, args.lease_seconds)
    async with threadline.open(settings=settings, agents={"teller": tell_and_hang}) as tl:
        if args.sweep:
            say(str(await tl.recovery.recover(tl.as_user().scope)))
            return
        surface: Surface = args.surface
        me = tl.as_user(surface=surface)
        thread = await me.thread(args.thread)
        reply = thread.ask(args.question, key=args.key, policy="queue")
        turn = await reply.accept()
        await stored(tl, turn.id)
        say("begun")
        await reply.ended()


async def stored(tl: Threadline, turn_id: str) -> None:
    session = tl.store.scoped(tl.as_user().scope)
    async with tl.store.watch(session.scope, turn_id) as watch:
        while not await session.chunks(turn_id):
            await watch.wait(1.0)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def set_clock(ahead: float) -> None:
    def now(self: object) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=ahead)

    for kind in (clock.SystemClock, postgres_store._SystemClock, sqlite_store._SystemClock):  # noqa: SLF001
        kind.now = now  # type: ignore[method-assign]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("database", "tenant", "thread", "question", "surface"):
        parser.add_argument(name)
    parser.add_argument("--key")
    parser.add_argument("--clock-ahead", type=float, default=0.0)
    parser.add_argument("--process-folder", default="")
    parser.add_argument("--lease-seconds", type=float, default=30.0)
    parser.add_argument("--sweep", action="store_true")
    given = parser.parse_args()
    set_clock(given.clock_ahead)
    asyncio.run(ask(given))
