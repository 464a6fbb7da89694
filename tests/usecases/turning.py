"""Processes that talk to an agent with tools until they are killed. Run by `test_turn_crashes.py`.

Run as a program, this imports everything once and then forks a child for each line of its input: a first number and
how long the child has to live. A child says which requests were accepted. Every effect of the unrepeatable tool is a
line in a file, written before the tool returns, so that running it twice for one call shows. Started with `approving`,
that tool waits for an approval, and the child gives it in a turn of its own.
"""

from __future__ import annotations

import asyncio
import os
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
from threadline.bootstrap import Threadline, open_store
from threadline.clock import SystemClock
from threadline.core.events import Event, Finish, TextDelta, ToolCall
from threadline.core.ids import new_id
from threadline.core.parts import ToolPart
from threadline.core.prompts import PromptMessage
from threadline.core.turns import Surface
from threadline.replies import Defer, DenyAll
from threadline.settings import Settings
from threadline.usecases.recovery import Recovery
from threadline.usecases.running import Runner, Timing

TIMING = Timing(lease_seconds=0.05, flush_seconds=0.002, wait_seconds=0.01)


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
        return "paid"

    @tool(repeatable=True)
    def look(at: str) -> str:
        """Looks."""
        return f"looked at {at}"

    return LoopAgent(Spender(), [pay, look])


def house(database: str, store: Any, effects: str, approving: bool = False) -> Threadline:
    """A Threadline whose leases run out quickly, so that whoever comes next can take over at once."""
    settings = Settings(database=database, agent="spender")
    made = Threadline(store, settings, SystemClock(), agents={"spender": spender(effects, approving)})
    made.runner = Runner(
        store, made.turns, made.streams, made.prompting, made.directory, "spender", made.clock, timing=TIMING
    )
    made.recovery = Recovery(store, made.turns, made.runner, made.clock, DenyAll(), timing=TIMING)
    return made


async def talk(database: str, effects: str, thread_id: str, first: int, ready: int, approving: bool) -> None:
    store = await open_store(Settings(database=database), SystemClock())
    tl = house(database, store, effects, approving)
    sweeping = asyncio.create_task(sweep(tl))
    thread = await tl.as_user().thread(thread_id)
    os.write(ready, b"!")
    for n in count(first):
        surface: Surface = "slack" if n % 2 else "web"
        reply = thread.ask(f"order{n}", key=f"key{n}", surface=surface, policy="queue", approver=Defer())
        await reply.accept()
        say(f"accepted {n}")
        await reply.ended()
        if answers := {each.approval_id: True for each in await thread.pending()}:
            await thread.respond(answers, surface=surface).ended()
    sweeping.cancel()


async def sweep(tl: Threadline) -> None:
    while True:
        await tl.recovery.recover(tl.as_user().scope)
        await asyncio.sleep(0.02)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def live_and_die(
    database: str, effects: str, thread_id: str, first: int, seconds: float, approving: bool = False
) -> None:
    """A child that is killed so long after it began to talk; a negative time counts from its birth."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        asyncio.run(talk(database, effects, thread_id, first, writing, approving))
        os._exit(1)
    os.close(writing)
    if seconds >= 0:
        os.read(reading, 1)
    os.close(reading)
    time.sleep(abs(seconds))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    say(f"died {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    for line in sys.stdin:
        began, lifetime = line.split()
        live_and_die(sys.argv[1], sys.argv[2], sys.argv[3], int(began), float(lifetime), sys.argv[4] == "approving")
