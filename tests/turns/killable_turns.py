"""Processes that talk to an agent with tools until they are killed. Run by `test_turn_crashes.py`.

Run as a program, this imports everything once and then forks a child for each line of its input: a first number, and
when it is to die: how long after how many moments. A moment is when it begins to talk, is told that a request is safe,
has an effect, or reads an end; none means its birth. So the deaths fall between the same steps on any machine. A child
says which requests were accepted. Every effect of the unrepeatable tool is a line in a file, written before the tool
returns, so that running it twice for one call shows. Started with `approving`, that tool waits for an approval, and the
child gives it in a turn of its own.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import time
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path
from typing import Any

from threadline.agents.loop import LoopAgent
from threadline.agents.models import RoundSettings
from threadline.agents.tools import tool
from threadline.bootstrap import Threadline
from threadline.clock import SystemClock
from threadline.core.events import Event, Finish, TextDelta, ToolCall
from threadline.core.ids import new_id
from threadline.core.masking import SecretMasker
from threadline.core.parts import ToolPart
from threadline.core.prompts import PromptMessage
from threadline.core.turns import Surface
from threadline.databases import open_store
from threadline.replies import Defer
from threadline.settings import Settings
from threadline.turns.leases import Timing

_PATIENCE = 30
TIMING = Timing(lease_seconds=0.05, flush_seconds=0.002, wait_seconds=0.01)


_moments: list[int] = []
"""In a child, where it tells of them."""


class Spender:
    """A model that pays twice and looks once in every turn, and then says so. Its calls have new ids each time."""

    async def round(self, messages: Any, tools: Any, settings: RoundSettings) -> AsyncGenerator[Event, None]:
        last: PromptMessage = messages[-1]
        done = sum(isinstance(part, ToolPart) for part in last.parts) if last.role == "assistant" else 0
        if done == 0:
            asked = "".join(getattr(part, "text", "") for part in last.parts)
            yield TextDelta("Paying. ")
            for n in range(2):
                yield ToolCall(new_id(), "pay", {"order": f"{asked}-{n}"})
            yield ToolCall(new_id(), "look", {"at": asked})
            yield Finish("tool-calls")
        else:
            yield TextDelta("Paid.")
            yield Finish("stop")

    async def close(self) -> None:
        return None


def spender(effects: str, approving: bool = False) -> LoopAgent:
    @tool(repeatable=False, needs_approval=approving)
    def pay(order: str) -> str:
        """Pays."""
        with Path(effects).open("a", encoding="utf-8") as file:
            file.write(f"{order}\n")
        moment()
        return "paid"

    @tool(repeatable=True)
    def look(at: str) -> str:
        """Looks."""
        return f"looked at {at}"

    return LoopAgent(Spender(), [pay, look])


def build_threadline(database: str, store: Any, effects: str, approving: bool = False) -> Threadline:
    """A Threadline whose leases expire quickly, so that the next process can take over at once."""
    settings = Settings(database=database, agent="spender")
    agents = {"spender": spender(effects, approving)}
    return Threadline(store, settings, SystemClock(), agents=agents, timing=TIMING)


async def talk(database: str, effects: str, thread_id: str, first: int, approving: bool) -> None:
    store = await open_store(Settings(database=database), SystemClock())
    tl = build_threadline(database, store, effects, approving)
    sweeping = asyncio.create_task(sweep(tl))
    thread = await tl.as_user().thread(thread_id)
    moment()
    for n in count(first):
        surface: Surface = "slack" if n % 2 else "web"
        reply = thread.ask(f"order{n}", key=f"key{n}", surface=surface, policy="queue", approver=Defer())
        await reply.accept()
        say(f"accepted {n}")
        moment()
        await reply.ended()
        moment()
        if answers := {each.id: True for each in await thread.pending()}:
            await thread.respond(answers, surface=surface).ended()
            moment()
    sweeping.cancel()


async def sweep(tl: Threadline) -> None:
    while True:
        await tl.recovery.recover(tl.as_user().scope)
        await asyncio.sleep(0.02)


def moment() -> None:
    """Tells the parent, which decides when to kill this process, that a step was done."""
    if _moments:
        os.write(_moments[-1], b"!")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def live_and_die(life: str, database: str, effects: str, thread_id: str, mode: str) -> None:
    """A child that is killed so long after so many moments."""
    first, moments, seconds = life.split()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _moments.append(writing)
        asyncio.run(talk(database, effects, thread_id, int(first), mode == "approving"))
        os._exit(1)
    os.close(writing)
    for _ in range(int(moments)):
        if select.select([reading], [], [], _PATIENCE)[0]:
            os.read(reading, 1)
    time.sleep(float(seconds))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(reading)
    say(f"died {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    # Before the first is born, so that not each of them has to make its own.
    SecretMasker().mask_text("")
    for line in sys.stdin:
        live_and_die(line, *sys.argv[1:])
