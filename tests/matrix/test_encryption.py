"""Encrypted rooms: read, answered, across restarts, and with keys that come late."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.homeserver_proxy import Gate, gate_to
from tests.matrix.people import PATIENCE, MatrixUser


async def person(world: World, name: str, tmp_path: Path) -> MatrixUser:
    folder = tmp_path / name
    folder.mkdir()
    return await world.person(name, folder=str(folder))


async def unread_room(world: World, alice: MatrixUser, gate: Gate, text: str) -> str:
    """A room in which alice has said something, and the bot that it has no key for it."""
    room = await alice.create_room(world.bot_id, encrypted=True)
    await alice.hear(room, world.bot_id, "You can write here")
    gate.hold_keys()
    await alice.say(room, text)
    shown = await alice.hear(room, world.bot_id, "I cannot read this message")
    assert shown.content["msgtype"] == "m.notice"
    return room


@pytest.mark.req("S2-19")
async def test_an_encrypted_room_works_across_a_restart(world: World, tmp_path: Path) -> None:
    alice = await person(world, "alice", tmp_path)
    async with world.running():
        room = await alice.create_room(world.bot_id, encrypted=True)
        await alice.hear(room, world.bot_id, "You can write here")
        assert (await alice.ask(room, world.bot_id, "A secret")).text == "1. You said: A secret"
    await alice.say(room, "While you slept")
    async with world.running():
        await alice.hear(room, world.bot_id, "2. You said: While you slept")
        assert (await alice.ask(room, world.bot_id, "And now")).text == "3. You said: And now"
        assert alice.client.rooms[room].encrypted
        assert all(shown.content["body"] != "(encrypted)" for shown in alice.told(room, world.bot_id))


@pytest.mark.req("S2-19")
async def test_rooms_that_the_bot_makes_are_encrypted_where_the_settings_say_so(world: World, tmp_path: Path) -> None:
    world.change(encrypt=True)
    alice = await person(world, "alice", tmp_path)
    async with world.running():
        await world.room_with(alice)
        invited = await alice.until(lambda: len(alice.invited) == 2 and list(alice.invited), "two invitations")
        for each in invited:
            await alice.join(each)
        encrypted = [each for each in invited if alice.client.rooms[each].encrypted]
        assert len(encrypted) == 1
        assert (await alice.ask(encrypted[0], world.bot_id, "Hello")).text == "1. You said: Hello"


@pytest.mark.req("S2-19")
async def test_a_message_without_its_key_gets_advice_and_one_answer_when_the_key_comes(
    world: World, tmp_path: Path
) -> None:
    alice = await person(world, "alice", tmp_path)
    async with gate_to(world) as gate:
        async with world.running():
            room = await unread_room(world, alice, gate, "You cannot read this")
        # What waits for its key is known to the bot's next life as well.
        async with world.running():
            gate.open()
            await alice.client.room_typing(room)
            await alice.hear(room, world.bot_id, "1. You said: You cannot read this")
            assert (await alice.ask(room, world.bot_id, "Better")).text == "2. You said: Better"
            assert len(alice.told(room, world.bot_id)) == 4


@pytest.mark.req("S2-19")
async def test_a_key_that_comes_while_the_advice_is_on_its_way_is_not_missed(world: World, tmp_path: Path) -> None:
    alice = await person(world, "alice", tmp_path)
    async with gate_to(world) as gate, world.running():
        room = await alice.create_room(world.bot_id, encrypted=True)
        await alice.hear(room, world.bot_id, "You can write here")
        gate.hold_keys()
        gate.limit(1_000_000)
        await alice.say(room, "You cannot read this yet")
        await asyncio.wait_for(gate.slowed.wait(), PATIENCE)
        gate.gave_keys.clear()
        gate.open()
        await alice.client.room_typing(room)
        await asyncio.wait_for(gate.gave_keys.wait(), PATIENCE)
        # Time to read the message again, while the advice still waits to be told.
        await asyncio.sleep(0.3)
        gate.limit(0)
        await alice.hear(room, world.bot_id, "1. You said: You cannot read this yet")


@pytest.mark.req("S2-15", "S2-19")
async def test_a_message_whose_key_came_in_the_bots_last_moment_is_answered_in_its_next_life(
    world: World, tmp_path: Path
) -> None:
    alice = await person(world, "alice", tmp_path)
    async with gate_to(world) as gate:
        async with world.running():
            room = await unread_room(world, alice, gate, "You could not read this")
            # It gets the key, and never the message that the key is for; the homeserver forgets that key after the
            # next sync.
            gate.lose("/event/")
            gate.give_keys()
            await alice.client.room_typing(room)
            await asyncio.wait_for(gate.turned_away.wait(), PATIENCE)
            gate.synced.clear()
            await alice.client.room_typing(room, typing_state=False)
            await asyncio.wait_for(gate.synced.wait(), PATIENCE)
        gate.open()
        async with world.running():
            await alice.hear(room, world.bot_id, "1. You said: You could not read this")
