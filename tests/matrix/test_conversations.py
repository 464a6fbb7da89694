"""Someone invites the bot and talks to it, on a real homeserver."""

from __future__ import annotations

import pytest

from tests.matrix.bot_fixtures import World


@pytest.mark.req("S2-02", "S2-04", "S2-20")
async def test_a_message_is_answered_in_its_room(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        await alice.say(room, "Hello")
        await alice.hear(room, world.bot_id, "1. You said: Hello")
        await alice.say(room, "Again")
        await alice.hear(room, world.bot_id, "2. You said: Again")
