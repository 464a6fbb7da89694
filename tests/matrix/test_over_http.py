"""The bot of a service elsewhere: what can go wrong between the two of them, and what each of them may do."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.matrix.killable_bot import nursery
from tests.matrix.people import PATIENCE
from tests.matrix.remote import RemoteWorld, over_http
from tests.matrix.test_command import end, first_line, settings_of_the_page, start
from tests.matrix.test_restarts import each_is_answered_once, met, written_while_dying
from tests.service.token_clients import token_for
from threadline.client import connect
from threadline.core.errors import TokenRefused
from threadline.core.threads import Scope
from threadline.matrix.build import remote_bot

KILLS = 3
KILLS_SLOW = 40

pytestmark = [over_http, pytest.mark.req("S2-03")]


async def test_a_service_that_is_away_only_makes_the_answer_late(
    world: RemoteWorld, caplog: pytest.LogCaptureFixture
) -> None:
    alice = await world.person("alice")
    async with AsyncExitStack() as first_life:
        await first_life.enter_async_context(world.serving())
        async with world.bot():
            room = await world.room_with(alice)
            world.parrot.gate.clear()
            await alice.say(room, "Hello")
            await alice.hear(room, world.bot_id, "1.")
            with caplog.at_level(logging.WARNING, "threadline.matrix"):
                await first_life.aclose()
                world.parrot.gate.set()
                await alice.say(room, "Are you there?")
                await alice.until(lambda: "waiting: the service" in caplog.text)
            async with world.serving():
                await alice.hear(room, world.bot_id, "1. You said: Hello")
                await alice.hear(room, world.bot_id, "2. You said: Are you there?")
    assert len(alice.told(room, world.bot_id)) == 3


@pytest.mark.req("S2-15")
async def test_a_bot_killed_at_any_instant_answers_each_message_once(world: RemoteWorld, slow: bool) -> None:
    async with world.serving():
        async with world.bot():
            writers = await met(world)
        assert world.token is not None
        async with nursery(world, "bot over http", world.url, world.token) as born:
            sent = await written_while_dying(writers, born, KILLS_SLOW if slow else KILLS)
        async with world.bot():
            await each_is_answered_once(world, writers, sent)


@pytest.mark.req("S2-15")
async def test_a_service_killed_at_any_instant_answers_each_message_once(world: RemoteWorld, slow: bool) -> None:
    async with AsyncExitStack() as first_life:
        await first_life.enter_async_context(world.serving())
        async with world.bot():
            writers = await met(world)
            await first_life.aclose()
            async with nursery(world, "service", str(world.port)) as born:
                sent = await written_while_dying(writers, born, KILLS_SLOW if slow else KILLS)
            async with world.serving():
                await each_is_answered_once(world, writers, sent)


async def test_a_token_that_is_taken_away_ends_the_bot_and_the_next_one_answers_what_was_left(
    world: RemoteWorld,
) -> None:
    alice = await world.person("alice")
    async with world.serving() as threadline:
        async with connect(world.url, token=world.token) as client, remote_bot(client, world.settings) as bot:
            running = asyncio.create_task(bot.run())
            room = await world.room_with(alice)
            await alice.ask(room, world.bot_id, "Hello")
            administration = threadline.administration(Scope("local", "root", "admin"))
            (token,) = await administration.tokens()
            await administration.revoke_token(token.id)
            await alice.say(room, "And now?")
            with pytest.raises(TokenRefused):
                await asyncio.wait_for(running, PATIENCE)
        world.token = await token_for(threadline, "bot", acts_for_users=True)
        async with world.bot():
            await alice.hear(room, world.bot_id, "2. You said: And now?")
    assert len(alice.told(room, world.bot_id)) == 3


async def test_two_people_may_open_chats_of_the_same_name(world: RemoteWorld) -> None:
    people = [await world.person(name) for name in ("alice", "bob")]
    async with world.running():
        for user in people:
            thread = await world.threadline.as_user(user.id).create_thread(state_key="home-parrot")
            await thread.ask(f"I am {user.id}", surface="web")
        for user in people:
            room = await world.room_with(user)
            assert "2 messages" in (await user.ask(room, world.bot_id, "!open home-parrot")).text
            assert (await user.ask(room, world.bot_id, "Again")).text == "2. You said: Again"
        for user in people:
            handle = await world.threadline.as_user(user.id).thread("home-parrot")
            assert [message.text for message in await handle.messages() if message.role == "user"] == [
                f"I am {user.id}",
                "Again",
            ]


async def test_messages_are_with_the_service_and_not_in_the_bots_folder(world: RemoteWorld) -> None:
    alice = await world.person("alice")
    async with world.running():
        room = await world.room_with(alice)
        await alice.ask(room, world.bot_id, "a pineapple")
        (bound,) = [each for each in await world.bindings(alice.id) if each.place == room]
        thread = await world.threadline.as_user(alice.id).thread(bound.thread_id)
        assert [message.text for message in await thread.messages()] == ["a pineapple", "1. You said: a pineapple"]
        (turn,) = await world.threadline.store.scoped(Scope("local", alice.id)).turns(thread.id)
        assert turn.surface == "matrix"
    assert b"pineapple" in stored(world.folder, "threadline.db*")
    assert b"pineapple" not in stored(Path(world.matrix.folder), "*")


def stored(folder: Path, names: str) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob(names) if file.is_file())


async def test_the_command_runs_a_bot_for_a_service_and_says_in_one_line_why_it_cannot(
    world: RemoteWorld, tmp_path: Path
) -> None:
    (tmp_path / "threadline.toml").write_text(settings_of_the_page(world))
    alice = await world.person("alice")
    async with world.serving() as threadline:
        serving = ("matrix", "run", "--server", world.url)
        refused = {
            await token_for(threadline, "bot"): (5, "--acts-for-users"),
            "wrong": (5, "token"),
        }
        for token, (code, said) in refused.items():
            bot = await start(tmp_path, *serving, THREADLINE_MATRIX__PASSWORD="p", THREADLINE_TOKEN=token)
            _, log = await asyncio.wait_for(bot.communicate(), PATIENCE)
            assert bot.returncode == code
            assert log.decode().count("\n") == 1
            assert said in log.decode()
        assert world.token is not None
        bot = await start(
            tmp_path, *serving, THREADLINE_MATRIX__PASSWORD=world.matrix.password, THREADLINE_TOKEN=world.token
        )
        assert await first_line(bot) == f"{world.bot_id} is listening on {world.synapse.url}\n"
        room = await world.room_with(alice)
        assert (await alice.ask(room, world.bot_id, "Hello")).text == "1. You said: Hello"
        assert world.token not in await end(bot)
