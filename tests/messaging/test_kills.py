"""Kill -9 of the service at random instants, while a platform delivers, repeats and reorders.

Every message that was acknowledged is answered once, and none is lost: the platform sees one reply to each, each user's
thread holds each question and its answer once.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.messaging.conftest import KEYS
from tests.messaging.killed_process import Place, open_place, start
from tests.ports import free_port
from threadline.core.threads import Scope, system_scope
from threadline.messaging.home_threads import home_key
from threadline.testing.platforms import FakeSlack

SENDERS = {"U1001": "ada", "U1002": "bob", "U1003": "ada"}


async def new_database(kind: str, tmp_path: Path) -> str:
    if kind == "file":
        return str(tmp_path / "killed.db")
    from threadline.testing.postgres import shared_server

    return await shared_server().create_database()


async def prepare(place: Place, slack: FakeSlack) -> None:
    async with await open_place(place) as threadline:
        scope = Scope(place.tenant_id, "root", "admin")
        await threadline.messaging.credentials.put(scope, "slack", slack.secrets)
        for sender, user in SENDERS.items():
            await threadline.messaging.links.put(scope, "slack", sender, user, revoked=False)


async def insist(slack: FakeSlack, body: bytes, chance: random.Random) -> None:
    """As platforms do: until it is acknowledged, and now and then once more."""
    for _ in range(1 + (chance.random() < 0.3)):
        while True:
            try:
                told = await slack.deliver(body)
            except (OSError, TimeoutError):
                told = None
            if told is not None and told.status == 200:
                break
            await asyncio.sleep(0.02)


async def kill_often(place: Place, kills: int, chance: random.Random) -> None:
    """The last one lives."""
    for _ in range(kills):
        process = start(place)
        await reachable(place.port)
        await asyncio.sleep(chance.uniform(0.0, 0.25))
        process.kill()
        await asyncio.to_thread(process.join)


async def reachable(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        writer.close()
        await writer.wait_closed()
        return


async def kill_and_look(database: str, seed: int, kills: int, messages: int) -> None:
    chance = random.Random(seed)
    async with asyncio.timeout(150 + 5 * kills), FakeSlack() as slack:
        place = Place(database, free_port(), "killed", KEYS, slack.api)
        slack.webhook = f"http://127.0.0.1:{place.port}/api/v1/tenants/killed/channels/slack/webhook"
        await prepare(place, slack)
        said = {f"Message {number}": chance.choice(list(SENDERS)) for number in range(messages)}
        bodies = [slack.write(text, sender) for text, sender in said.items()]
        chance.shuffle(bodies)
        killing = asyncio.create_task(kill_often(place, kills, chance))
        pace = asyncio.Semaphore(4)

        async def deliver(body: bytes) -> None:
            async with pace:
                await insist(slack, body, chance)
                await asyncio.sleep(chance.uniform(0.0, 0.2))

        delivering = asyncio.gather(*(deliver(body) for body in bodies))
        await killing
        survivor = start(place)
        await delivering
        await slack.replies(messages, seconds=60)
        await settled(place)
        survivor.kill()
        await asyncio.to_thread(survivor.join)
        await look(place, slack, said)


async def settled(place: Place) -> None:
    """Until everything is sent and nothing runs."""
    async with await open_place(place) as threadline:
        system = threadline.store.scoped(system_scope(place.tenant_id))

        async def is_settled() -> bool:
            rows = await system.outbox(limit=1_000)
            return all(row.status == "sent" for row in rows) and not await system.due_turns(lease_seconds=1)

        # Another process does it.
        while not await is_settled():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def look(place: Place, slack: FakeSlack, said: dict[str, str]) -> None:
    assert sorted(reply.text for reply in slack.sent) == sorted(f"You said: {text}" for text in said)
    async with await open_place(place) as threadline:
        rows = await threadline.store.scoped(system_scope(place.tenant_id)).outbox(limit=1_000)
        assert {row.status for row in rows} == {"sent"}
        assert len(rows) == len(said)
        for user in set(SENDERS.values()):
            tx = threadline.store.scoped(Scope(place.tenant_id, user))
            home = await tx.thread_by_key(home_key("echo"))
            assert home is not None
            mine = [text for text, sender in said.items() if SENDERS[sender] == user]
            history = [message.text for message in await tx.messages(home.id)]
            assert sorted(history) == sorted([*mine, *(f"You said: {text}" for text in mine)])
            assert {turn.status for turn in await tx.turns(home.id, limit=1_000)} == {"executed"}


@pytest.mark.req("S3-17", "S3-23", "S3-25", "H-09")
@pytest.mark.parametrize(("kind", "kills"), [("file", 12), ("postgres", 8)])
async def test_no_kill_loses_or_doubles_an_answer(kind: str, kills: int, tmp_path: Path) -> None:
    await kill_and_look(await new_database(kind, tmp_path), seed=5, kills=kills, messages=30)


@pytest.mark.slow
@pytest.mark.req("S3-17", "S3-23", "S3-25", "H-09")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["file", "postgres"])
async def test_no_number_of_kills_does_either(kind: str, seed: int, tmp_path: Path) -> None:
    await kill_and_look(await new_database(kind, tmp_path), seed=seed, kills=40, messages=150)
