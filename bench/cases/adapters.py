"""The adapters beside what each framework stores with by itself, driven through the framework's own interface."""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable
from functools import partial

import asyncpg

from bench.arena import Arena
from bench.budgets import (
    ADK_APPEND,
    ADK_READ,
    CHECKPOINT_BYTES,
    CHECKPOINT_PUT,
    CHECKPOINT_READ,
    OURS,
    SESSION_ADD,
    SESSION_READ,
)
from bench.contenders import google_adk, langgraph_saver, openai_agents
from bench.contenders.langgraph_saver import Saver
from bench.contenders.ours import place_for_ours
from bench.measure import interleave
from bench.results import Row, timings
from bench.workload import turns

LANGGRAPH = "LangGraph's own saver"
AGENTS = "OpenAI Agents SQLiteSession"
AGENTS_SQLALCHEMY = "OpenAI Agents SQLAlchemySession"
ADK = "Google ADK's own service"


async def langgraph(arena: Arena) -> list[Row]:
    """LangGraph: a checkpoint with the writes of its task, and the latest checkpoint, after 10, 600 and 10,000
    checkpoints of a state that keeps its size, and after 600 of one that grows by a message each; bytes of each
    checkpoint after 1,000 of those."""
    rows: list[Row] = []
    for steps, growing in [*((steps, False) for steps in arena.sized((10, 600, 10_000), (10, 600))), (600, True)]:
        rows += await _checkpoints(arena, steps, growing=growing)
    return [*rows, *await _checkpoint_bytes(arena, arena.sized(1_000, 200))]


async def _checkpoints(arena: Arena, steps: int, *, growing: bool) -> list[Row]:
    savers = {LANGGRAPH: await _their_saver(arena), OURS: await langgraph_saver.ours(await place_for_ours(arena))}
    threads = {name: await saver.thread(steps, growing=growing) for name, saver in savers.items()}
    await arena.settle()
    reads = {name: thread.read_latest for name, thread in threads.items()}
    read = await interleave(reads, rounds=arena.sized(100, 25), repeats=1)
    puts = {name: thread.step for name, thread in threads.items()}
    put = await interleave(puts, rounds=arena.sized(100, 25), repeats=1)
    for saver in savers.values():
        await saver.close()
    at = f"{steps:,} checkpoints{', a message each' if growing else ''}"
    return [
        *timings(CHECKPOINT_PUT, put, reference=LANGGRAPH, at=at),
        *timings(CHECKPOINT_READ, read, reference=LANGGRAPH, at=at),
    ]


async def _checkpoint_bytes(arena: Arena, steps: int) -> list[Row]:
    ours = await langgraph_saver.ours(await place_for_ours(arena))
    sizes = {
        LANGGRAPH: await _grown(arena, await _their_saver(arena), steps),
        OURS: await _grown(arena, ours, steps),
    }
    return [
        Row(
            CHECKPOINT_BYTES.name,
            name,
            "bytes",
            size / steps,
            at=f"{steps:,} checkpoints, a message each",
            ratio=size / sizes[LANGGRAPH],
            against=LANGGRAPH,
        )
        for name, size in sizes.items()
    ]


async def _grown(arena: Arena, saver: Saver, steps: int) -> int:
    before = await _size(arena, saver.place)
    await saver.thread(steps, growing=True)
    # Closing moves SQLite's log into the file.
    await saver.close()
    return await _size(arena, saver.place) - before


async def _size(arena: Arena, place: str) -> int:
    if arena.backend == "sqlite":
        return os.stat(place).st_size  # noqa: PTH116 - nothing else runs meanwhile
    connection = await asyncpg.connect(arena.admin_dsn(place))
    await connection.execute("VACUUM")
    size: int = await connection.fetchval("SELECT pg_database_size(current_database())")
    await connection.close()
    return size


async def _their_saver(arena: Arena) -> Saver:
    if arena.backend == "sqlite":
        return await langgraph_saver.theirs_on_sqlite(arena.file("langgraph"))
    return await langgraph_saver.theirs_on_postgres(await arena.database())


async def agents_sessions(arena: Arena) -> list[Row]:
    """OpenAI Agents: the four items of a turn added to a session of 1,000 items, and all its items, as a runner reads
    them. On PostgreSQL the SDK has SQLAlchemySession."""
    if arena.backend == "sqlite":
        theirs, name = await openai_agents.sqlite(arena.file("agents")), AGENTS
    else:
        theirs, name = await openai_agents.sqlalchemy_postgres(await arena.database()), AGENTS_SQLALCHEMY
    sessions = {name: theirs, OURS: await openai_agents.ours(await place_for_ours(arena))}
    items = 1_000
    history = turns(items // openai_agents.ITEMS_PER_TURN)
    ids = {name: await each.start(history) for name, each in sessions.items()}
    await arena.settle()
    reads = {name: partial(each.everything, ids[name]) for name, each in sessions.items()}
    read = await interleave(reads, rounds=arena.sized(60, 15), repeats=1)
    adds = {name: _each_turn(partial(each.append, ids[name])) for name, each in sessions.items()}
    added = await interleave(adds, rounds=arena.sized(100, 25), repeats=1)
    for each in sessions.values():
        await each.close()
    at = f"{items:,} items"
    return [
        *timings(SESSION_ADD, added, reference=name, at=at),
        *timings(SESSION_READ, read, reference=name, at=at),
    ]


async def adk_sessions(arena: Arena) -> list[Row]:
    """Google ADK: an event with a change of the state appended to a session of 1,000 events, and the session read
    with all of them."""
    if arena.backend == "sqlite":
        theirs = await google_adk.sqlite(arena.file("adk"))
    else:
        theirs = await google_adk.postgres(await arena.database())
    services = {ADK: theirs, OURS: await google_adk.ours(await place_for_ours(arena))}
    events = arena.sized(1_000, 200)
    history = turns(events // google_adk.EVENTS_PER_TURN)
    ids = {name: await each.start(history) for name, each in services.items()}
    await arena.settle()
    reads = {name: partial(each.last_turns, ids[name], len(history)) for name, each in services.items()}
    read = await interleave(reads, rounds=arena.sized(20, 6), repeats=1)
    appends = {name: _each_turn(partial(each.append_event, ids[name])) for name, each in services.items()}
    appended = await interleave(appends, rounds=arena.sized(100, 25), repeats=1)
    for each in services.values():
        await each.close()
    at = f"{events:,} events"
    return [*timings(ADK_APPEND, appended, reference=ADK, at=at), *timings(ADK_READ, read, reference=ADK, at=at)]


def _each_turn(add: Callable[..., Awaitable[object]]) -> Callable[[], Awaitable[object]]:
    feed = itertools.cycle(turns(100, seed=1))
    return lambda: add(next(feed))
