"""Chat contexts in process and over HTTP: the same assertions for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

import pytest

from tests.client.platforms import ASKING, PlatformOf, acting_client, in_process, over_http
from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.conftest import held
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.errors import AgentFailed, InvalidInput, InvalidName, NotFound, Refused
from threadline.core.events import TextDelta
from threadline.core.threads import ThreadChanges
from threadline.messaging.chat_contexts import ChatContexts

pytestmark = pytest.mark.req("S2-03")


@pytest.fixture
def scripted_agent() -> ScriptedAgent:
    return ScriptedAgent()


@pytest.fixture
async def threadline(scripted_agent: ScriptedAgent) -> AsyncIterator[Threadline]:
    async with open_threadline(settings=ASKING, agents={"scripted": make_agent(scripted_agent)}) as opened:
        yield opened


@pytest.fixture(params=["in process", "over http"])
async def platform_of(request: pytest.FixtureRequest, threadline: Threadline) -> AsyncIterator[PlatformOf]:
    if request.param == "in process":
        yield in_process(threadline)
        return
    async with acting_client(threadline) as client:
        yield over_http(client)


@pytest.fixture
def platform(platform_of: PlatformOf) -> ChatContexts:
    return platform_of("@alice:example.org")


async def text_of(platform: ChatContexts, turn_id: str) -> str:
    async with asyncio.timeout(30):
        pieces = [event.text async for event in platform.stream_message(turn_id) if isinstance(event, TextDelta)]
    return "".join(pieces)


async def ask_and_read(platform: ChatContexts, chat_id: str, text: str, key: str, instead_of: str | None = None) -> str:
    turn = await platform.send_message(chat_id, text, key=key, instead_of=instead_of)
    reply = await text_of(platform, turn.id)
    answered = await platform.answered(turn.id)
    assert answered.turn.id == turn.id
    assert (answered.turn.status, answered.turn.surface) == ("executed", "matrix")
    assert answered.message is not None
    assert answered.message.text == reply
    return reply


async def asked(platform: ChatContexts, scripted_agent: ScriptedAgent, chat_id: str, key: str) -> list[str]:
    """What the user has said in the context, as the agent is shown it with one more question."""
    await ask_and_read(platform, chat_id, "and now?", key)
    return [text for role, text in scripted_agent.prompt_texts() if role == "user"][:-1]


async def test_contexts_are_created_branched_saved_loaded_and_talked_to(
    platform: ChatContexts, scripted_agent: ScriptedAgent
) -> None:
    chat = await platform.create_chat_context(title="Trip")
    assert (chat.title, chat.message_count, chat.owner_id) == ("Trip", 0, "@alice:example.org")
    assert await ask_and_read(platform, chat.id, "one", "k1") == "Hello, you."
    saved = await platform.save_chat_context(chat.id, "after one")
    fork = await platform.branch_chat_context(chat.id, title="Fork")
    assert await asked(platform, scripted_agent, fork.id, "k2") == ["one"]
    loaded = await platform.load_chat_context(fork.id, saved.name, key="k3")
    assert (loaded.id, loaded.message_count) == (fork.id, 2)
    assert [each.name for each in await platform.saved_points()] == ["after one"]
    assert await platform.chat_context(fork.id) == loaded


async def test_contexts_are_listed_renamed_and_archived(platform: ChatContexts) -> None:
    first = await platform.create_chat_context(title="Trip")
    await platform.create_chat_context(title="Other")
    renamed = await platform.change_chat_context(first.id, ThreadChanges(title="Journey"))
    assert renamed.title == "Journey"
    assert {thread.title for thread in await platform.chat_contexts()} == {"Journey", "Other"}
    assert len(await platform.chat_contexts(limit=1)) == 1
    archived = await platform.change_chat_context(first.id, ThreadChanges(archived=True))
    assert archived.archived_at is not None
    assert [thread.title for thread in await platform.chat_contexts()] == ["Other"]
    assert await platform.chat_context(first.id) == archived


@pytest.mark.req("S2-15")
async def test_every_call_can_be_repeated_after_a_lost_response(
    platform: ChatContexts, scripted_agent: ScriptedAgent
) -> None:
    for _ in range(2):
        assert (await platform.create_chat_context(chat_id="c1")).id == "c1"
        await ask_and_read(platform, "c1", "one", "k1")
        await ask_and_read(platform, "c1", "two", "k2")
        assert (await platform.branch_chat_context("c1", new_chat_id="c2")).message_count == 4
    assert len(scripted_agent.prompts) == 2
    await platform.save_chat_context("c1", "here")
    for _ in range(2):
        assert (await platform.undo_last("c1", key="k3")).message_count == 2
    assert (await platform.undo_last("c1", key="k4")).message_count == 0
    for _ in range(2):
        assert (await platform.load_chat_context("c1", "here", key="k5")).message_count == 4


@pytest.mark.req("S2-15")
async def test_a_message_that_is_heard_again_keeps_its_turn_wherever_its_room_is_bound_now(
    platform: ChatContexts, scripted_agent: ScriptedAgent
) -> None:
    first, second = await platform.create_chat_context(), await platform.create_chat_context()
    turn = await platform.send_message(first.id, "one", key="k1")
    assert await text_of(platform, turn.id) == "Hello, you."
    again = await platform.send_message(second.id, "one", key="k1")
    assert (again.id, again.thread_id, again.status) == (turn.id, first.id, "executed")
    moved = await platform.undo_last(first.id, key="k2")
    assert moved.message_count == 0
    assert (await platform.undo_last(second.id, key="k2")).id == second.id
    assert len(scripted_agent.prompts) == 1


async def test_a_message_is_safe_before_it_is_answered_and_the_answer_is_read_from_its_beginning(
    platform: ChatContexts, scripted_agent: ScriptedAgent
) -> None:
    chat = await platform.create_chat_context()
    async with held(scripted_agent) as gate:
        turn = await platform.send_message(chat.id, "one", key="k1")
        assert turn.is_active
        await asyncio.wait_for(scripted_agent.waiting.wait(), 30)
        assert (await platform.answered(turn.id)).message is None
        queued = await platform.send_message(chat.id, "two", key="k2")
        readers = [asyncio.create_task(text_of(platform, turn.id)) for _ in range(2)]
        gate.set()
        assert await asyncio.gather(*readers) == ["Hello, you."] * 2
        assert await text_of(platform, queued.id) == "Hello, you."
    assert await text_of(platform, turn.id) == "Hello, you."
    assert [text for role, text in scripted_agent.prompt_texts() if role == "user"] == ["one", "two"]


async def test_a_message_takes_the_place_of_an_earlier_one(
    platform: ChatContexts, scripted_agent: ScriptedAgent
) -> None:
    chat = await platform.create_chat_context()
    await ask_and_read(platform, chat.id, "first", "k0")
    await ask_and_read(platform, chat.id, "wrnog", "k1")
    for _ in range(2):
        await ask_and_read(platform, chat.id, "right", "k2", instead_of="k1")
    assert await asked(platform, scripted_agent, chat.id, "k3") == ["first", "right"]
    with pytest.raises(NotFound):
        await platform.send_message(chat.id, "new", key="k4", instead_of="k1")
    with pytest.raises(NotFound):
        await platform.send_message(chat.id, "new", key="k4", instead_of="nothing")


async def test_the_last_message_is_known_by_its_key_in_its_own_context_alone(platform: ChatContexts) -> None:
    chat = await platform.create_chat_context()
    await ask_and_read(platform, chat.id, "one", "k1")
    assert await platform.is_last(chat.id, "k1")
    branched = await platform.branch_chat_context(chat.id)
    assert not await platform.is_last(branched.id, "k1")
    await ask_and_read(platform, branched.id, "elsewhere", "k0")
    await platform.undo_last(branched.id, key="u0")
    assert not await platform.is_last(branched.id, "k1")
    await ask_and_read(platform, chat.id, "two", "k2")
    assert not await platform.is_last(chat.id, "k1")
    assert await platform.is_last(chat.id, "k2")
    assert not await platform.is_last("nowhere", "k2")
    assert not await platform.is_last(chat.id, "unknown")


async def test_the_last_message_is_taken_back_with_its_answer_and_no_other(
    platform: ChatContexts, scripted_agent: ScriptedAgent
) -> None:
    chat = await platform.create_chat_context()
    await ask_and_read(platform, chat.id, "one", "k1")
    await ask_and_read(platform, chat.id, "two", "k2")
    assert not await platform.take_back(chat.id, "k1", key="b1")
    assert await platform.take_back(chat.id, "k2", key="b2")
    assert not await platform.take_back(chat.id, "k2", key="b2")
    assert await asked(platform, scripted_agent, chat.id, "k3") == ["one"]


async def test_taking_back_stops_the_answer_that_is_being_written_and_none_before_it(
    platform: ChatContexts, scripted_agent: ScriptedAgent
) -> None:
    chat = await platform.create_chat_context()
    async with held(scripted_agent) as gate:
        first = await platform.send_message(chat.id, "one", key="k1")
        await asyncio.wait_for(scripted_agent.waiting.wait(), 30)
        second = await platform.send_message(chat.id, "two", key="k2")
        assert await platform.take_back(chat.id, "k2", key="b2")
        gate.set()
        assert await text_of(platform, first.id) == "Hello, you."
        await text_of(platform, second.id)
    answered = await platform.answered(second.id)
    assert (answered.turn.status, answered.message) == ("stopped", None)
    assert (await platform.answered(first.id)).turn.status == "executed"
    assert len(scripted_agent.prompts) == 1


async def test_an_agent_that_fails_is_an_answer(platform: ChatContexts, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = [AgentFailed("the agent is ill")]
    chat = await platform.create_chat_context()
    turn = await platform.send_message(chat.id, "one", key="k1")
    assert await text_of(platform, turn.id) == ""
    answered = await platform.answered(turn.id)
    assert (answered.turn.status, answered.turn.error, answered.message) == (
        "dispatch_failed",
        "the agent is ill",
        None,
    )


async def test_what_is_refused_stores_nothing(platform: ChatContexts, scripted_agent: ScriptedAgent) -> None:
    chat = await platform.create_chat_context()
    with pytest.raises(Refused, match="Not that"):
        await platform.send_message(chat.id, "something forbidden", key="k1")
    with pytest.raises(InvalidInput):
        await platform.send_message(chat.id, "   ", key="k2")
    with pytest.raises(InvalidInput):
        await platform.undo_last(chat.id, key="k3")
    with pytest.raises(InvalidName):
        await platform.save_chat_context(chat.id, "\u200b")
    with pytest.raises(InvalidInput):
        await platform.chat_context("no such/key")
    assert await asked(platform, scripted_agent, chat.id, "k4") == []


async def test_what_is_not_there_or_not_this_users_is_not_found(platform_of: PlatformOf) -> None:
    alice, bob = platform_of("@alice:example.org"), platform_of("bob")
    chat = await alice.create_chat_context(chat_id="hers")
    await ask_and_read(alice, chat.id, "mine", "k1")
    await alice.save_chat_context(chat.id, "kept")
    for chat_id in ("hers", "nowhere"):
        assert await bob.chat_context(chat_id) is None
        verbs: list[Awaitable[object]] = [
            bob.branch_chat_context(chat_id),
            bob.save_chat_context(chat_id, "mine"),
            bob.load_chat_context(chat_id, "kept", key="k1"),
            bob.undo_last(chat_id, key="k2"),
            bob.change_chat_context(chat_id, ThreadChanges(title="Mine")),
            bob.send_message(chat_id, "hi", key="k3"),
        ]
        for verb in verbs:
            with pytest.raises(NotFound):
                await verb
    assert await bob.chat_contexts() == []
    assert await bob.saved_points() == []
    own = await bob.create_chat_context()
    with pytest.raises(NotFound):
        await bob.load_chat_context(own.id, "kept", key="k4")
    # A key is the user's own: another's message under it is another message.
    await ask_and_read(bob, own.id, "his", "k1")
