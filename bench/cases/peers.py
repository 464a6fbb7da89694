"""What people use today, on the same work, in the same run.

No budget: the peers are here to say what a reader may expect elsewhere, at what their own documentation shows.
"""

from __future__ import annotations

import itertools
from functools import partial

from bench.arena import Arena
from bench.budgets import OURS, PEERS_APPEND, PEERS_READ
from bench.cases.append import appending
from bench.cases.references import BARE, open_bare
from bench.contenders import Contender
from bench.contenders.ours import ThreadlineLibrary, place_for_ours
from bench.contenders.peers import PEERS, open_peer
from bench.measure import interleave
from bench.results import Row, timings
from bench.workload import turns

WINDOW = 12
TURNS = 500


async def peers(arena: Arena) -> list[Row]:
    """Append of a turn to a thread of 1,000 messages and its last 12 turns, for each peer with the settings it comes
    with. The bare driver says what is possible; the peers say what is usual."""
    history = turns(TURNS)
    ours = await ThreadlineLibrary.open(await place_for_ours(arena))
    contenders: dict[str, Contender] = {BARE: await open_bare(arena), OURS: ours}
    for peer in PEERS:
        if peer.backend == arena.backend:
            contenders[peer.name] = await open_peer(peer, arena)
    threads = {name: await contender.start(history) for name, contender in contenders.items()}
    reads = {name: partial(contender.last_turns, threads[name], WINDOW) for name, contender in contenders.items()}
    await arena.settle()
    read = await interleave(reads, rounds=arena.sized(20, 4), repeats=3)
    feed = itertools.cycle(history)
    appends = {name: appending(contender, threads[name], feed) for name, contender in contenders.items()}
    appended = await interleave(appends, rounds=arena.sized(20, 4), repeats=3, afterwards={OURS: ours.rest})
    for contender in contenders.values():
        await contender.close()
    return [*timings(PEERS_APPEND, appended, reference=BARE), *timings(PEERS_READ, read, reference=BARE)]
