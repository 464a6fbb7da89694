"""What a person writes in a room while a reply is written: taken into it if the settings say so."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.people import PATIENCE
from tests.matrix.remote import both_ways
from tests.matrix.test_commands import room_of
from tests.turns.steered_process import LATE, QUESTION, Describer
from threadline.settings import ChannelsSettings


@pytest.mark.req("A-06")
@both_ways
async def test_one_reply_in_a_room_answers_both_messages(world: World) -> None:
    gate = asyncio.Event()
    describer = Describer(tool_gate=gate)
    world.agents["studio"] = describer.agent()
    channels = ChannelsSettings(policy="steer")
    world.settings = msgspec.structs.replace(world.settings, agent="studio", channels=channels)
    async with world.running():
        room = await room_of(world)
        await room.user.say(room.id, QUESTION)
        await asyncio.wait_for(describer.looking.wait(), PATIENCE)
        late = await room.user.say(room.id, LATE)

        def is_accepted() -> bool:
            receipt = room.user.client.rooms[room.id].read_receipts.get(world.bot_id)
            return receipt is not None and receipt.event_id == late

        await room.user.until(is_accepted, "the bot has the message")
        gate.set()
        await room.user.hear(room.id, world.bot_id, f"Told: {LATE}")
        assert "Told: And now?" in await room.ask("And now?")
        told = [shown.text for shown in room.user.told(room.id, world.bot_id)]
        assert sum(f"Told: {LATE}" in text for text in told) == 1
        assert not any(f"Told: {QUESTION}" in text for text in told), "no reply is to the first message alone"
