"""Branching, saving, loading, undoing: each must cost about one durable row, whatever the length of the thread.

The rows of the messages table are counted before and after, so that a copy made in some corner would show.
"""

from __future__ import annotations

import itertools

from bench.arena import Arena
from bench.budgets import BRANCH, COPIED, LOAD, OURS, SAVE, UNDO, Measure
from bench.cases.references import BARE_ROW, open_bare
from bench.contenders.ours import ThreadlineLibrary, place_for_ours
from bench.measure import Operation, interleave
from bench.results import Row, timings
from bench.workload import MESSAGES_PER_TURN, turns

WARMUP = 2


async def moves(arena: Arena) -> list[Row]:
    """Each of the four on threads of 100, 1,000 and 100,000 messages, against one durable one-row insert.
    Going back and trying again is how people work with agents; a copy of the history for each try would forbid it."""
    ours = await ThreadlineLibrary.open(await place_for_ours(arena))
    bare = await open_bare(arena)
    rounds, repeats = arena.sized(20, 10), arena.sized(10, 5)
    rows: list[Row] = []
    copied = 0
    for length in (100, 1_000, arena.sized(100_000, 10_000)):
        filling = list(itertools.islice(itertools.cycle(turns(1_000)), length // MESSAGES_PER_TURN))
        thread_id = await ours.start(filling)
        before = await ours.count_message_rows()
        operations = await _operations(ours, thread_id, times=(rounds + WARMUP) * repeats)
        await arena.settle()
        for work, operation in operations.items():
            pair = {BARE_ROW: bare.mark, OURS: operation}
            taken = await interleave(pair, rounds=rounds, repeats=repeats, warmup=WARMUP)
            rows += timings(work, taken, reference=BARE_ROW, at=f"{length:,} messages")
        copied += await ours.count_message_rows() - before
    await ours.close()
    await bare.close()
    return [*rows, Row(COPIED.name, OURS, "messages", copied)]


async def _operations(ours: ThreadlineLibrary, thread_id: str, *, times: int) -> dict[Measure, Operation]:
    thread = ours.thread(thread_id)
    names = (f"point {number}" for number in itertools.count())
    await thread.save("here")
    # Undoing one thread again and again would soon reach its beginning, so each time takes a thread of its own.
    branches = iter([await thread.branch() for _ in range(times)])
    return {
        BRANCH: thread.branch,
        SAVE: lambda: thread.save(next(names)),
        LOAD: lambda: thread.load("here"),
        UNDO: lambda: next(branches).undo(),
    }
