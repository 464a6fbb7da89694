"""Commands in a room, on a real homeserver."""

from __future__ import annotations

from typing import Any

import nio
import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.people import MatrixUser
from tests.matrix.remote import both_ways
from tests.matrix.test_rooms import bindings
from threadline.core.commands import COMMANDS


class Room:
    """A room with the bot, and someone who talks to it there."""

    def __init__(self, world: World, user: MatrixUser, room_id: str) -> None:
        self.world = world
        self.user = user
        self.id = room_id

    async def ask(self, text: str) -> str:
        return (await self.user.ask(self.id, self.world.bot_id, text)).text

    async def say(self, text: str, number: int) -> None:
        """Something that the agent answers as question number so and so."""
        assert await self.ask(text) == f"{number}. You said: {text}"


async def room_of(world: World, name: str = "alice", **more: Any) -> Room:
    user = await world.person(name)
    return Room(world, user, await world.room_with(user, **more))


@pytest.mark.req("S2-09", "S2-10")
@both_ways
async def test_a_saved_point_is_loaded_by_name_or_from_a_list_and_only_in_its_room(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        assert "Nothing is saved yet" in await room.ask("!load")
        await room.say("one", 1)
        assert "Saved as “first”" in await room.ask("!save first")
        await room.say("two", 2)
        assert "Saved as “second”" in await room.ask("!save second")
        assert "Loaded “first”: 2 messages" in await room.ask("!load first")
        assert "Loaded: “first”" in await room.ask("!context")
        await room.say("three", 2)
        assert await room.ask("!load") == "Reply with a number, or 0 to cancel:\n1. first\n2. second"
        await room.say("7", 3)
        assert "Loaded “second”: 4 messages" in await room.ask("2")
        await room.say("2", 3)
        assert "Reply with" in await room.ask("!load")
        assert "Nothing was changed" in await room.ask("0")
        assert "saved point 'gone' not found" in await room.ask("!load gone")
        other = Room(world, room.user, await world.room_with(room.user))
        assert "Loaded" not in await other.ask("!context")


@pytest.mark.req("S2-10")
async def test_context_names_the_context_and_its_counts(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        await room.say("one", 1)
        bound = await bindings(world, room.user)
        chat = f"C2, chat `{bound['C2'].thread_id}`: **one**"
        assert await room.ask("!context") == f"{chat}\n2 messages, tokens not reported by the agent\nAgent: parrot"


@pytest.mark.req("S2-12")
async def test_help_lists_every_public_command_and_an_unknown_one_gets_a_hint(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        told = await room.user.ask(room.id, world.bot_id, "!help")
        assert told.content["msgtype"] == "m.notice"
        assert [line.split("`")[1] for line in told.text.splitlines()] == [
            spec.usage() for spec in COMMANDS if "room" in spec.where and not spec.is_hidden
        ]
        assert "<code>!branch [name]</code>" in told.content["formatted_body"]
        assert await room.ask("!brnch") == "Unknown command !brnch. Did you mean !branch? !help lists all commands."


@pytest.mark.req("S2-13", "S2-14")
@both_ways
async def test_clear_asks_first_and_the_old_history_can_be_opened_again(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        await room.say("one", 1)
        old = (await bindings(world, room.user))["C2"].thread_id
        other = Room(world, room.user, await world.room_with(room.user))
        await other.say("elsewhere", 1)
        assert "`!yes` or `!no`" in await room.ask("!clear")
        assert "no open question" in await other.ask("!yes")
        assert "Nothing was changed" in await room.ask("!no")
        assert "no open question" in await room.ask("!yes")
        await room.say("two", 2)
        await room.ask("!clear")
        assert f"`!open {old}`" in await room.ask("!yes")
        await room.say("three", 1)
        await other.say("still here", 2)
        assert "4 messages" in await room.ask(f"!open {old}")
        await room.say("four", 3)


@pytest.mark.req("S2-14", "S2-11", "SX-02")
@both_ways
async def test_chats_are_listed_renamed_archived_and_opened_from_any_surface(world: World) -> None:
    async with world.running():
        room = await room_of(world, preset=nio.RoomPreset.trusted_private_chat)
        me = world.threadline.as_user(room.user.id)
        web = await me.create_thread(title="From the web")
        await web.ask("Begun elsewhere", surface="web")
        assert "Opened **From the web**: 2 messages" in await room.ask("!open from the web")
        await room.say("Gone on here", 2)
        assert "Renamed to **Trip**" in await room.ask("!rename Trip")
        name = await room.user.client.room_get_state_event(room.id, "m.room.name")
        assert name.content["name"] == "Trip"
        listed = await room.ask("!chats")
        assert "**C2** Trip (4 messages, here)" in listed
        other = Room(world, room.user, await world.room_with(room.user))
        assert "this chat is open in C2" in await other.ask("!open Trip")
        assert "I am not allowed to rename this room" in await other.ask("!rename Other")
        assert "Archived" in await room.ask("!archive")
        assert "Trip" not in await room.ask("!chats")
        await room.say("Still here", 3)
        assert "no chat “nothing”" in await room.ask("!open nothing")


@both_ways
async def test_undo_takes_back_the_last_message_and_its_answer(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        assert "That did not work" in await room.ask("!undo")
        await room.say("one", 1)
        await room.say("two", 2)
        assert "2 messages left" in await room.ask("!undo")
        await room.say("three", 2)


@pytest.mark.req("S2-16")
async def test_a_failed_agent_is_reported_and_the_bot_continues(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        told = await room.user.ask(room.id, world.bot_id, "fail")
        assert told.text == "The agent could not answer. Please try again in a while."
        assert told.content["msgtype"] == "m.notice"
        assert await room.ask("Hello") == "2. You said: Hello"
