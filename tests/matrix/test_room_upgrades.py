"""Rooms that are upgraded: their thread, label and sharing are in the new room."""

from __future__ import annotations

from typing import Any

import nio
import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.people import MatrixUser
from tests.matrix.remote import both_ways
from tests.matrix.test_commands import Room, room_of
from tests.matrix.test_rooms import accepted, bindings
from tests.matrix.test_shared_rooms import together


async def upgrade(world: World, user: MatrixUser, room_id: str) -> str:
    path = f"/_matrix/client/v3/rooms/{room_id}/upgrade"
    answer: dict[str, Any] = world.synapse.call("POST", path, {"new_version": "12"}, user.client.access_token)
    new_id: str = answer["replacement_room"]
    await user.until(lambda: new_id in user.client.rooms)
    return new_id


async def moved(world: World, user: MatrixUser, room_id: str) -> None:
    """The bot has joined the new room and says something in it."""
    invited = await user.client.room_invite(room_id, world.bot_id)
    assert isinstance(invited, nio.RoomInviteResponse), invited
    await user.hear(room_id, world.bot_id, "You can write here")


@pytest.mark.req("M-03")
@both_ways
async def test_the_thread_and_label_of_an_upgraded_room_are_in_the_new_one(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        bound = await bindings(world, room.user)
        before = bound["C1"]
        first = Room(world, room.user, await accepted(room.user, before.place))
        space = await accepted(room.user, bound["space"].place)
        await first.say("one", 1)
        new = Room(world, room.user, await upgrade(world, room.user, first.id))
        await moved(world, room.user, new.id)
        await new.say("two", 2)
        after = (await bindings(world, room.user))["C1"]
        assert (after.place, after.thread_id) == (new.id, before.thread_id)
        children = {key for kind, key in room.user.state[space] if kind == "m.space.child"}
        assert new.id in children


@pytest.mark.req("M-03", "M-06")
async def test_a_shared_room_is_shared_after_its_upgrade(world: World) -> None:
    async with world.running():
        room = await together(world)
        await room.join("cy")
        await room.ask(room.ada, "!share")
        await room.ask(room.ada, "one")
        before = await room.binding()
        room.id = await upgrade(world, room.ada, room.id)
        await moved(world, room.ada, room.id)
        after = await room.binding()
        assert before is not None
        assert after is not None
        assert after.thread_id == before.thread_id
        bob = await room.join("bob")
        assert await room.ask(bob, "two") == f"2. You said: {room.called(bob)}two"


@pytest.mark.req("M-03")
async def test_a_room_that_claims_to_replace_another_gets_nothing(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        await room.say("one", 1)
        eve = await world.person("eve")
        claimed = await eve.create_room(world.bot_id, predecessor={"room_id": room.id, "event_id": "$x"})
        await eve.hear(claimed, world.bot_id, "You can write here")
        assert {each.place for each in await world.bindings(room.user.id)} >= {room.id}
        assert claimed not in {each.place for each in await world.bindings(room.user.id)}
        await room.say("two", 2)
