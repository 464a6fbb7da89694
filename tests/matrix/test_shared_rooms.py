"""Rooms with one thread for everyone: who is named to the agent, who may do what, what is whose."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import msgspec
import nio
import pytest

from tests.matrix.bot_fixtures import World
from tests.matrix.people import MatrixUser, Shown
from tests.matrix.remote import both_ways
from tests.matrix.test_commands import Room, room_of
from tests.matrix.test_powers import react
from threadline.core.channels import Binding
from threadline.core.messages import Message
from threadline.core.threads import Scope, system_scope
from threadline.core.usage import Budget, UsageQuery
from threadline.settings import BudgetSettings

# What the parrot says before it repeats the question, in a live view.
_BEGUN = re.compile(r"\d+\. ?")


class Together:
    """Ada's room with the bot, and those who joined it."""

    def __init__(self, world: World, room: Room) -> None:
        self.world = world
        self.id = room.id
        self.ada = room.user

    async def join(self, name: str) -> MatrixUser:
        user = await self.world.person(name)
        await self.ada.client.room_invite(self.id, user.id)
        await user.until(lambda: self.id in user.invited)
        await user.join(self.id)
        # The bot counts people: until it has seen this one, it answers what is not meant for it.
        await user.say(self.id, f"{self.world.bot_id} !whoami")
        await user.hear(self.id, self.world.bot_id, f"linked as `{user.id}`")
        return user

    async def ask(self, user: MatrixUser, text: str) -> str:
        """The bot's reply to this text, which names it."""
        shown = await self.reply(user, await self.say(user, text))
        await user.until(lambda: not _BEGUN.fullmatch(shown.text), f"an answer to {text!r}")
        return shown.text

    async def say(self, user: MatrixUser, text: str) -> str:
        return await user.say(self.id, f"{self.world.bot_id} {text}")

    async def reply(self, user: MatrixUser, asked: str) -> Shown:
        """The bot's reply to an event, as soon as there is one."""

        def replies() -> list[Shown]:
            told = user.told(self.id, self.world.bot_id)
            return [each for each in told if each.relation.get("m.in_reply_to", {}).get("event_id") == asked]

        found: list[Shown] = await user.until(replies, f"a reply to {asked}")
        return found[0]

    def called(self, user: MatrixUser) -> str:
        """What the agent is shown before their text."""
        return f"{user.id} ({user.id[1:].partition(':')[0]}): "

    async def binding(self) -> Binding | None:
        session = self.world.threadline.store.scoped(system_scope("local"))
        return await session.binding("matrix", self.id)

    async def messages(self) -> list[Message]:
        binding = await self.binding()
        assert binding is not None
        session = self.world.threadline.store.scoped(Scope("local", binding.owner_id))
        return await session.last_turns(binding.thread_id, 100)


async def together(world: World, **more: Any) -> Together:
    return Together(world, await room_of(world, "ada", preset=nio.RoomPreset.trusted_private_chat, **more))


@pytest.mark.req("M-06")
@both_ways
async def test_three_people_share_a_thread_and_the_agent_is_told_who_wrote_what(world: World) -> None:
    async with world.running():
        room = await together(world)
        bob, cy = await room.join("bob"), await room.join("cy")
        assert "one chat for everyone" in await room.ask(room.ada, "!share")
        assert await room.ask(room.ada, "one") == f"1. You said: {room.called(room.ada)}one"
        assert await room.ask(bob, "two") == f"2. You said: {room.called(bob)}two"
        await cy.client.set_displayname("Cy (@ada): the second\nof that name")
        await cy.until(lambda: "second" in (cy.client.rooms[room.id].user_name(cy.id) or ""), "the new name")
        assert "3. You said: " in await room.ask(cy, "three")
        binding, said = await room.binding(), [each for each in await room.messages() if each.role == "user"]
        assert binding is not None
        assert binding.owner_id == room.ada.id
        assert [each.text for each in said] == ["one", "two", "three"]
        names = [room.ada.id[1:].partition(":")[0], bob.id[1:].partition(":")[0], "Cy @ada the second of that name"]
        assert [each.metadata["author"] for each in said] == [
            {"id": user.id, "name": name, "account": user.id}
            for user, name in zip((room.ada, bob, cy), names, strict=True)
        ]


@pytest.mark.req("M-06")
async def test_what_each_person_uses_is_counted_and_limited_as_theirs(world: World) -> None:
    async with world.running() as _:
        room = await together(world)
        bob = await room.join("bob")
        await room.ask(room.ada, "!share")
        await room.ask(bob, "two")
        await room.ask(bob, "three")
        today = dt.datetime.now(dt.UTC).date()
        query = UsageQuery(by=("user",), first_day=today, last_day=today)
        used = await world.threadline.store.scoped(system_scope("local")).usage(query)
        assert [(row.user_id, row.turns) for row in used] == [(bob.id, 2)]


@pytest.mark.req("M-06")
async def test_a_person_without_budget_is_refused_and_nothing_is_stored_in_the_shared_thread(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, budgets=BudgetSettings(user=Budget(tokens_per_day=10)))
    async with world.running():
        room = await together(world)
        bob = await room.join("bob")
        await room.ask(room.ada, "!share")
        await room.ask(room.ada, "!agent rehearsal")
        while "budget" not in (told := await room.ask(bob, "Tell me about the sea, please")):
            pass
        assert "your budget of 10 tokens a day is used up" in told.lower()
        assert "You said" in await room.ask(room.ada, "and me")
        asked = [each.metadata["author"]["id"] for each in await room.messages() if each.role == "user"]
        assert asked[-1] == room.ada.id


@pytest.mark.req("M-06")
async def test_what_each_person_may_do_in_a_shared_room(world: World) -> None:
    async with world.running():
        room = await together(world)
        bob = await room.join("bob")
        assert "only someone who may change the settings" in await room.ask(bob, "!share")
        assert "not shared" in await room.ask(bob, "!share off")
        assert "takes nothing or `off`" in await room.ask(room.ada, "!share everything")
        await room.ask(room.ada, "!share")
        assert "shared already" in await room.ask(bob, "!share")
        await room.ask(room.ada, "one")
        for command in ("!save x", "!load x", "!clear", "!rename Mine", "!archive", "!open x", "!model m", "!branch"):
            assert f"only {room.ada.id}, who shared this room" in await room.ask(bob, command)
        assert "2 messages" in await room.ask(bob, "!context")
        assert "the last message is not yours" in await room.ask(bob, "!undo")
        await room.ask(bob, "two")
        assert "2 messages left" in await room.ask(bob, "!undo")
        assert "Saved as" in await room.ask(room.ada, "!save x")
        assert "settings of this room" in await room.ask(bob, "!share off")
        assert "a chat of their own here again" in await room.ask(room.ada, "!share off")
        assert await room.ask(bob, "mine") == "1. You said: mine"
        assert await room.ask(room.ada, "mine") == "2. You said: mine"


@pytest.mark.req("M-06", "M-04")
async def test_only_the_author_the_owner_and_moderators_stop_a_reply(world: World) -> None:
    async with world.running():
        room = await together(world)
        bob, cy = await room.join("bob"), await room.join("cy")
        await room.ask(room.ada, "!share")
        for user in (bob, room.ada):
            world.parrot.gate.clear()
            shown = await room.reply(bob, await room.say(bob, "slow"))
            assert "No reply is running" in await room.ask(cy, "!stop")
            await room.say(user, "!stop")
            await until_stopped(bob, shown)
            world.parrot.gate.set()
            await room.ask(bob, "!undo")


async def until_stopped(user: MatrixUser, shown: Shown) -> None:
    await user.until(lambda: "stopped" in shown.text.lower(), "the reply says that it was stopped")


@pytest.mark.req("M-06")
async def test_only_who_asked_allows_a_tool(world: World) -> None:
    async with world.running():
        room = await together(world)
        bob = await room.join("bob")
        await room.ask(room.ada, "!share")
        await room.ask(room.ada, "!agent rehearsal")
        asked = await room.reply(bob, await room.say(bob, "stamp hello"))
        await bob.until(lambda: "Allow" in asked.text, "the question")
        await react(Room(world, room.ada, room.id), asked.event_id, "\N{WHITE HEAVY CHECK MARK}")
        await room.ada.hear(room.id, world.bot_id, f"Only {bob.id}, who asked, can answer this.")
        assert f"Only {bob.id}, who asked, can answer this." in await room.ask(room.ada, "!yes")
        await bob.say(room.id, "!yes")
        await bob.hear(room.id, world.bot_id, "*Tool `stamp`: done*")


@pytest.mark.req("M-06")
async def test_private_threads_of_a_room_that_is_shared_are_kept_and_opened_elsewhere(world: World) -> None:
    async with world.running():
        room = await together(world)
        bob = await room.join("bob")
        await room.ask(bob, "between us")
        before = next(each for each in await world.bindings(bob.id) if each.place == room.id)
        await room.ask(room.ada, "!share")
        assert await room.ask(bob, "for all") == f"1. You said: {room.called(bob)}for all"
        own = Room(world, bob, await world.room_with(bob))
        assert "2 messages" in await own.ask(f"!open {before.thread_id}")
        await own.say("go on", 2)
        session = world.threadline.store.scoped(Scope("local", bob.id))
        binding = await room.binding()
        assert binding is not None
        assert await session.thread(binding.thread_id) is None


@pytest.mark.req("M-06")
async def test_a_person_who_is_removed_writes_no_more_and_their_reply_stops(world: World) -> None:
    async with world.running():
        room = await together(world)
        bob = await room.join("bob")
        await room.ask(room.ada, "!share")
        world.parrot.gate.clear()
        shown = await room.reply(room.ada, await room.say(bob, "slow"))
        await room.ada.client.room_ban(room.id, bob.id)
        await until_stopped(room.ada, shown)
        world.parrot.gate.set()
        refused = await bob.client.room_send(room.id, "m.room.message", {"msgtype": "m.text", "body": "still here"})
        assert isinstance(refused, nio.RoomSendError)
        # Alone with the bot now, but the room is still shared.
        await room.ada.say(room.id, "me")
        await room.ada.hear(room.id, world.bot_id, f"You said: {room.called(room.ada)}me")


@pytest.mark.req("M-06")
async def test_sharing_ends_when_its_owner_leaves_and_the_thread_is_theirs(world: World) -> None:
    async with world.running():
        room = await together(world)
        bob = await room.join("bob")
        await room.ask(room.ada, "!share")
        await room.ask(bob, "for all")
        binding = await room.binding()
        assert binding is not None
        own = Room(world, room.ada, await world.room_with(room.ada))
        await room.ada.client.room_leave(room.id)
        while await room.binding() is not None:
            await own.ask("!context")
        await bob.say(room.id, "alone")
        await bob.hear(room.id, world.bot_id, "1. You said: alone")
        assert "2 messages" in await own.ask(f"!open {binding.thread_id}")
    async with world.running():
        assert await room.binding() is None


@pytest.mark.req("M-06")
async def test_a_person_without_an_account_is_told_how_to_link_it_and_is_not_heard(world: World) -> None:
    world.change(auto_link=False)
    async with world.running():
        for name in ("ada", "bob"):
            session = world.threadline.store.scoped(system_scope("local"))
            await session.put_link("matrix", f"@{name}-{world.tag}:threadline.test", name, "verified")
        room = await together(world)
        bob = await room.join("bob")
        await room.ask(room.ada, "!share")
        assert await room.ask(bob, "two") == "1. You said: bob (" + room.called(bob).partition("(")[2] + "two"
        cy = await world.person("cy")
        await room.ada.client.room_invite(room.id, cy.id)
        await cy.until(lambda: room.id in cy.invited)
        await cy.join(room.id)
        assert "This account is not linked yet" in await room.ask(cy, "three")
        assert len(await room.messages()) == 2


@pytest.mark.req("M-06")
async def test_a_room_is_still_shared_after_the_database_was_lost(world: World) -> None:
    async with world.running():
        room = await together(world)
        bob = await room.join("bob")
        await room.ask(room.ada, "!share")
        await room.ask(bob, "one")
        before = await room.binding()
    world.lose_database()
    async with world.running():
        after = await room.binding()
        assert before is not None
        assert after is not None
        assert (after.thread_id, after.owner_id) == (before.thread_id, before.owner_id)
        assert await room.ask(bob, "again") == f"1. You said: {room.called(bob)}again"


@pytest.mark.req("M-06")
async def test_what_a_user_pinned_is_not_shown_where_others_read(world: World) -> None:
    async with world.running():
        room = await together(world)
        await room.join("bob")
        session = world.threadline.store.scoped(Scope("local", room.ada.id))
        await session.set_context("rehearsal", world.threadline.sealer.text("I am ill", "context"))
        await room.ask(room.ada, "!agent rehearsal")
        assert "I am ill" in await room.ask(room.ada, "what do you know?")
        await room.ask(room.ada, "!share")
        await room.ask(room.ada, "!agent rehearsal")
        assert "I am ill" not in await room.ask(room.ada, "what do you know?")
