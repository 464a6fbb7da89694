"""A process is killed in the middle of an answer and its request repeated: how soon it is answered, and what is lost.

A killed process runs many turns at once, each on a thread of its own. With the settings as they are shipped, so that
waiting for a lease takes half a minute. What is lost or doubled is counted in the threads themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import threadline
from bench.arena import Arena
from bench.budgets import OURS, RECOVERY, RECOVERY_P99, RECOVERY_WRONG
from bench.children import Child, KilledTurnsOrder
from bench.contenders.ours import SCOPE, place_for_ours
from bench.measure import Samples
from bench.results import Row, timing
from threadline.core.prompts import Prompt

_TURNS_PER_KILL = 8
_QUESTION = "Is it far?"
_ANSWER = "Not far: twenty minutes on foot."


async def answer(prompt: Prompt) -> AsyncIterator[str]:
    yield _ANSWER


async def recovery(arena: Arena) -> list[Row]:
    """From the kill to the whole answer of the repeated request, in a process that has the database open."""
    kills = arena.sized(40, 3)
    place = await place_for_ours(arena)
    taken: list[list[float]] = []
    wrong = 0
    async with threadline.open(place, agents={"agent": answer}) as opened:
        user = opened.as_user(SCOPE.user_id, tenant=SCOPE.tenant_id)
        for kill in range(kills):
            threads = [await user.create_thread(agent_id="agent") for _ in range(_TURNS_PER_KILL)]
            order = KilledTurnsOrder(place, [thread.id for thread in threads], _QUESTION, f"key-{kill}")
            child = await Child.start("killed-turns", order)
            await child.ready()
            killed_at = time.perf_counter()
            await child.kill()

            taken.append(await asyncio.gather(*(_repeat(thread, f"key-{kill}", killed_at) for thread in threads)))
            for thread in threads:
                said = [(message.role, message.text) for message in await thread.messages()]
                wrong += said != [("user", _QUESTION), ("assistant", _ANSWER)]
    samples = Samples(taken)
    turns = kills * _TURNS_PER_KILL
    at = f"{kills} kills, {turns} turns"
    return [
        timing(RECOVERY, OURS, samples, at=at),
        Row(RECOVERY_P99.name, OURS, "ms", samples.p99 * 1e3, at=at, samples=turns),
        Row(RECOVERY_WRONG.name, OURS, "turns", wrong, at=at, samples=turns),
    ]


async def _repeat(thread: threadline.ThreadHandle, key: str, since: float) -> float:
    await thread.ask(_QUESTION, key=f"{key}-{thread.id}")
    return time.perf_counter() - since
