"""The channels: how soon a webhook is acknowledged, whether anything is lost or doubled, how fast replies leave.

The stand-in for Slack is in the process that measures, the service in others, so that both ends are real connections.
Nothing is compared: no peer does this work.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress

from bench.arena import Arena
from bench.budgets import (
    CHANNEL_ACKNOWLEDGED,
    CHANNEL_ACKNOWLEDGED_P99,
    CHANNEL_OUTBOX,
    CHANNEL_WRONG,
    OURS,
)
from bench.channel_load import Ground, Service, ground
from bench.measure import Samples
from bench.results import Row, timing
from threadline.core.sealing import CleanText
from threadline.core.threads import system_scope
from threadline.testing.platforms.slack import direct

_REPEATED = 0.2
_PATIENCE = 400.0


async def channels(arena: Arena) -> list[Row]:
    """Webhooks at a steady rate with a slow agent; deliveries with repeats and kills; the outbox and its workers."""
    rows = [*await _acknowledgement(arena), await _exactly_once(arena)]
    if arena.backend == "postgres":
        rows += [await _outbox(arena, workers) for workers in (1, 2, 4)]
    return rows


async def _place(arena: Arena) -> str:
    return await arena.database(migrated=True) if arena.backend == "postgres" else str(arena.file("channels"))


async def _acknowledgement(arena: Arena) -> list[Row]:
    rate, seconds = arena.sized((500, 60), (100, 3))
    settings = arena.file("settings").with_suffix(".toml")
    async with (
        ground(await _place(arena), settings, agent="slow", people=rate * 2) as found,
        found.services(),
    ):
        taken = await _steadily(found, rate, seconds)
    samples = Samples([taken])
    at = f"{rate} a second for {seconds} s"
    return [
        timing(CHANNEL_ACKNOWLEDGED, OURS, samples, at=at),
        Row(CHANNEL_ACKNOWLEDGED_P99.name, OURS, "ms", samples.p99 * 1e3, at=at, samples=len(samples)),
    ]


async def _steadily(found: Ground, rate: int, seconds: int) -> list[float]:
    """Messages leave at their moment, whether or not earlier ones were acknowledged."""
    people = found.people(rate * 2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    sending: list[asyncio.Task[float]] = []
    for number in range(rate * seconds):
        await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
        body = found.slack.write(f"message {number}", people[number % len(people)])
        sending.append(asyncio.create_task(_acknowledged(found, body)))
    return list(await asyncio.gather(*sending))


async def _acknowledged(found: Ground, body: bytes) -> float:
    """One that never comes counts for as long as a platform waits."""
    began = time.perf_counter()
    with suppress(OSError, TimeoutError):
        told = await found.slack.deliver(body)
        if told.status != 200:
            raise RuntimeError(f"the webhook answered {told.status}: {told.body[:200]!r}")
    return time.perf_counter() - began


async def _exactly_once(arena: Arena) -> Row:
    """Every fifth message comes twice, everything in a random order, and the service is killed again and again."""
    count, pause = arena.sized((10_000, 5.0), (200, 1.5))
    settings = arena.file("settings").with_suffix(".toml")
    chance = random.Random(5)  # noqa: S311 - the same in every run
    async with (
        ground(await _place(arena), settings, agent="instant", people=100) as found,
        found.services() as (service,),
    ):
        people = found.people(100)
        bodies = [found.slack.write(f"message {number}", people[number % 100]) for number in range(count)]
        bodies += chance.sample(bodies, int(count * _REPEATED))
        chance.shuffle(bodies)
        killing = asyncio.create_task(_kill_again_and_again(service, pause, chance))
        await _delivered(found, bodies)
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
        await service.restart()
        await found.slack.replies(count, _PATIENCE)
        answered = Counter(reply.text for reply in found.slack.sent)
    wrong = sum(abs(answered[f"answer to message {number}"] - 1) for number in range(count))
    return Row(CHANNEL_WRONG.name, OURS, "messages", wrong, at=f"{count:,} messages", samples=count)


async def _delivered(found: Ground, bodies: list[bytes]) -> None:
    """As platforms do it: a few at a time, and again until the service says that it has it."""
    waiting = asyncio.Queue[bytes]()
    for body in bodies:
        waiting.put_nowait(body)

    async def deliver() -> None:
        while not waiting.empty():
            body = waiting.get_nowait()
            try:
                has_it = (await found.slack.deliver(body)).status == 200
            except (OSError, TimeoutError):
                has_it = False
            if not has_it:
                waiting.put_nowait(body)
                await asyncio.sleep(0.2)

    await asyncio.gather(*(deliver() for _ in range(16)))


async def _kill_again_and_again(service: Service, pause: float, chance: random.Random) -> None:
    while True:
        await asyncio.sleep(pause * (0.5 + chance.random()))
        await asyncio.shield(service.restart())


async def _outbox(arena: Arena, workers: int) -> Row:
    count = arena.sized(5_000, 300)
    settings = arena.file("settings").with_suffix(".toml")
    async with (
        ground(await _place(arena), settings, agent="instant", people=1) as found,
        found.services(workers),
        found.opened() as threadline,
    ):
        payload = CleanText(threadline.messaging.codecs["slack"].render("A reply of usual length. " * 20)[0])
        system = threadline.store.scoped(system_scope("local"))
        began = time.perf_counter()
        for number in range(count):
            recipient = direct(f"U{number % 500}")
            await system.enqueue("slack", recipient, payload, turn_id=None, owner_id="local")
        await found.slack.replies(count, _PATIENCE)
        seconds = time.perf_counter() - began
    assert len(found.slack.sent) == count
    at = f"{workers} {'worker' if workers == 1 else 'workers'}"
    return Row(CHANNEL_OUTBOX.name, OURS, "messages/s", count / seconds, at=at, samples=count)
