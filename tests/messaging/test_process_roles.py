"""Channels with web processes and workers apart: kills and restarts of either while a platform that recognises no
repeat delivers. Every message is answered once, in its order, and without waiting for a lease or a claim to end: these
last longer than the tests wait."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from tests.messaging.conftest import KEYS
from tests.messaging.killed_process import Place, start
from tests.messaging.test_kills import insist, look, new_database, prepare, reachable, settled
from tests.ports import free_port
from threadline.testing.platforms import FakeSlack

_DATABASES = pytest.mark.parametrize("kind", ["file", pytest.param("postgres", marks=pytest.mark.slow)])


class Crew:
    """One web process and two workers, which are started again when they end."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        self._places = [place._replace(role="web"), *[place._replace(role="worker")] * 2]
        self._stack = stack
        self._processes = [self._start(each) for each in self._places]

    def _start(self, place: Place) -> ForkServerProcess:
        process = start(place)
        self._stack.callback(process.kill)
        return process

    async def replace(self, number: int, *, is_killed: bool) -> None:
        """Its successor starts when it has ended."""
        process = self._processes[number]
        (process.kill if is_killed else process.terminate)()
        await asyncio.to_thread(process.join)
        self._processes[number] = self._start(self._places[number])
        if number == 0:
            await reachable(self._places[0].port)


async def run(
    kind: str, tmp_path: Path, messages: int, disturb: Callable[[Crew, random.Random], Coroutine[Any, Any, None]]
) -> None:
    chance = random.Random(7)
    with ExitStack() as stack:
        async with asyncio.timeout(300), FakeSlack() as slack:
            database = await new_database(kind, tmp_path)
            place = Place(database, free_port(), "roles", KEYS, slack.api, is_shipped=True, hold_seconds=3_600.0)
            slack.webhook = f"http://127.0.0.1:{place.port}/api/v1/tenants/roles/channels/slack/webhook"
            await prepare(place, slack)
            crew = Crew(place, stack)
            await reachable(place.port)
            said = {f"Message {number}": chance.choice(("U1001", "U1002")) for number in range(messages)}
            disturbing = asyncio.create_task(disturb(crew, chance))
            for text, sender in said.items():
                await insist(slack, slack.write(text, sender), random.Random(1))
                await asyncio.sleep(chance.uniform(0.0, 0.05))
            await disturbing
            await slack.replies(messages, seconds=120)
            await settled(place)
            await look(place, slack, said)
            for sender in set(said.values()):
                mine = [f"You said: {text}" for text, author in said.items() if author == sender]
                assert [reply.text for reply in slack.sent if reply.text in mine] == mine


# With the slow tests since it found a claimed turn that no task ran: it has to prove itself there first.
@pytest.mark.slow
@pytest.mark.req("K-04")
@_DATABASES
@pytest.mark.parametrize("is_killed", [False, True])
async def test_workers_that_end_lose_double_and_delay_no_reply(kind: str, is_killed: bool, tmp_path: Path) -> None:
    async def disturb(crew: Crew, chance: random.Random) -> None:
        for number in (1, 2, 1):
            await asyncio.sleep(chance.uniform(0.0, 0.2))
            await crew.replace(number, is_killed=is_killed)

    await run(kind, tmp_path, 12, disturb)


@pytest.mark.req("K-04")
@_DATABASES
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_web_process_that_ends_loses_and_delays_no_reply(kind: str, is_killed: bool, tmp_path: Path) -> None:
    async def disturb(crew: Crew, chance: random.Random) -> None:
        for _ in range(2):
            await asyncio.sleep(chance.uniform(0.0, 0.2))
            await crew.replace(0, is_killed=is_killed)

    await run(kind, tmp_path, 12, disturb)
