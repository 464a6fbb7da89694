"""People on another homeserver than the bot's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.people import MatrixUser
from tests.matrix.synapse import Synapse, shared_server

pytestmark = pytest.mark.slow


class Abroad(World):
    """A bot on one homeserver, and people on another."""

    async def foreigner(self, name: str, folder: Path) -> MatrixUser:
        user = MatrixUser(shared_server("west"), f"{name}-{self.tag}", folder=str(folder))
        return await self.stack.enter_async_context(user)


@pytest.fixture
async def abroad(synapse: Synapse, tmp_path: Path) -> AsyncIterator[Abroad]:
    async with AsyncExitStack() as stack:
        yield Abroad(shared_server("east"), tmp_path, stack)


@pytest.mark.req("S2-20")
@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_people_of_another_homeserver_talk_to_the_bot(abroad: Abroad, tmp_path: Path, is_encrypted: bool) -> None:
    bob = await abroad.foreigner("bob", tmp_path)
    assert bob.id.partition(":")[2] != abroad.bot_id.partition(":")[2]
    abroad.change(servers=(bob.id.partition(":")[2],))
    async with abroad.running():
        room = await bob.create_room(abroad.bot_id, encrypted=is_encrypted)
        await bob.hear(room, abroad.bot_id, "You can write here")
        assert (await bob.ask(room, abroad.bot_id, "Hello")).text == "1. You said: Hello"
        invited = await bob.until(lambda: len(bob.invited) == 2 and list(bob.invited), "two invitations")
        for each in invited:
            await bob.join(each)
        assert bob.client.rooms[room].encrypted == is_encrypted
    await bob.say(room, "While you slept")
    async with abroad.running():
        await bob.hear(room, abroad.bot_id, "2. You said: While you slept")


@pytest.mark.req("S2-17")
async def test_people_of_a_homeserver_that_is_not_listed_are_declined(abroad: Abroad, tmp_path: Path) -> None:
    bob = await abroad.foreigner("bob", tmp_path)
    async with abroad.running():
        room = await bob.create_room(abroad.bot_id)
        await bob.until(
            lambda: bob.state.get(room, {}).get(("m.room.member", abroad.bot_id), {}).get("membership") == "leave",
            "the bot declines",
        )
