"""Starting up: what `import threadline` adds to bare Python, and how soon the terminal answers.

Processes are started one after the other in turns, so a slow moment of the machine meets all of them.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bench.arena import Arena
from bench.budgets import HELP, IMPORT, OURS
from bench.measure import Operation, Samples, interleave
from bench.results import Row, timing

BARE_PYTHON = "bare Python"
OURS_NAME_ONLY = "Threadline, the name alone"
_PEERS = {
    "OpenAI Agents": "from agents import Agent, Runner",
    "Google ADK": "from google.adk.agents import Agent",
    "Agno": "from agno.agent import Agent",
    "LangGraph": "from langgraph.graph import StateGraph",
}


async def startup(arena: Arena) -> list[Row]:
    """New processes, one after the other: bare Python, the library with everything that opening a database needs,
    `threadline --help`, and the peers' imports. A command that is typed all day must not load what it does not use."""
    operations = {
        BARE_PYTHON: _python("pass"),
        OURS: _python("from threadline import open"),
        OURS_NAME_ONLY: _python("import threadline"),
        HELP.name: _process(str(Path(sys.executable).with_name("threadline")), "--help"),
    }
    taken = await interleave(operations, rounds=arena.sized(15, 5), repeats=1)
    peers = {name: _python(statement) for name, statement in _PEERS.items()}
    # Seconds each, so three times must do.
    theirs = await interleave({BARE_PYTHON: _python("pass"), **peers}, rounds=arena.sized(3, 1), repeats=1)
    return [
        _over_bare(OURS, taken),
        _over_bare(OURS_NAME_ONLY, taken),
        *(_over_bare(name, theirs) for name in peers),
        timing(HELP, OURS, taken[HELP.name]),
    ]


def _over_bare(name: str, taken: dict[str, Samples]) -> Row:
    over = taken[name].median - taken[BARE_PYTHON].median
    best = taken[name].best - taken[BARE_PYTHON].best
    return Row(IMPORT.name, name, "ms", over * 1e3, best=best * 1e3, samples=len(taken[name]))


def _python(statement: str) -> Operation:
    return _process(sys.executable, "-c", statement)


def _process(*command: str) -> Operation:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        if await process.wait() != 0:
            raise RuntimeError(f"{' '.join(command)} failed")

    return run
