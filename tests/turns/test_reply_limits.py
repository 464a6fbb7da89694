"""A reply that meets a limit is cut to what fits and stored at once; one that showed nothing is not stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

import threadline
from tests.scripted_agent import ScriptedAgent, make_threadline
from threadline.agents.loop import LoopAgent
from threadline.bootstrap import Threadline
from threadline.core import events
from threadline.core.errors import LimitExceeded
from threadline.core.parts import TextPart, ToolPart
from threadline.core.sealing import Limits
from threadline.library import UserView
from threadline.ports import Store
from threadline.settings import AgentSettings, Settings
from threadline.testing.agents import ScriptedModel
from threadline.testing.clock import ManualClock

QUOTES = '"\n' * 250_000 + "word " * 40_000
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def limited(store: Store, settings: Settings, clock: ManualClock, agent: ScriptedAgent, **limits: int) -> Threadline:
    return make_threadline(store, msgspec.structs.replace(settings, limits=Limits(**limits)), clock, agent)


@pytest.mark.req("S1-10", "S1-15")
async def test_a_reply_whose_escapes_exceed_the_message_size_is_cut_and_stored(
    me: UserView, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = [QUOTES]
    thread = await me.create_thread()
    async with asyncio.timeout(20):
        turn = await thread.ask("Quote everything").ended()
    assert turn.status == "dispatch_failed"
    assert turn.error is not None
    assert turn.error.startswith("the reply was cut: message size in bytes must be at most 1048576, got ")
    reply = (await thread.messages())[-1]
    assert reply.metadata == {"status": "dispatch_failed", "limit": "message size in bytes"}
    assert QUOTES.startswith(reply.text)
    assert 1_048_576 - 8 <= len(reply.parts_json) <= 1_048_576
    scripted_agent.lines = ["Shorter."]
    assert (await thread.ask("And now?")).text == "Shorter."


@pytest.mark.req("S1-10", "S1-15")
async def test_a_reply_with_too_many_parts_is_cut_and_stored(me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = [
        event
        for number in range(400)
        for event in (
            events.StepStart(),
            events.TextDelta(f"Step {number}. "),
            events.ToolCall(f"c{number}", "look", {}),
            events.ToolResult(f"c{number}", number),
        )
    ]
    thread = await me.create_thread()
    turn = await thread.ask("Look everywhere").ended()
    assert (turn.status, turn.error) == (
        "dispatch_failed",
        "the reply was cut: parts per message must be at most 1000, got 1001",
    )
    reply = (await thread.messages())[-1]
    assert reply.metadata == {"status": "dispatch_failed", "limit": "parts per message"}
    assert len(reply.parts) == 1_000


@pytest.mark.req("S1-10")
async def test_a_lowered_message_size_stops_the_agent_at_the_limit(
    store: Store, settings: Settings, clock: ManualClock, scripted_agent: ScriptedAgent
) -> None:
    asked = 0

    def words() -> Any:
        nonlocal asked
        while asked < 10_000:
            asked += 1
            yield "wörd "

    scripted_agent.lines = words()
    tl = limited(store, settings, clock, scripted_agent, message_bytes=2_000)
    thread = await tl.as_user().create_thread()
    turn = await thread.ask("Talk").ended()
    assert turn.error is not None
    assert "message size in bytes must be at most 2000" in turn.error
    reply = (await thread.messages())[-1]
    assert len(reply.parts_json) <= 2_000
    assert len(reply.text.encode()) > 1_900
    assert asked < 400
    await tl.runner.close()


@pytest.mark.req("S1-10")
async def test_a_tool_output_that_does_not_fit_is_left_out_and_its_call_kept(
    store: Store, settings: Settings, clock: ManualClock, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = [
        "Looking. ",
        events.ToolCall("c", "read", {"path": "a"}),
        events.ToolResult("c", "x" * 5000),
    ]
    tl = limited(store, settings, clock, scripted_agent, message_bytes=2_000)
    thread = await tl.as_user().create_thread()
    assert (await thread.ask("Read it").ended()).status == "dispatch_failed"
    text, call = (await thread.messages())[-1].parts
    assert text == TextPart("Looking. ")
    assert isinstance(call, ToolPart)
    assert (call.state, call.error, call.output) == ("output-error", "the output is too large to be stored", None)
    await tl.runner.close()


@pytest.mark.req("S1-10", "S1-21")
async def test_a_secret_at_the_cut_is_masked_before_it_is_cut(
    store: Store, settings: Settings, clock: ManualClock, scripted_agent: ScriptedAgent
) -> None:
    tl = limited(store, settings, clock, scripted_agent, message_bytes=500)
    thread = await tl.as_user().create_thread()
    for length in range(420, 470, 3):
        scripted_agent.lines = ["x" * length + " " + SECRET + " and more " * 20]
        await thread.ask("Leak it").ended()
        reply = (await thread.messages())[-1]
        assert SECRET[:8] not in reply.text
        assert reply.metadata["limit"] == "message size in bytes"
    await tl.runner.close()


@pytest.mark.req("S1-10")
async def test_a_question_without_room_for_its_reply_is_refused() -> None:
    settings = Settings(database=":memory:", limits=Limits(messages_per_thread=4))
    async with threadline.open(settings=settings) as tl:
        thread = await tl.as_user("ada").create_thread()
        await thread.append("one", threadline.assistant("two"), "three")
        with pytest.raises(LimitExceeded, match="messages per thread must be at most 4, got 5"):
            await thread.ask("Is there room?")
        assert len(await thread.messages()) == 3


@pytest.mark.req("S1-10")
async def test_a_reply_to_a_thread_that_was_filled_while_it_ran_ends_immediately() -> None:
    gate = asyncio.Event()

    async def wait(prompt: str) -> AsyncGenerator[str, None]:
        yield "I was "
        await gate.wait()
        yield "too late."

    settings = Settings(database=":memory:", agent="wait", limits=Limits(messages_per_thread=4))
    async with threadline.open(settings=settings, agents={"wait": wait}) as tl:
        thread = await tl.as_user("ada").create_thread()
        reply = thread.ask("Are you there?")
        await reply.accept()
        await thread.append("a", "b", "c")
        gate.set()
        async with asyncio.timeout(10):
            turn = await reply.ended()
        assert (turn.status, turn.error) == (
            "dispatch_failed",
            "the reply was not stored: messages per thread must be at most 4, got 5",
        )
        assert [message.text for message in await thread.messages()] == ["Are you there?", "a", "b", "c"]


DOWN = {"api_key": "none", "base_url": "http://127.0.0.1:9/v1", "attempts": 1}
PROVIDERS = {
    "openai": AgentSettings("openai", "gpt-5-mini", settings=DOWN),
    "anthropic": AgentSettings("anthropic", "claude-sonnet-5", settings=DOWN),
}
SILENT: dict[str, list[Any]] = {
    "nothing": [events.Finish()],
    "white space": [events.TextDelta(" \n"), events.Finish()],
    "reasoning without text": [events.ReasoningEnd({"openai": {"id": "r"}}), events.Finish()],
}


@pytest.mark.req("S1-15")
@pytest.mark.parametrize("agent", ["openai", "anthropic", "rehearsal"])
async def test_a_provider_that_fails_before_its_first_word_stores_no_message(agent: str) -> None:
    async with threadline.open(settings=Settings(database=":memory:", agents=PROVIDERS)) as tl:
        thread = await tl.as_user("ada").create_thread(agent_id=agent)
        turn = await thread.ask("fail at once").ended()
        assert (turn.status, turn.reply_seq) == ("dispatch_failed", None)
        assert [message.role for message in await thread.messages()] == ["user"]


@pytest.mark.req("S1-15")
@pytest.mark.parametrize("said", SILENT)
async def test_a_reply_of_a_tool_loop_that_shows_nothing_is_not_stored(said: str) -> None:
    agents = {"silent": LoopAgent(ScriptedModel(SILENT[said]))}
    async with threadline.open(":memory:", agents=agents) as tl:
        thread = await tl.as_user("ada").create_thread(agent_id="silent")
        turn = await thread.ask("Say nothing").ended()
        assert (turn.status, turn.reply_seq) == ("executed", None)
        assert [message.role for message in await thread.messages()] == ["user"]
