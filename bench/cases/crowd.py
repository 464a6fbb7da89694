"""Many tasks appending at once: to threads of their own, all to one thread, and from several processes.

Throughput is compared round by round; errors and losses are counted over all rounds, the warm-up included.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from bench.arena import Arena
from bench.budgets import (
    CROWD,
    CROWD_ERRORS,
    CROWD_P99,
    ONE_THREAD,
    ONE_THREAD_LOST,
    OURS,
    PROCESSES,
    PROCESSES_ERRORS,
    Measure,
)
from bench.cases.rivals import Rival, open_rivals
from bench.children import Child, CrowdOrder
from bench.crowds import TASKS, Crowd, count_wrong, run_crowd
from bench.measure import Samples
from bench.results import Row, throughput

PROCESS_COUNT = 4


async def many_threads(arena: Arena) -> list[Row]:
    """64 tasks append to 64 threads in one process, as a busy service does: throughput, the slowest of a hundred
    turns, and errors. Waiting for each other's commits must make it quicker, not slower, and no append may fail."""
    rivals = await open_rivals(arena, threads=TASKS)
    per_task = arena.sized(40, 10)
    crowds = await _crowds(rivals, rounds=arena.sized(6, 2), per_task=per_task)
    slowest = statistics.median(1e3 * Samples([crowd.latencies]).p99 for crowd in crowds[OURS][1:])
    return [
        *throughput(CROWD, TASKS * per_task, _elapsed(crowds), reference=rivals[0].name),
        Row(CROWD_P99.name, OURS, "ms", slowest),
        *_errors(CROWD_ERRORS, crowds),
    ]


async def one_thread(arena: Arena) -> list[Row]:
    """The same 64 tasks, all on one thread: what a group room or an eager client does.
    Every acknowledged message must be there once and in order, and the queue for one head must not cost the speed."""
    rivals = await open_rivals(arena, threads=1)
    per_task = arena.sized(20, 10)
    crowds = await _crowds(rivals, rounds=arena.sized(6, 2), per_task=per_task)
    acknowledged = [message_id for crowd in crowds[OURS] for message_id in crowd.acknowledged]
    ours = rivals[-1]
    assert ours.store is not None
    stored = await ours.store.thread(ours.thread_ids[0]).messages()
    wrong = count_wrong(acknowledged, [(message.seq, message.id) for message in stored])
    failed = sum(len(crowd.errors) for crowd in crowds[OURS])
    return [
        *throughput(ONE_THREAD, TASKS * per_task, _elapsed(crowds), reference=rivals[0].name),
        Row(ONE_THREAD_LOST.name, OURS, "messages", wrong + failed),
    ]


async def processes(arena: Arena) -> list[Row]:
    """The 64 tasks in four processes that share one database, 16 each.
    SQLite allows one writer at a time: a store that several processes may share must wait its turn, never fail."""
    rivals = [rival for rival in await open_rivals(arena, threads=TASKS) if rival.place is not None]
    per_task = arena.sized(20, 5)
    crowds: dict[str, list[Crowd]] = {rival.name: [] for rival in rivals}
    for _ in range(1 + arena.sized(4, 1)):
        for rival in rivals:
            crowds[rival.name].append(await _crowd_of_processes(rival, per_task))
            if rival.store is not None:
                await rival.store.rest()
    return [
        *throughput(PROCESSES, TASKS * per_task, _elapsed(crowds), reference=rivals[0].name),
        *_errors(PROCESSES_ERRORS, crowds),
    ]


async def _crowd_of_processes(rival: Rival, per_task: int) -> Crowd:
    assert rival.place is not None
    share = TASKS // PROCESS_COUNT
    children = [
        await Child.start(
            "crowd",
            CrowdOrder(
                ours=rival.name == OURS,
                place=rival.place,
                thread_ids=rival.thread_ids[first : first + share],
                per_task=per_task,
            ),
        )
        for first in range(0, TASKS, share)
    ]
    for child in children:
        await child.ready()
    for child in children:
        child.go()
    crowds = [await child.report(Crowd) for child in children]
    return Crowd(
        started=min(crowd.started for crowd in crowds),
        ended=max(crowd.ended for crowd in crowds),
        latencies=[seconds for crowd in crowds for seconds in crowd.latencies],
        acknowledged=[message_id for crowd in crowds for message_id in crowd.acknowledged],
        errors=[error for crowd in crowds for error in crowd.errors],
    )


async def _crowds(rivals: Sequence[Rival], *, rounds: int, per_task: int) -> dict[str, list[Crowd]]:
    found: dict[str, list[Crowd]] = {rival.name: [] for rival in rivals}
    for _ in range(1 + rounds):
        for rival in rivals:
            spread = (rival.thread_ids * TASKS)[:TASKS]
            found[rival.name].append(await run_crowd(rival.append, spread, per_task))
            if rival.store is not None:
                await rival.store.rest()
    return found


def _elapsed(crowds: Mapping[str, Sequence[Crowd]]) -> dict[str, Samples]:
    """Of all rounds but the first, which warms up."""
    return {name: Samples([[crowd.seconds] for crowd in found[1:]]) for name, found in crowds.items()}


def _errors(work: Measure, crowds: Mapping[str, Sequence[Crowd]]) -> list[Row]:
    return [
        Row(work.name, name, "errors", float(sum(len(crowd.errors) for crowd in found)))
        for name, found in crowds.items()
    ]
