"""The bot ends, in good order or not, and begins again: nothing is lost, nothing is answered twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.killable_bot import nursery
from tests.matrix.people import MatrixUser
from tests.matrix.remote import both_ways
from tests.matrix.test_rooms import bindings

KILLS = 6
KILLS_SLOW = 40


@pytest.mark.req("S2-15")
@both_ways
async def test_a_restarted_bot_answers_missed_messages_once(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        await alice.ask(room, world.bot_id, "Hello")
        before = await bindings(world, alice)
    for text in ("While", "you", "slept"):
        await alice.say(room, text)
    async with world.running():
        for number, text in enumerate(("While", "you", "slept"), 2):
            await alice.hear(room, world.bot_id, f"{number}. You said: {text}")
        assert await bindings(world, alice) == before
        assert "C3 is ready" in (await alice.ask(room, world.bot_id, "!new")).text
    async with world.running():
        assert (await alice.ask(room, world.bot_id, "Still there?")).text == "5. You said: Still there?"
    told = [shown.text for shown in alice.told(room, world.bot_id)]
    assert [times for times in Counter(told).values() if times > 1] == []
    assert len(told) == 7


@pytest.mark.req("S2-15")
async def test_a_restarted_bot_knows_who_is_in_its_rooms_although_nothing_happened_since(world: World) -> None:
    alice, bob = await world.person("alice"), await world.person("bob")
    async with world.running():
        room = await world.room_with(alice)
        await alice.client.room_invite(room, bob.id)
        await bob.until(lambda: room in bob.invited)
        await bob.join(room)
        await bob.ask(room, world.bot_id, "!whoami")
    async with world.running():
        pass
    async with world.running() as bot:
        assert bot.homeserver.people(room) == {alice.id, bob.id}
        await bob.say(room, "This is for Alice")
        assert (await alice.ask(room, world.bot_id, f"{world.bot_id} hello")).text == "1. You said: hello"


@pytest.mark.req("S2-15")
async def test_more_than_a_sync_holds_is_fetched(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
    sent = [f"message {number}" for number in range(25)]
    for text in sent:
        await alice.say(room, text)
    async with world.running():
        for text in sent:
            await alice.hear(room, world.bot_id, f"You said: {text}")
        answers = [shown.text.split("said: ")[1] for shown in alice.told(room, world.bot_id)[1:]]
        assert answers == sent


@pytest.mark.req("S2-15")
@both_ways
async def test_a_sync_that_is_heard_twice_is_answered_once(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
    place = progress(world)
    for life in range(3):
        async with world.running():
            if life == 0:
                for text in ("Hello", "!save one", "!undo", "!new Research", "Again"):
                    await alice.ask(room, world.bot_id, text)
            else:
                await alice.ask(room, world.bot_id, f"life {life}")
        # As if it had been killed before it could say how far it was.
        (Path(world.matrix.folder) / "progress.json").write_bytes(place)
    told = [shown.text for shown in alice.told(room, world.bot_id)]
    assert [text[:12] for text in told[1:]] == [
        "1. You said:",
        "Saved as “on",
        "Removed your",
        "C3 “Research",
        "1. You said:",
        "2. You said:",
        "3. You said:",
    ]


@pytest.mark.req("S2-07", "S2-15")
async def test_an_invitation_that_was_taken_and_not_answered_is_answered_in_the_next_life(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        pass
    room = await alice.create_room(world.bot_id)
    device = json.loads((Path(world.matrix.folder) / "device.json").read_bytes())
    # As if the bot had been killed between joining and all the rest.
    path = f"/_matrix/client/v3/rooms/{quote(room)}/join"
    await asyncio.to_thread(world.synapse.call, "POST", path, {}, device["token"])
    for _ in range(2):
        async with world.running():
            await alice.hear(room, world.bot_id, "I made you a space")
            await alice.ask(room, world.bot_id, "!context")
            assert set(await bindings(world, alice)) == {"space", "C1", "C2"}
    assert len(alice.told(room, world.bot_id)) == 3


async def test_a_bot_that_was_logged_out_logs_in_again_as_the_same_device(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        device = json.loads((Path(world.matrix.folder) / "device.json").read_bytes())
        path = "/_matrix/client/v3/logout"
        await asyncio.to_thread(world.synapse.call, "POST", path, {}, device["token"])
        assert (await alice.ask(room, world.bot_id, "Still there?")).text == "1. You said: Still there?"
        again = json.loads((Path(world.matrix.folder) / "device.json").read_bytes())
        assert again["device_id"] == device["device_id"]
        assert again["token"] != device["token"]


def progress(world: World) -> bytes:
    return (Path(world.matrix.folder) / "progress.json").read_bytes()


@pytest.mark.req("S2-15", "S2-02")
async def test_killed_at_any_instant_while_two_people_write_each_message_is_answered_once(
    world: World, slow: bool
) -> None:
    async with world.running():
        writers = await met(world)
    async with nursery(world, "bot") as born:
        sent = await written_while_dying(writers, born, KILLS_SLOW if slow else KILLS)
    async with world.running():
        await each_is_answered_once(world, writers, sent)


async def write(user: MatrixUser, room: str, texts: list[str]) -> None:
    for text in texts:
        await user.say(room, text)


async def met(world: World) -> list[tuple[MatrixUser, str]]:
    """Two people, each in a room with the bot."""
    people = [await world.person(name) for name in ("alice", "bob")]
    return [(user, await world.room_with(user)) for user in people]


async def written_while_dying(
    writers: list[tuple[MatrixUser, str]], born: Callable[[], Awaitable[None]], lives: int
) -> list[str]:
    """What each of them wrote while the bot was down."""
    sent: list[str] = []
    for life in range(lives):
        texts = [f"life {life}, message {number}" for number in range(3)]
        await asyncio.gather(born(), *(write(user, room, texts) for user, room in writers))
        sent += texts
    return sent


async def each_is_answered_once(world: World, writers: list[tuple[MatrixUser, str]], sent: list[str]) -> None:
    for user, room in writers:
        await user.say(room, "the last")
        for text in [*sent, "the last"]:
            await user.hear(room, world.bot_id, f"You said: {text}")
        answers = [shown.text for shown in user.told(room, world.bot_id)[1:]]
        assert [text.partition("said: ")[2] for text in answers] == [*sent, "the last"]
        # The parrot is shown twelve turns and the question.
        assert [int(text.split(".")[0]) for text in answers] == [min(n, 13) for n in range(1, len(answers) + 1)]
