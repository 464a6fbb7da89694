"""Rooms and spaces that their user leaves, and chats that are archived: all of it can be brought back."""

from __future__ import annotations

from pathlib import Path

import nio
import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.people import MatrixUser
from tests.matrix.remote import both_ways
from tests.matrix.test_commands import Room, room_of
from tests.matrix.test_encryption import person
from tests.matrix.test_rooms import accepted, bindings, state


async def leave(user: MatrixUser, room_id: str) -> None:
    assert isinstance(await user.client.room_leave(room_id), nio.RoomLeaveResponse)
    await user.client.room_forget(room_id)


@pytest.mark.req("M-03", "S2-14")
@both_ways
async def test_a_chat_whose_room_was_left_is_opened_elsewhere(world: World) -> None:
    async with world.running() as bot:
        room = await room_of(world)
        assert "C2 “Trip” is ready" in await room.ask("!new Trip")
        trip = Room(world, room.user, await accepted(room.user, (await bindings(world, room.user))["C2"].place))
        await trip.say("Remember", 1)
        await leave(room.user, trip.id)
        await until_freed(world, room.user, "C2")
        assert "Opened **Trip**: 2 messages" in await room.ask("!open Trip")
        await room.say("Back again", 2)
        while trip.id in await bot.homeserver.joined_rooms():
            await room.user.client.sync(timeout=50)


async def until_freed(world: World, user: MatrixUser, label: str) -> None:
    """Waits until the binding is gone."""
    while label in await bindings(world, user):
        await user.client.sync(timeout=50)


@pytest.mark.req("M-03", "S2-07")
async def test_a_space_that_was_left_is_opened_again_with_its_rooms(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        bound = await bindings(world, room.user)
        space, first = [await accepted(room.user, bound[name].place) for name in ("space", "C1")]
        assert f"https://matrix.to/#/{space}" in await room.ask("!space")
        await leave(room.user, space)
        while "closed" not in (await bindings(world, room.user))["space"].metadata:
            await room.user.client.sync(timeout=50)
        assert "opening your space again" in await room.ask("!space")
        await room.user.hear(room.id, world.bot_id, "Your space is open again")
        again = (await bindings(world, room.user))["space"].place
        assert again != space
        await accepted(room.user, again)
        assert await state(room.user, again, "m.space.child", first) == {"via": ["threadline.test"]}
        assert "C2 is ready" in await room.ask("!new")


@pytest.mark.req("M-03")
async def test_new_after_the_space_was_left_opens_it_again(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        space = await accepted(room.user, (await bindings(world, room.user))["space"].place)
        await leave(room.user, space)
        while "closed" not in (await bindings(world, room.user))["space"].metadata:
            await room.user.client.sync(timeout=50)
        assert "C2 “Fresh” is ready" in await room.ask("!new Fresh")
        bound = await bindings(world, room.user)
        assert bound["space"].place not in {"", space}
        await accepted(room.user, bound["space"].place)


@pytest.mark.req("M-03")
async def test_rooms_left_while_the_bot_was_down_are_left_by_it_too(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        await room.say("one", 1)
    await leave(room.user, room.id)
    async with world.running() as bot:
        await until_freed(world, room.user, "C2")
        while room.id in await bot.homeserver.joined_rooms():
            await room.user.client.sync(timeout=50)


@pytest.mark.req("M-03", "S2-14")
async def test_an_archived_chat_is_listed_again_when_it_is_used_opened_or_unarchived(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        await room.say("Holiday", 1)
        thread = (await bindings(world, room.user))["C2"].thread_id
        for again in ("And another", f"!open {thread}", "!unarchive"):
            assert "Archived" in await room.ask("!archive")
            assert "Holiday" not in await room.ask("!chats")
            await room.ask(again)
            assert "Holiday" in await room.ask("!chats")


@pytest.mark.req("M-02")
@pytest.mark.parametrize("command", ["!new Next", "!branch Next"])
async def test_a_room_made_from_an_encrypted_room_is_encrypted(world: World, tmp_path: Path, command: str) -> None:
    alice = await person(world, "alice", tmp_path)
    async with world.running():
        room = Room(world, alice, await world.room_with(alice, encrypted=True))
        await room.say("My secret is XYZZY", 1)
        assert "is ready" in await room.ask(command)
        bound = await bindings(world, alice)
        for label in ("C1", "C3"):
            made = await accepted(alice, bound[label].place)
            assert (await state(alice, made, "m.room.encryption"))["algorithm"] == "m.megolm.v1.aes-sha2"
            await Room(world, alice, made).ask("Hello")


@pytest.mark.req("M-03")
async def test_the_chat_of_a_banned_person_is_opened_elsewhere(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        bob = await world.person("bob")
        await room.user.client.room_invite(room.id, bob.id)
        await bob.until(lambda: room.id in bob.invited)
        await bob.join(room.id)
        await bob.say(room.id, f"{world.bot_id} Remember")
        await bob.hear(room.id, world.bot_id, "1. You said: Remember")
        (bound,) = [each for each in await world.bindings(bob.id) if each.place == room.id]
        await room.user.client.room_ban(room.id, bob.id)
        while room.id in {each.place for each in await world.bindings(bob.id)}:
            await room.user.client.sync(timeout=50)
        own = Room(world, bob, await world.room_with(bob))
        assert "2 messages" in await own.ask(f"!open {bound.thread_id}")
        # Who stays is answered as before.
        await room.say("And me", 1)
