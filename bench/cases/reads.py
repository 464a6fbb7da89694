"""Reading: the last turns that an agent is shown, at any length and any depth of branching, and a whole thread.

Threadline gives messages whose parts are decoded when they are looked at. Both are measured: as given, and with every
part decoded, beside the bare rows and the bare rows with orjson.
"""

from __future__ import annotations

import itertools
from functools import partial

from bench.arena import Arena
from bench.budgets import LAST_TURNS, LAST_TURNS_DEEP, OURS, WHOLE, WHOLE_DECODED
from bench.cases.references import BARE, BARE_DECODED, OURS_DECODED, open_bare
from bench.contenders.ours import ThreadlineLibrary, place_for_ours
from bench.measure import Operation, interleave
from bench.results import Row, timing, timings
from bench.workload import MESSAGES_PER_TURN, Turn, turns

WINDOW = 12
DEPTH = 1_000


async def last_turns(arena: Arena) -> list[Row]:
    """The last 12 turns of threads of 100 to 100,000 messages, against the same rows fetched bare.
    Each reply begins with this read, so it must cost the same however long the thread and however large the file."""
    ours = await ThreadlineLibrary.open(await place_for_ours(arena))
    bare = await open_bare(arena)
    lengths = (100, 1_000, 10_000, arena.sized(100_000, 20_000))
    histories = {length: (await bare.start(_filling(length)), await ours.start(_filling(length))) for length in lengths}
    await arena.settle()
    rows: list[Row] = []
    for length, (in_bare, in_ours) in histories.items():
        operations: dict[str, Operation] = {
            BARE: partial(bare.last_turns, in_bare, WINDOW),
            OURS: partial(ours.last_turns, in_ours, WINDOW),
            BARE_DECODED: partial(bare.last_turns_decoded, in_bare, WINDOW),
            OURS_DECODED: partial(_last_turns_decoded, ours, in_ours),
        }
        taken = await interleave(operations, rounds=arena.sized(40, 15), repeats=10, warmup=2)
        rows += timings(LAST_TURNS, taken, reference=BARE, at=f"{length:,} messages")
    await bare.close()
    await ours.close()
    return rows


async def at_depth(arena: Arena) -> list[Row]:
    """The last 12 turns of a thread that was branched 1,000 times, a turn written after each branch.
    A window then spans 12 timelines, which is where a store that looks its ancestors up one by one falls behind."""
    ours = await ThreadlineLibrary.open(await place_for_ours(arena))
    bare = await open_bare(arena)
    history = turns(DEPTH)
    deep = await _branched(ours, history)
    operations: dict[str, Operation] = {
        BARE: partial(bare.last_turns, await bare.start(history), WINDOW),
        SHALLOW: partial(ours.last_turns, await ours.start(history), WINDOW),
        OURS: partial(ours.last_turns, deep, WINDOW),
    }
    await arena.settle()
    taken = await interleave(operations, rounds=arena.sized(40, 15), repeats=10, warmup=2)
    await bare.close()
    await ours.close()
    # PostgreSQL's budget compares with the same read on one timeline, SQLite's with the bare driver.
    reference, other = (BARE, SHALLOW) if arena.backend == "sqlite" else (SHALLOW, BARE)
    return [
        *timings(LAST_TURNS_DEEP, taken, reference=reference),
        timing(LAST_TURNS_DEEP, f"{OURS}, compared otherwise", taken[OURS], against=(other, taken[other])),
    ]


async def whole_thread(arena: Arena) -> list[Row]:
    """A whole thread as typed messages, against a loop of bare rows and orjson.loads.
    Exports, web pages and agents with large windows read this; types must not cost more than dictionaries."""
    ours = await ThreadlineLibrary.open(await place_for_ours(arena))
    bare = await open_bare(arena)
    rows: list[Row] = []
    for length in (1_000, arena.sized(10_000, 4_000)):
        history = _filling(length)
        in_ours = await ours.start(history)
        operations: dict[str, Operation] = {
            BARE: partial(bare.whole_decoded, await bare.start(history)),
            OURS: ours.thread(in_ours).messages,
            OURS_DECODED: partial(_whole_decoded, ours, in_ours),
        }
        await arena.settle()
        taken = await interleave(operations, rounds=arena.sized(20, 8), repeats=2)
        at, reference = f"{length:,} messages", (BARE, taken[BARE])
        rows += [
            timing(WHOLE, BARE, taken[BARE], at=at),
            timing(WHOLE, OURS, taken[OURS], at=at, against=reference),
            timing(WHOLE_DECODED, OURS, taken[OURS_DECODED], at=at, against=reference),
        ]
    await bare.close()
    await ours.close()
    return rows


SHALLOW = f"{OURS}, on one timeline"


def _filling(messages: int) -> list[Turn]:
    return list(itertools.islice(itertools.cycle(turns(2_000)), messages // MESSAGES_PER_TURN))


async def _branched(ours: ThreadlineLibrary, history: list[Turn]) -> str:
    thread_id = await ours.start(history[:1])
    for turn in history[1:]:
        thread_id = ours.add(await ours.thread(thread_id).branch()).id
        await ours.append(thread_id, turn)
    return thread_id


async def _last_turns_decoded(ours: ThreadlineLibrary, thread_id: str) -> list[object]:
    return [message.parts for message in await ours.last_turns(thread_id, WINDOW)]


async def _whole_decoded(ours: ThreadlineLibrary, thread_id: str) -> list[object]:
    return [message.parts for message in await ours.thread(thread_id).messages()]
