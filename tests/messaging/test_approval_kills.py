"""Kill -9 of the service between the question for an approval and its answer, on every platform: the question is asked
once, and the answer after the restart continues the same reply, once.

With the settings of a new installation, where a claim and a lease last half a minute.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.messaging.conftest import KEYS
from tests.messaging.killed_process import Place, open_place, start
from tests.messaging.test_kills import new_database, reachable
from tests.ports import free_port
from threadline.core.parts import ToolPart
from threadline.core.threads import Scope, system_scope
from threadline.messaging.home_threads import home_key
from threadline.testing.platforms import FakePlatform, FakeSlack, FakeTelegram, FakeWhatsApp
from threadline.testing.platforms.loopback import Told

pytestmark = pytest.mark.req("A-04", "S3-23")
TENANT, USER, AGENT = "asked", "ada", "rehearsal"
PLATFORMS = [FakeSlack, FakeTelegram, FakeWhatsApp]
SECONDS = 60.0
STAMPED = "Here it is, stamped"


class Lives(NamedTuple):
    """A service that lives several times, and the platform that it talks to."""

    place: Place
    fake: FakePlatform
    processes: list[ForkServerProcess]

    async def start(self) -> None:
        self.processes.append(start(self.place))
        await reachable(self.place.port)

    async def kill(self) -> None:
        self.processes[-1].kill()
        await asyncio.to_thread(self.processes[-1].join)

    async def deliver(self, body: bytes) -> Told:
        """As platforms do: until it is acknowledged."""
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    told = await self.fake.deliver(body)
                except (OSError, TimeoutError):
                    told = None
                if told is not None and told.status == 200:
                    return told
                await asyncio.sleep(0.02)

    async def is_sent(self, count: int) -> None:
        """Until so many replies are stored as sent."""
        async with asyncio.timeout(SECONDS), await open_place(self.place) as threadline:
            system = threadline.store.scoped(system_scope(TENANT))
            # Another process does it.
            while [row.status for row in await system.outbox()].count("sent") < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def calls(self) -> list[ToolPart]:
        async with await open_place(self.place) as threadline:
            tx = threadline.store.scoped(Scope(TENANT, USER))
            home = await tx.thread_by_key(home_key(AGENT))
            assert home is not None
            messages = await tx.messages(home.id)
            assert [message.role for message in messages] == ["user", "assistant"], "it is the same reply"
            return [part for part in messages[1].parts if isinstance(part, ToolPart)]


@asynccontextmanager
async def living(fake: FakePlatform, database: str) -> AsyncIterator[Lives]:
    async with fake:
        apis = {str(fake.platform): fake.api}
        place = Place(database, free_port(), TENANT, KEYS, fake.api, is_shipped=True, agent=AGENT, apis=apis)
        fake.webhook = f"http://127.0.0.1:{place.port}/api/v1/tenants/{TENANT}/channels/{fake.platform}/webhook"
        async with await open_place(place) as threadline:
            scope = Scope(TENANT, "root", "admin")
            await threadline.messaging.credentials.put(scope, fake.platform, fake.secrets)
            await threadline.messaging.links.put(scope, fake.platform, fake.person, USER, revoked=False)
        lives = Lives(place, fake, [])
        try:
            yield lives
        finally:
            await lives.kill()


async def answer(lives: Lives) -> None:
    """Presses the button of the one question, and checks that the same reply was continued once."""
    said, question, *more = lives.fake.sent
    assert said.text == "I need your approval for this."
    assert "Allow" in question.text
    assert more == [], "the question is asked once"
    body = lives.fake.press(question, "Allow")
    await lives.deliver(body)
    await lives.kill()
    await lives.start()
    await lives.deliver(body)
    await lives.fake.replies(3, seconds=SECONDS)
    await lives.is_sent(3)
    assert [reply.text.startswith(STAMPED) for reply in lives.fake.sent] == [False, False, True]
    (call,) = await lives.calls()
    assert call.state == "output-available"


@pytest.mark.parametrize("kind", PLATFORMS)
async def test_an_answer_after_a_kill_continues_the_same_reply(kind: type[FakePlatform], tmp_path: Path) -> None:
    async with living(kind(), await new_database("file", tmp_path)) as lives:
        await lives.start()
        await lives.deliver(lives.fake.write("stamp hello"))
        await lives.fake.replies(2, seconds=SECONDS)
        # A platform that cannot be searched may get a row again that is not settled yet.
        await lives.is_sent(2)
        await lives.kill()
        await lives.start()
        await answer(lives)


async def kill_while_asking(database: str, seed: int) -> None:
    chance = random.Random(seed)
    async with living(FakeSlack(), database) as lives:
        await lives.start()
        await lives.deliver(lives.fake.write("stamp hello"))
        for _ in range(3):
            await asyncio.sleep(chance.uniform(0.0, 0.15))
            await lives.kill()
            await lives.start()
        await lives.fake.replies(2, seconds=SECONDS)
        await lives.is_sent(2)
        await answer(lives)


async def test_kills_while_the_question_is_sent_ask_it_once(tmp_path: Path) -> None:
    await kill_while_asking(await new_database("file", tmp_path), seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["file", "postgres"])
async def test_no_number_of_kills_asks_twice(kind: str, seed: int, tmp_path: Path) -> None:
    await kill_while_asking(await new_database(kind, tmp_path), seed=seed)
