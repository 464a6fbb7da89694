"""Starting up: what `import threadline` adds to bare Python, and how soon the terminal answers.

Processes are started one after the other in turns, so a slow moment of the machine meets all of them.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path

from bench.arena import Arena
from bench.budgets import HELP, IMPORT, OURS
from bench.measure import Operation, interleave
from bench.results import Row, timing

BARE_PYTHON = "bare Python"
_PEERS = {
    "OpenAI Agents": "agents",
    "Google ADK": "google.adk.agents",
    "Agno": "agno.agent",
    "LangGraph": "langgraph.graph",
}


async def startup(arena: Arena) -> list[Row]:
    """New processes, one after the other: bare Python, `import threadline`, `threadline --help`, and the peers'
    imports. A command that is typed all day must not make anyone wait for what it does not use."""
    threadline = str(Path(sys.executable).with_name("threadline"))
    operations = {
        BARE_PYTHON: _process(sys.executable, "-c", "pass"),
        OURS: _process(sys.executable, "-c", "import threadline"),
        HELP.name: _process(threadline, "--help"),
    }
    for name, module in _PEERS.items():
        if importlib.util.find_spec(module.partition(".")[0]) is not None:
            operations[name] = _process(sys.executable, "-c", f"import {module}")
    taken = await interleave(operations, rounds=arena.sized(15, 5), repeats=1)
    bare = taken[BARE_PYTHON].median * 1e3
    imports = [name for name in taken if name not in {BARE_PYTHON, HELP.name}]
    return [
        *(Row(IMPORT.name, name, "ms", taken[name].median * 1e3 - bare, samples=len(taken[name])) for name in imports),
        timing(HELP, OURS, taken[HELP.name]),
    ]


def _process(*command: str) -> Operation:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        if await process.wait() != 0:
            raise RuntimeError(f"{' '.join(command)} failed")

    return run
