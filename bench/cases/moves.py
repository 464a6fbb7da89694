"""Branching, saving, loading, undoing: each must cost about one durable row, whatever the length of the thread.

The rows of the messages table are counted before and after, so that a copy made in some corner would show.
"""

from __future__ import annotations

import itertools

from bench.arena import Arena
from bench.budgets import BRANCH, COPIED, LOAD, OURS, SAVE, UNDO, TransactionBody
from bench.cases.references import BARE_ROW, open_bare
from bench.contenders.ours import ThreadlineStore, place_for_ours
from bench.measure import Operation, interleave
from bench.results import Row, timings
from bench.workload import MESSAGES_PER_TURN, turns
from threadline.core.ids import new_id
from threadline.core.threads import NewThread

WARMUP = 2


async def moves(arena: Arena) -> list[Row]:
    """Each of the four on threads of 100, 1,000 and 100,000 messages, against one durable one-row insert.
    Going back and trying again is how people work with agents; a copy of the history for each try would forbid it."""
    ours = await ThreadlineStore.open(await place_for_ours(arena))
    bare = await open_bare(arena)
    rounds, repeats = arena.sized(20, 10), arena.sized(10, 5)
    rows: list[Row] = []
    copied = 0
    for length in (100, 1_000, arena.sized(100_000, 10_000)):
        filling = list(itertools.islice(itertools.cycle(turns(1_000)), length // MESSAGES_PER_TURN))
        thread_id = await ours.start(filling)
        before = await _message_rows(ours)
        operations = await _operations(ours, thread_id, times=(rounds + WARMUP) * repeats)
        await arena.settle()
        for work, operation in operations.items():
            pair = {BARE_ROW: bare.mark, OURS: operation}
            taken = await interleave(pair, rounds=rounds, repeats=repeats, warmup=WARMUP)
            rows += timings(work, taken, reference=BARE_ROW, at=f"{length:,} messages")
        copied += await _message_rows(ours) - before
    await ours.close()
    await bare.close()
    return [*rows, Row(COPIED.name, OURS, "messages", copied)]


async def _operations(ours: ThreadlineStore, thread_id: str, *, times: int) -> dict[TransactionBody, Operation]:
    tx = ours.tx
    names = (f"point {number}" for number in itertools.count())
    await tx.save(thread_id, "here")
    # Undoing one thread again and again would soon reach its beginning, so each time takes a thread of its own.
    undone = iter([(await tx.branch(thread_id, _new())).id for _ in range(times)])
    return {
        BRANCH: lambda: tx.branch(thread_id, _new()),
        SAVE: lambda: tx.save(thread_id, next(names)),
        LOAD: lambda: tx.load(thread_id, "here"),
        UNDO: lambda: tx.undo(next(undone)),
    }


def _new() -> NewThread:
    return NewThread(id=new_id(), state_key=new_id())


async def _message_rows(ours: ThreadlineStore) -> int:
    return (await ours.tx.row_counts())["messages"]
