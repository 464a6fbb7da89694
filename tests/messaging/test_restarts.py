"""A service that is stopped or killed and started again while it writes and sends replies: none is delayed or doubled.

With shipped settings, where a claim and a lease last half a minute, and a platform that recognises no repeat.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.messaging.conftest import KEYS
from tests.messaging.killed_process import Place, start
from tests.messaging.test_kills import new_database, prepare, reachable
from tests.ports import free_port
from threadline.testing.platforms import FakeSlack

# Well under a claim and a lease, well over what a loaded machine needs.
_DELAYED_SECONDS = 15.0


async def restart_often(database: str, tries: int, seed: int, *, is_killed: bool = False) -> list[float]:
    """Seconds from each restart until the reply to the message before it."""
    chance, delays = random.Random(seed), []
    loop = asyncio.get_running_loop()
    async with FakeSlack() as slack:
        place = Place(database, free_port(), "deployed", KEYS, slack.api, is_shipped=True)
        slack.webhook = f"http://127.0.0.1:{place.port}/api/v1/tenants/deployed/channels/slack/webhook"
        await prepare(place, slack)
        process = start(place)
        try:
            await reachable(place.port)
            for number in range(tries):
                assert (await slack.deliver(slack.write(f"Message {number}"))).status == 200
                await asyncio.sleep(chance.uniform(0.0, 0.12))
                (process.kill if is_killed else process.terminate)()
                await asyncio.to_thread(process.join)
                process = start(place)
                await reachable(place.port)
                started_at = loop.time()
                await slack.replies(number + 1, seconds=60)
                delays.append(loop.time() - started_at)
        finally:
            process.terminate()
            await asyncio.to_thread(process.join)
        assert [reply.text for reply in slack.sent] == [f"You said: Message {number}" for number in range(tries)]
    return delays


@pytest.mark.req("S3-22", "H-09")
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_restart_delays_and_doubles_no_reply(tmp_path: Path, is_killed: bool) -> None:
    database = await new_database("file", tmp_path)
    delays = await restart_often(database, tries=4, seed=1, is_killed=is_killed)
    assert max(delays) < _DELAYED_SECONDS, delays


@pytest.mark.slow
@pytest.mark.req("S3-22")
@pytest.mark.parametrize("kind", ["file", "postgres"])
async def test_thirty_deploys_delay_no_reply(kind: str, tmp_path: Path) -> None:
    delays = await restart_often(await new_database(kind, tmp_path), tries=30, seed=2)
    assert [delay for delay in delays if delay >= _DELAYED_SECONDS] == []


@pytest.mark.slow
@pytest.mark.req("S3-22", "H-09")
@pytest.mark.parametrize(("kind", "kills"), [("file", 100), ("postgres", 40)])
async def test_any_number_of_kills_doubles_and_delays_no_reply(kind: str, kills: int, tmp_path: Path) -> None:
    delays = await restart_often(await new_database(kind, tmp_path), tries=kills, seed=3, is_killed=True)
    assert [delay for delay in delays if delay >= _DELAYED_SECONDS] == []
