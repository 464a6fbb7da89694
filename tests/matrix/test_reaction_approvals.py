"""A tool that needs approval is asked for in a room, and answered by a reaction to the question."""

from __future__ import annotations

from pathlib import Path

import nio
import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.people import Shown
from tests.matrix.remote import both_ways
from tests.matrix.test_commands import Room, room_of
from tests.matrix.test_encryption import person
from tests.matrix.test_powers import react
from threadline.core.approval_questions import NOT_ASKED_TEXT

pytestmark = pytest.mark.req("A-04")
YES, NO = "\N{WHITE HEAVY CHECK MARK}", "\N{CROSS MARK}"
STAMPED = "Here it is, stamped"


async def ask(room: Room) -> Shown:
    """The question in the room: the tool, its input, and how to answer."""
    await room.user.say(room.id, "stamp hello")
    question = await room.user.hear(room.id, room.world.bot_id, "Allow")
    assert "I need your approval for this." in question.text
    assert '{"text":"hello"}' in question.text
    return question


def has_stamped(room: Room) -> bool:
    return any(STAMPED in shown.text for shown in room.user.told(room.id, room.world.bot_id))


@both_ways
@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_reaction_to_the_question_continues_the_reply(world: World, tmp_path: Path, is_encrypted: bool) -> None:
    alice = await person(world, "alice", tmp_path)
    async with world.running():
        room = Room(world, alice, await world.room_with(alice, encrypted=is_encrypted))
        await room.ask("!agent rehearsal")
        await react(room, (await ask(room)).event_id, YES)
        await alice.hear(room.id, world.bot_id, STAMPED)
        assert "There is no open question here." in await room.ask("!yes")


async def test_a_refusal_by_reaction_is_told_to_the_agent_and_nothing_runs(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        await room.ask("!agent rehearsal")
        await react(room, (await ask(room)).event_id, NO)
        await room.user.hear(room.id, world.bot_id, "did not allow")
        assert not has_stamped(room)


@both_ways
async def test_a_reaction_to_another_message_of_the_bot_approves_nothing(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        changed = await room.user.ask(room.id, world.bot_id, "!agent rehearsal")
        before = await room.user.ask(room.id, world.bot_id, "one")
        question = await ask(room)
        for other in (changed, before):
            await react(room, other.event_id, YES)
            await room.user.hear(room.id, world.bot_id, "There is no open question here.")
        # Events of a room are processed in order: by the time this is answered, the reactions were.
        await room.ask("!context")
        assert not has_stamped(room)
        await react(room, question.event_id, YES)
        await room.user.hear(room.id, world.bot_id, STAMPED)


async def test_only_the_person_who_was_asked_answers_by_reaction(world: World) -> None:
    async with world.running():
        room = await room_of(world, "ada", preset=nio.RoomPreset.trusted_private_chat)
        await room.ask("!agent rehearsal")
        bob = await world.person("bob")
        await room.user.client.room_invite(room.id, bob.id)
        await bob.until(lambda: room.id in bob.invited)
        await bob.join(room.id)
        await room.user.say(room.id, f"{world.bot_id}: stamp hello", **{"m.mentions": {"user_ids": [world.bot_id]}})
        question = await room.user.hear(room.id, world.bot_id, "Allow")
        await react(Room(world, bob, room.id), question.event_id, YES)
        await bob.hear(room.id, world.bot_id, NOT_ASKED_TEXT)
        assert not has_stamped(room)
        await react(room, question.event_id, YES)
        await room.user.hear(room.id, world.bot_id, STAMPED)


async def test_a_reaction_while_the_bot_was_down_continues_the_same_reply(world: World) -> None:
    async with world.running():
        room = await room_of(world)
        await room.ask("!agent rehearsal")
        question = await ask(room)
    await react(room, question.event_id, YES)
    async with world.running():
        await room.user.hear(room.id, world.bot_id, STAMPED)
        await room.ask("!context")
        asked = [shown for shown in room.user.told(room.id, world.bot_id) if "Reply `!yes`" in shown.text]
        assert asked == [question], "the question is asked once"
