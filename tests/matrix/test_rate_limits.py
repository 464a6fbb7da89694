"""A homeserver with its default rate limits."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.synapse import Synapse, shared_server


@pytest.mark.slow
@pytest.mark.req("S2-20")
async def test_a_reply_arrives_whole_at_a_homeserver_with_its_default_limits(synapse: Synapse, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        world = World(shared_server("limited"), tmp_path, stack)
        alice = await world.person("alice")
        async with world.running():
            room = await world.room_with(alice)
            await alice.say(room, "chatty")
            words = " ".join(f"word{number}" for number in range(20))
            await alice.hear(room, world.bot_id, words)
            await alice.say(room, "And now")
            await alice.hear(room, world.bot_id, "2. You said: And now")
            assert len(alice.told(room, world.bot_id)) == 3
