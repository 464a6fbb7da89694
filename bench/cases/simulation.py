"""The deterministic simulation: how many steps of real turn, messaging and store code it makes in a second."""

from __future__ import annotations

import asyncio
import re
import sys

from bench.arena import Arena
from bench.budgets import OURS, SIMULATION, SIMULATION_WRONG
from bench.results import Row

_TOTAL = re.compile(r"(\d+) seeds, (\d+) failed, (\d+) steps \((\d+) a second\)")


async def simulation(arena: Arena) -> list[Row]:
    """Seeds run one after another in one process, with crashes, store errors, clock jumps and platform faults. A step
    is one callback of a simulated process."""
    seeds = arena.sized(300, 20)
    command = (sys.executable, "-m", "tests.simulation", "--seeds", f"1-{seeds}")
    running = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await running.communicate()
    found = _TOTAL.search(said.decode())
    if found is None:
        raise RuntimeError("the simulation did not report its steps: run `make simulate`")
    _, failed, steps, rate = map(int, found.groups())
    at = f"{seeds} seeds, {steps:,} steps"
    return [
        Row(SIMULATION.name, OURS, "steps/s", rate, at=at, samples=seeds),
        Row(SIMULATION_WRONG.name, OURS, "seeds", failed, at=at, samples=seeds),
    ]
