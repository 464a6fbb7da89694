"""How replies come: typing, edits, pieces, threads. And who is answered at all."""

from __future__ import annotations

import asyncio

import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.homeserver_proxy import gate_to
from tests.matrix.people import PATIENCE, MatrixUser
from tests.matrix.remote import both_ways


@pytest.mark.req("S2-18")
@both_ways
async def test_a_reply_is_one_message_that_is_edited_while_a_typing_notice_stands(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        world.parrot.gate.clear()
        await alice.say(room, "Take **your** time")
        shown = await alice.hear(room, world.bot_id, "1.")
        assert shown.text == "1."
        await alice.until(lambda: (room, [world.bot_id]) in alice.typing, "a typing notice")
        world.parrot.gate.set()
        await alice.until(lambda: shown.text == "1. You said: Take **your** time")
        assert shown.content["formatted_body"] == "<ol>\n<li>You said: Take <strong>your</strong> time</li>\n</ol>"
        await alice.until(lambda: alice.typing[-1] == (room, []), "the end of the typing notice")
        assert len(alice.told(room, world.bot_id)) == 2


@pytest.mark.req("S2-18")
async def test_a_long_reply_comes_in_several_messages(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        await alice.say(room, "long")
        await alice.hear(room, world.bot_id, "Paragraph 69.")
        told = alice.told(room, world.bot_id)[1:]
        assert len(told) in {2, 3}
        whole = "\n\n".join(shown.text for shown in told)
        assert [f"Paragraph {number}." in whole for number in range(70)] == [True] * 70


async def test_a_question_in_a_thread_is_answered_there(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        root = await alice.say(room, "Let us talk")
        await alice.hear(room, world.bot_id, "1. You said: Let us talk")
        relation = {"rel_type": "m.thread", "event_id": root}
        question = await alice.say(room, "In here", **{"m.relates_to": relation})
        shown = await alice.hear(room, world.bot_id, "You said: > Let us talk\n\nIn here")
        assert shown.relation == {
            "rel_type": "m.thread",
            "event_id": root,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": question},
        }


async def edit(user: MatrixUser, room: str, event_id: str, text: str) -> None:
    new = {"msgtype": "m.text", "body": text}
    relation = {"rel_type": "m.replace", "event_id": event_id}
    await user.say(room, f"* {text}", **{"m.new_content": new, "m.relates_to": relation})


@pytest.mark.req("S2-17")
@both_ways
async def test_ones_own_last_question_may_be_put_in_other_words_or_taken_back(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        first = await alice.say(room, "Helo")
        answer = await alice.hear(room, world.bot_id, "1. You said: Helo")
        await edit(alice, room, first, "Hello")
        await alice.until(lambda: answer.event_id in alice.redacted, "the old answer is redacted")
        await alice.hear(room, world.bot_id, "1. You said: Hello")
        second = await alice.say(room, "My number is 42")
        secret = await alice.hear(room, world.bot_id, "2. You said: My number is 42")
        await edit(alice, room, first, "Too late")
        await alice.client.room_redact(room, second)
        await alice.until(lambda: secret.event_id in alice.redacted, "the answer is redacted")
        assert "2 messages" in (await alice.ask(room, world.bot_id, "!context")).text
        assert (await alice.ask(room, world.bot_id, "Go on")).text == "2. You said: Go on"
        await alice.client.room_redact(room, first)
        assert "4 messages" in (await alice.ask(room, world.bot_id, "!context")).text
        assert not [shown for shown in alice.told(room, world.bot_id) if "Too late" in shown.text]


@pytest.mark.req("S2-17")
async def test_notices_reactions_and_edits_by_others_are_nobodys_words(world: World) -> None:
    alice, bob = await world.person("alice"), await world.person("bob")
    async with world.running():
        room = await world.room_with(alice)
        first = await alice.say(room, "Hello")
        await alice.hear(room, world.bot_id, "1. You said: Hello")
        await alice.client.room_invite(room, bob.id)
        await bob.until(lambda: room in bob.invited)
        await bob.join(room)
        await edit(bob, room, first, f"{world.bot_id}: Hallo")
        await bob.client.room_leave(room)
        await alice.until(lambda: membership(alice, room, bob.id) == "leave")
        await alice.say(room, "from a machine", msgtype="m.notice")
        await alice.client.room_send(room, "m.reaction", {"m.relates_to": {"rel_type": "m.annotation", "key": "+"}})
        await alice.say(room, "cat.png", msgtype="m.image", url="mxc://threadline.test/cat")
        await alice.hear(room, world.bot_id, "2. You said: [image: cat.png]")
        assert len(alice.told(room, world.bot_id)) == 3


@pytest.mark.req("S2-17")
@both_ways
async def test_where_several_people_talk_each_is_answered_when_they_ask_and_as_themselves(world: World) -> None:
    alice, bob = await world.person("alice"), await world.person("bob")
    async with world.running():
        room = await world.room_with(alice)
        await alice.ask(room, world.bot_id, "Only us")
        await alice.client.room_invite(room, bob.id)
        await bob.until(lambda: room in bob.invited)
        await bob.join(room)
        await alice.until(lambda: bob.id in alice.client.rooms[room].users)
        await bob.say(room, "Hello, Alice")
        name = world.bot_id[1:].split(":")[0]
        asked = await bob.say(room, f"{name}: who am I?")
        shown = await bob.hear(room, world.bot_id, "You said: who am I?")
        assert shown.text == "1. You said: who am I?"
        assert shown.relation == {"m.in_reply_to": {"event_id": asked}}
        await alice.say(room, "and I?", **{"m.mentions": {"user_ids": [world.bot_id]}})
        await alice.hear(room, world.bot_id, "2. You said: and I?")
        await bob.say(room, "!context")
        await bob.hear(room, world.bot_id, "2 messages")
        assert not [shown for shown in bob.told(room, world.bot_id) if "Hello, Alice" in shown.text]


@pytest.mark.req("S2-17")
async def test_only_who_is_on_a_list_is_answered_and_only_their_invitations_are_taken(world: World) -> None:
    alice, mallory = await world.person("alice"), await world.person("mallory")
    world.change(users=(alice.id,))
    async with world.running():
        room = await world.room_with(alice)
        strange = await mallory.create_room(world.bot_id)
        await mallory.until(lambda: membership(mallory, strange, world.bot_id) == "leave", "the bot declines")
        await alice.client.room_invite(room, mallory.id)
        await mallory.until(lambda: room in mallory.invited)
        await mallory.join(room)
        await mallory.say(room, f"{world.bot_id} hello")
        await alice.say(room, f"{world.bot_id} hello")
        await alice.hear(room, world.bot_id, "1. You said: hello")
        assert len(alice.told(room, world.bot_id)) == 2


def membership(user: MatrixUser, room_id: str, member: str) -> str | None:
    told = user.state.get(room_id, {}).get(("m.room.member", member))
    return None if told is None else str(told["membership"])


@pytest.mark.req("S2-17")
@both_ways
async def test_two_peoples_rooms_stay_apart(world: World) -> None:
    alice, bob = await world.person("alice"), await world.person("bob")
    async with world.running():
        rooms = await asyncio.gather(world.room_with(alice), world.room_with(bob))
        await asyncio.gather(alice.ask(rooms[0], world.bot_id, "mine"), bob.ask(rooms[1], world.bot_id, "yours"))
        for user in (alice, bob):
            threads = await world.threadline.as_user(user.id).threads()
            assert len(threads.items) == 2
            bound = await world.bindings(user.id)
            assert {each.metadata["sender"] for each in bound} == {user.id}


async def test_a_homeserver_that_is_away_or_says_too_fast_only_makes_the_answer_late(world: World) -> None:
    alice = await world.person("alice")
    async with gate_to(world) as gate, world.running():
        room = await world.room_with(alice)
        world.parrot.gate.clear()
        await alice.say(room, "Hello")
        await alice.hear(room, world.bot_id, "1.")
        gate.go_away()
        world.parrot.gate.set()
        await alice.say(room, "Are you there?")
        await asyncio.wait_for(gate.turned_away.wait(), PATIENCE)
        gate.limit(3)
        gate.open()
        await alice.hear(room, world.bot_id, "1. You said: Hello")
        await alice.hear(room, world.bot_id, "2. You said: Are you there?")
        assert len(alice.told(room, world.bot_id)) == 3


async def test_a_message_whose_sending_was_not_confirmed_says_all_in_the_end(world: World) -> None:
    """It was taken as it was then, and what the bot sends again under the same id is not taken."""
    alice = await world.person("alice")
    async with gate_to(world) as gate, world.running():
        room = await world.room_with(alice)
        world.parrot.gate.clear()
        gate.keep_answers("/send/")
        await alice.say(room, "Hello")
        await alice.hear(room, world.bot_id, "1.")
        world.parrot.gate.set()
        for _ in range(2):
            gate.turned_away.clear()
            await asyncio.wait_for(gate.turned_away.wait(), PATIENCE)
        gate.open()
        await alice.hear(room, world.bot_id, "1. You said: Hello")
        assert len(alice.told(room, world.bot_id)) == 2


async def test_a_bot_removed_from_a_room_serves_other_rooms_and_can_rejoin(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room, other = await world.room_with(alice), await world.room_with(alice)
        world.parrot.gate.clear()
        await alice.say(room, "Hello")
        await alice.hear(room, world.bot_id, "1.")
        await alice.client.room_kick(room, world.bot_id)
        world.parrot.gate.set()
        assert (await alice.ask(other, world.bot_id, "Still here?")).text == "1. You said: Still here?"
        await alice.client.room_invite(room, world.bot_id)
        await alice.until(lambda: membership(alice, room, world.bot_id) == "join", "the bot comes back")
        assert (await alice.ask(room, world.bot_id, "Again")).text == "2. You said: Again"


@both_ways
async def test_a_chat_that_is_deleted_in_mid_answer_costs_that_answer_alone(world: World) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        world.parrot.gate.clear()
        await alice.say(room, "Hello")
        await alice.hear(room, world.bot_id, "1.")
        (bound,) = [each for each in await world.bindings(alice.id) if each.place == room]
        await (await world.threadline.as_user(alice.id).thread(bound.thread_id)).delete()
        world.parrot.gate.set()
        await alice.say(room, "Again")
        await alice.hear(room, world.bot_id, "1. You said: Again")
        assert not [shown for shown in alice.told(room, world.bot_id) if "went wrong" in shown.text]


@pytest.mark.req("S2-17")
@both_ways
async def test_an_unlinked_sender_is_told_how_to_link_and_becomes_the_codes_user(world: World) -> None:
    world.change(auto_link=False)
    ada = await world.person("ada")
    async with world.running():
        room = await ada.create_room(world.bot_id)
        await ada.hear(room, world.bot_id, "This account is not linked yet.")
        assert "not linked yet" in (await ada.ask(room, world.bot_id, "Hello")).text
        await ada.say(room, "Hello? Nobody tells me twice.")
        assert "This code does not work" in (await ada.ask(room, world.bot_id, "!link WRONG")).text
        me = world.threadline.as_user("ada")
        thread = await me.create_thread(title="From the web")
        await thread.ask("Begun elsewhere", surface="web")
        code = (await world.threadline.messaging.links.new_code(me.scope, "matrix")).code
        assert "This account is linked now" in (await ada.ask(room, world.bot_id, f"!link {code.lower()}")).text
        await ada.hear(room, world.bot_id, "I made you a space")
        assert len(await world.bindings("ada")) == 2
        assert "2 messages" in (await ada.ask(room, world.bot_id, "!open From the web")).text
        assert "already linked" in (await ada.ask(room, world.bot_id, f"!link {code}")).text
        assert "no longer linked" in (await ada.ask(room, world.bot_id, "!unlink")).text
        await ada.say(room, "Hello?")
        assert "This code does not work" in (await ada.ask(room, world.bot_id, f"!link {code}")).text
        assert [message.text for message in await thread.messages() if message.role == "user"] == ["Begun elsewhere"]
