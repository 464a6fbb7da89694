"""Every case in the order in which a run takes them, and how one is run: alone, in a process of its own.

A process per case means that no case inherits another's heap, caches or threads; the order never changes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.arena import Arena, arena
from bench.cases import (
    adapters,
    append,
    channels,
    chat_start,
    compaction,
    crowd,
    history_import,
    http,
    masking,
    matrix,
    moves,
    page,
    peers,
    reads,
    recovery,
    search,
    simulation,
    slow_clients,
    space,
    startup,
    streams,
    thread_lists,
    tools,
    turns,
)
from bench.machine import noise
from bench.places import BACKENDS, Backend
from bench.results import CaseResult, Row


class Case(NamedTuple):
    name: str
    measure: Callable[[Arena], Awaitable[list[Row]]]
    backends: tuple[Backend, ...] = BACKENDS


CASES = (
    Case("append", append.alone),
    Case("flat", append.flat),
    Case("crowd", crowd.many_threads),
    Case("one-thread", crowd.one_thread),
    Case("processes", crowd.processes),
    Case("last-turns", reads.last_turns),
    Case("depth", reads.at_depth),
    Case("whole", reads.whole_thread),
    Case("moves", moves.moves),
    Case("list", thread_lists.list_threads),
    Case("disk", space.disk),
    Case("memory", space.memory),
    Case("startup", startup.startup, ("sqlite",)),
    Case("turn", turns.whole_turn),
    Case("first-event", turns.first_event),
    Case("fan-out", turns.fan_out),
    Case("prompts", turns.prompts),
    Case("recovery", recovery.recovery),
    Case("masking", masking.mask, ("sqlite",)),
    Case("chat", chat_start.chat, ("sqlite",)),
    Case("tools", tools.tools, ("sqlite",)),
    Case("compaction", compaction.compaction, ("sqlite",)),
    Case("channels", channels.channels),
    Case("matrix", matrix.rooms, ("sqlite",)),
    Case("http", http.requests),
    Case("http-raw", http.raw),
    Case("streams", streams.idle, ("sqlite",)),
    Case("resume", streams.storm, ("sqlite",)),
    Case("slow-clients", slow_clients.slow_clients, ("sqlite",)),
    Case("simulation", simulation.simulation, ("sqlite",)),
    Case("page", page.page, ("sqlite",)),
    Case("langgraph", adapters.langgraph),
    Case("agents-sessions", adapters.agents_sessions),
    Case("adk-sessions", adapters.adk_sessions),
    Case("import", history_import.history_import),
    Case("peers", peers.peers),
    Case("search", search.search),
)


async def run_case(case: Case, backend: Backend, *, quick: bool) -> CaseResult:
    before = noise()
    started = time.perf_counter()
    async with arena(backend, quick=quick) as ground:
        rows = await case.measure(ground)
    seconds = round(time.perf_counter() - started, 1)
    return CaseResult(case=case.name, backend=backend, rows=rows, seconds=seconds, noise=[*before, *noise()])


def main(name: str, backend: Backend, size: str, output: str) -> None:
    """`python -m bench.catalogue CASE BACKEND quick|full FILE`: one case, its result written to the file."""
    case = next(case for case in CASES if case.name == name)
    result = asyncio.run(run_case(case, backend, quick=size == "quick"))
    Path(output).write_bytes(msgspec.json.encode(result))


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
