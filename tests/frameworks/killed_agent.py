"""A program that asks an agent of a framework and is killed while a tool runs. `check_agents.py` runs it: it prints
`begun` when the call is stored and the tool runs."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from pathlib import Path

import threadline
from tests.frameworks.kits.scripts import Call, Script


async def main(name: str, database: str, folder: str) -> None:
    script = Script([Call("wait", {})], folder=Path(folder))
    agent = import_module(f"tests.frameworks.kits.{name}_kit").make(script)
    async with threadline.open(database, agents={"helper": agent}) as tl:
        me = tl.as_user("ada")
        thread = await me.create_thread(state_key="t:1", agent_id="helper")
        turn = await thread.ask("Wait", key="k1").accept()
        await script.running.wait()
        session = tl.store.scoped(me.scope)
        while not await session.tool_runs(turn.id):  # noqa: ASYNC110 - the store is asked, as it says nothing itself
            await asyncio.sleep(0.01)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
