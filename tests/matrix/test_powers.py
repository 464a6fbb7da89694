"""What the bot does for whom, what reaches the agent, and what people see of it."""

from __future__ import annotations

from pathlib import Path

import nio
import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.remote import both_ways
from tests.matrix.test_commands import Room, room_of
from tests.matrix.test_encryption import person
from tests.matrix.test_rooms import accepted, bindings, state


@pytest.mark.req("M-05", "S2-17")
async def test_a_guest_does_not_rename_the_room_with_the_bots_power(world: World) -> None:
    async with world.running():
        ada = await room_of(world, "ada", preset=nio.RoomPreset.trusted_private_chat)
        await ada.user.client.room_put_state(ada.id, "m.room.name", {"name": "Ada's"})
        bob = await world.person("bob")
        await ada.user.client.room_invite(ada.id, bob.id)
        await bob.until(lambda: ada.id in bob.invited)
        await bob.join(ada.id)
        told = await bob.ask(ada.id, world.bot_id, "!rename Mine")
        assert "you are not allowed to rename it" in told.text
        assert (await state(ada.user, ada.id, "m.room.name"))["name"] == "Ada's"
        assert "Renamed to **Ours**." in await ada.ask("!rename Ours")
        assert (await state(ada.user, ada.id, "m.room.name"))["name"] == "Ours"


@pytest.mark.req("M-05")
async def test_a_user_has_the_bots_powers_in_their_own_rooms(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        bound = await bindings(world, room.user)
        first = await accepted(room.user, bound["C1"].place)
        create = await state(room.user, first, "m.room.create")
        assert create["room_version"] == "12"
        assert create["additional_creators"] == [room.user.id]
        removed = await room.user.client.room_put_state(
            first, "m.room.tombstone", {"body": "moved", "replacement_room": room.id}
        )
        assert isinstance(removed, nio.RoomPutStateResponse), removed


@pytest.mark.req("M-05")
@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_the_agent_gets_the_message_that_is_replied_to(world: World, tmp_path: Path, is_encrypted: bool) -> None:
    alice = await person(world, "alice", tmp_path)
    async with world.running():
        room = Room(world, alice, await world.room_with(alice, encrypted=is_encrypted))
        first = await alice.ask(room.id, world.bot_id, "one")
        await room.ask("two")
        relation = {"m.in_reply_to": {"event_id": first.event_id}}
        await alice.say(room.id, "shorten this", **{"m.relates_to": relation})
        await alice.hear(room.id, world.bot_id, "3. You said: > 1. You said: one\n\nshorten this")
        await alice.say(room.id, "!context", **{"m.relates_to": relation})
        await alice.hear(room.id, world.bot_id, "6 messages")


@pytest.mark.req("M-05")
async def test_a_reply_in_a_thread_comes_with_the_threads_first_message(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        root = await room.user.ask(room.id, world.bot_id, "one")
        thread = {"rel_type": "m.thread", "event_id": root.event_id, "is_falling_back": True}
        relation = {**thread, "m.in_reply_to": {"event_id": root.event_id}}
        await room.user.say(room.id, "more", **{"m.relates_to": relation})
        shown = await room.user.hear(room.id, world.bot_id, "2. You said: > 1. You said: one\n\nmore")
        assert shown.relation["event_id"] == root.event_id


@pytest.mark.req("M-05")
async def test_a_message_that_the_bot_has_is_marked_as_read(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        question = await room.user.say(room.id, "one")

        def is_read() -> bool:
            receipt = room.user.client.rooms[room.id].read_receipts.get(world.bot_id)
            return receipt is not None and receipt.event_id == question

        await room.user.until(is_read, "a read receipt")


@pytest.mark.req("M-04")
async def test_a_command_is_answered_while_a_reply_is_being_written(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        world.parrot.gate.clear()
        await room.user.say(room.id, "slow")
        await room.user.hear(room.id, world.bot_id, "1.")
        await room.user.say(room.id, "!context")
        await room.user.hear(room.id, world.bot_id, "1 message")
        assert not any("You said: slow" in shown.text for shown in room.user.told(room.id, world.bot_id))
        world.parrot.gate.set()
        await room.user.hear(room.id, world.bot_id, "1. You said: slow")


@pytest.mark.req("M-05")
@both_ways
async def test_a_room_has_an_agent_of_its_own(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        await room.say("one", 1)
        assert "agent 'nobody' not found" in await room.ask("!agent nobody")
        assert "`rehearsal` answers in this room" in await room.ask("!agent rehearsal")
        assert "rehearsal" in await room.ask("!agent")
        assert "You said: “two”" in await room.ask("two")
        other = Room(world, room.user, await world.room_with(room.user))
        await other.say("elsewhere", 1)


async def react(room: Room, target: str, key: str) -> None:
    relation = {"rel_type": "m.annotation", "event_id": target, "key": key}
    await room.user.client.room_send(room.id, "m.reaction", {"m.relates_to": relation})


@pytest.mark.req("M-04")
@both_ways
@pytest.mark.parametrize("way", ["!stop", "\N{OCTAGONAL SIGN}"])
async def test_a_running_reply_is_stopped_by_command_or_reaction(world: World, way: str) -> None:
    async with world.running():
        room = await room_of(world)
        world.parrot.gate.clear()
        await room.user.say(room.id, "slow")
        shown = await room.user.hear(room.id, world.bot_id, "1.")
        await (room.user.say(room.id, way) if way.startswith("!") else react(room, shown.event_id, way))
        await room.user.until(lambda: "stopped" in shown.text.lower(), "the reply says that it was stopped")
        world.parrot.gate.set()
        assert "You said: next" in await room.ask("next")
