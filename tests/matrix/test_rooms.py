"""Rooms and spaces on a real homeserver: each room a context of its own, found again whatever was lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.homeserver_proxy import gate_to
from tests.matrix.people import MatrixUser
from tests.matrix.remote import both_ways
from threadline.core.channels import Binding
from threadline.matrix.events_in import ROOM_STATE


async def bindings(world: World, user: MatrixUser) -> dict[str, Binding]:
    """The user's rooms by label; the space is under its own word."""
    bound = await world.bindings(user.id)
    return {"space" if "next_index" in each.metadata else str(each.label): each for each in bound}


def facts(bound: dict[str, Binding]) -> dict[str, Any]:
    """What is bound where, without times."""
    return {name: (each.place, each.thread_id, each.label, each.metadata) for name, each in bound.items()}


async def state(user: MatrixUser, room_id: str, kind: str, key: str = "") -> Any:
    return (await user.client.room_get_state_event(room_id, kind, key)).content


async def accepted(user: MatrixUser, room_id: str) -> str:
    await user.until(lambda: room_id in user.invited, "an invitation")
    await user.join(room_id)
    return room_id


@pytest.mark.req("S2-07", "S2-01")
async def test_the_first_invitation_makes_a_space_with_a_room_and_the_second_makes_nothing(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        await world.room_with(alice)
        bound = await bindings(world, alice)
        assert set(bound) == {"space", "C1"}
        assert bound["space"].metadata["next_index"] == 2
        space, room = [await accepted(alice, bound[name].place) for name in ("space", "C1")]
        assert (await state(alice, space, "m.room.create"))["type"] == "m.space"
        assert await state(alice, space, "m.space.child", room) == {"via": ["threadline.test"]}
        assert (await state(alice, room, "m.space.parent", space))["canonical"] is True
        assert (await state(alice, room, ROOM_STATE))["platform_chat_id"] == bound["C1"].thread_id
        assert (await alice.client.room_put_state(room, "m.room.topic", {"topic": "mine"})).event_id
        before = set(await all_rooms(world, alice))
        second = await world.room_with(alice)
        assert set(await all_rooms(world, alice)) - before == {second}
        assert set(await bindings(world, alice)) == {"space", "C1"}


async def all_rooms(world: World, user: MatrixUser) -> list[str]:
    """Where the user is, or is invited to."""
    answer = await asyncio.to_thread(
        world.synapse.call, "GET", "/_matrix/client/v3/sync?full_state=true", None, user.client.access_token
    )
    return sorted([*answer["rooms"].get("join", {}), *answer["rooms"].get("invite", {})])


@pytest.mark.req("S2-05", "S2-11")
@both_ways
async def test_new_makes_a_room_in_the_space_with_its_own_context_and_the_next_label(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        await alice.ask(room, world.bot_id, "Remember me")
        await set_next_index(world, alice, 7)
        told = await alice.ask(room, world.bot_id, "!new Research")
        assert told.text.startswith("C7 “Research” is ready")
        bound = await bindings(world, alice)
        assert bound["space"].metadata["next_index"] == 8
        research = await accepted(alice, bound["C7"].place)
        assert (await state(alice, research, "m.room.name"))["name"] == "C7 Research"
        await alice.join(bound["space"].place)
        assert await state(alice, bound["space"].place, "m.space.child", research) == {"via": ["threadline.test"]}
        await alice.say(research, "Fresh")
        await alice.hear(research, world.bot_id, "1. You said: Fresh")
        assert bound["C7"].thread_id != bound["C1"].thread_id


async def set_next_index(world: World, user: MatrixUser, index: int) -> None:
    await world.change_space(user.id, next_index=index)


@pytest.mark.req("S2-04")
async def test_two_first_messages_at_once_make_one_context(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        await asyncio.gather(alice.say(room, "one"), alice.say(room, "two"))
        await alice.until(lambda: len(alice.told(room, world.bot_id)) == 3)
        assert sorted(shown.text[:2] for shown in alice.told(room, world.bot_id)[1:]) == ["1.", "2."]
        threads = await world.threadline.as_user(alice.id).threads()
        assert sorted(thread.message_count for thread in threads.items) == [0, 4]


@pytest.mark.req("S2-08", "S2-11", "SX-02")
@both_ways
async def test_a_branch_begins_as_its_source_and_neither_sees_the_other_after_that(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        await alice.say(room, "shared")
        await alice.hear(room, world.bot_id, "1. You said: shared")
        assert "C3 “Fork” is ready" in (await alice.ask(room, world.bot_id, "!branch Fork")).text
        bound = await bindings(world, alice)
        fork = await accepted(alice, bound["C3"].place)
        await alice.say(fork, "only here")
        await alice.hear(fork, world.bot_id, "2. You said: only here")
        await alice.say(room, "only there")
        await alice.hear(room, world.bot_id, "2. You said: only there")
        me = world.threadline.as_user(alice.id)
        texts = [
            [message.text for message in await (await me.thread(bound[each].thread_id)).messages()]
            for each in ("C2", "C3")
        ]
        assert texts == [
            ["shared", "1. You said: shared", "only there", "2. You said: only there"],
            ["shared", "1. You said: shared", "only here", "2. You said: only here"],
        ]


@pytest.mark.req("S2-06")
@pytest.mark.parametrize("refused", ["/createRoom", "/m.space.child/"])
async def test_new_at_a_homeserver_that_refuses_leaves_nothing_behind(world: World, refused: str) -> None:
    alice = await world.person("alice")
    async with gate_to(world) as gate, world.running():
        room = await world.room_with(alice)
        await alice.ask(room, world.bot_id, "Hello")
        before = facts(await bindings(world, alice))
        threads, rooms = await thread_ids(world, alice), await all_rooms(world, alice)
        gate.refuse(refused)
        for command in ("!new Research", "!branch Fork"):
            told = await alice.ask(room, world.bot_id, command)
            assert "The homeserver refused to open a room: not today (M_FORBIDDEN)." in told.text
        assert facts(await bindings(world, alice)) == before
        assert await thread_ids(world, alice) == threads
        assert await all_rooms(world, alice) == rooms
        gate.open()
        assert "C3 is ready" in (await alice.ask(room, world.bot_id, "!new")).text


async def thread_ids(world: World, user: MatrixUser) -> list[str]:
    return sorted(thread.id for thread in (await world.threadline.as_user(user.id).threads()).items)


@pytest.mark.req("S2-06")
async def test_new_before_there_is_a_space_says_so(world: World) -> None:
    alice = await world.person("alice")
    async with gate_to(world) as gate, world.running():
        gate.refuse("/createRoom")
        room = await alice.create_room(world.bot_id)
        await alice.hear(room, world.bot_id, "I could not make you a space: not today (M_FORBIDDEN).")
        assert "You have no space yet" in (await alice.ask(room, world.bot_id, "!new Research")).text
        assert (await alice.ask(room, world.bot_id, "Hello")).text == "1. You said: Hello"
        gate.open()
        await world.room_with(alice)
        assert set(await bindings(world, alice)) == {"None", "space", "C1"}


@pytest.mark.req("S2-15", "S2-01")
@both_ways
async def test_a_lost_database_finds_its_rooms_again_from_their_own_state(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        await world.room_with(alice)
        bound = await bindings(world, alice)
        room = await accepted(alice, bound["C1"].place)
        put = await alice.client.room_get_state_event(room, ROOM_STATE)
        assert put.content["platform_chat_id"] == bound["C1"].thread_id
    world.lose_database()
    rooms = set(await all_rooms(world, alice))
    for _ in range(2):
        async with world.running():
            again = await bindings(world, alice)
            assert {name: each.place for name, each in again.items()} == {
                name: each.place for name, each in bound.items()
            }
            assert again["C1"].thread_id == bound["C1"].thread_id
            assert again["space"].metadata["next_index"] == 2
    assert set(await all_rooms(world, alice)) == rooms


@pytest.mark.req("S2-15", "S2-01")
async def test_a_room_that_lost_its_state_gets_it_back_and_keeps_other_keys(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        await world.room_with(alice)
        bound = await bindings(world, alice)
        room = await accepted(alice, bound["C1"].place)
    async with world.running() as running:
        await running.homeserver.put_state(room, ROOM_STATE, {"note": "someone's own", "platform_chat_id": "wrong"})
    async with world.running():
        told = await state(alice, room, ROOM_STATE)
        assert told["platform_chat_id"] == bound["C1"].thread_id
        assert told["note"] == "someone's own"
