"""Appending a turn: alone against the bare driver, and the same in ever longer threads.

A turn begins as plain Python values and ends durable; encoding, checking and numbering are inside the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from bench.arena import Arena
from bench.budgets import APPEND_ALONE, APPEND_FLAT, OURS
from bench.cases.references import BARE, BARE_IN_STEPS, STORE_PORT, open_bare
from bench.contenders import Contender
from bench.contenders.bare_postgres import BarePostgres
from bench.contenders.ours import ThreadlineLibrary, ThreadlineStore, place_for_ours
from bench.measure import Operation, interleave
from bench.results import Row, timing, timings
from bench.workload import MESSAGES_PER_TURN, Turn, turns


async def alone(arena: Arena) -> list[Row]:
    """One caller appends turn after turn to a thread of 1,000 messages: the time until a turn is durable.
    It is what every reply waits for, so nothing the store promises may make it much dearer than the bare driver's."""
    ours = await ThreadlineLibrary.open(await place_for_ours(arena))
    port = await ThreadlineStore.open(await place_for_ours(arena))
    bare = await open_bare(arena)
    history = turns(500)
    feed = itertools.cycle(history)
    operations = {
        BARE: appending(bare, await bare.start(history), feed),
        OURS: appending(ours, await ours.start(history), feed),
        STORE_PORT: appending(port, await port.start(history), feed),
    }
    if isinstance(bare, BarePostgres):
        thread_id = await bare.start(history)
        operations[BARE_IN_STEPS] = lambda: bare.append_in_steps(thread_id, next(feed))
    await arena.settle()
    rounds, repeats, rest = arena.sized(60, 15), arena.sized(20, 8), {OURS: ours.rest, STORE_PORT: port.rest}
    taken = await interleave(operations, rounds=rounds, repeats=repeats, warmup=3, afterwards=rest)
    for contender in (ours, port, bare):
        await contender.close()
    return timings(APPEND_ALONE, taken, reference=BARE)


async def flat(arena: Arena) -> list[Row]:
    """The same append in threads of 100 to 100,000 messages, all in one database.
    A conversation that gets slower as it gets longer is the commonest fault of what people use today."""
    ours = await ThreadlineLibrary.open(await place_for_ours(arena))
    history = turns(2_000)
    feed = itertools.cycle(history)
    operations: dict[str, Operation] = {}
    for length in (100, 1_000, 10_000, arena.sized(100_000, 20_000)):
        filling = list(itertools.islice(itertools.cycle(history), length // MESSAGES_PER_TURN))
        operations[f"{length:,} messages"] = appending(ours, await ours.start(filling), feed)
    await arena.settle()
    rounds, repeats, rest = arena.sized(60, 15), arena.sized(10, 5), dict.fromkeys(operations, ours.rest)
    taken = await interleave(operations, rounds=rounds, repeats=repeats, warmup=3, afterwards=rest)
    await ours.close()
    shortest = next(iter(taken))
    return [
        timing(APPEND_FLAT, OURS, samples, at=at, against=(shortest, taken[shortest])) for at, samples in taken.items()
    ]


def appending(contender: Contender, thread_id: str, feed: Iterator[Turn]) -> Operation:
    return lambda: contender.append(thread_id, next(feed))
