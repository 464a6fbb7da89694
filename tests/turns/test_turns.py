"""A turn from its request to its end, on each database."""

from __future__ import annotations

import asyncio

import pytest

from tests.scripted_agent import ScriptedAgent
from threadline.bootstrap import Threadline
from threadline.core import events
from threadline.core.errors import AgentFailed, DuplicateId, InvalidInput, KeyReused, NotFound, RoleRefused, TurnRunning
from threadline.core.messages import assistant, user
from threadline.core.turns import TurnEnd, reply_id
from threadline.library import ThreadHandle, UserView
from threadline.turns.acceptance import Ending


async def read_messages(thread: ThreadHandle) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in await thread.messages()]


@pytest.mark.req("S1-01")
async def test_two_turns_store_four_messages_and_the_second_prompt_contains_the_first(
    me: UserView, scripted_agent: ScriptedAgent
) -> None:
    thread = await me.create_thread()
    await thread.ask("One?")
    await thread.ask("Two?")
    assert [role for role, _ in await read_messages(thread)] == ["user", "assistant", "user", "assistant"]
    assert scripted_agent.prompt_texts() == [("user", "One?"), ("assistant", "Hello, you."), ("user", "Two?")]


async def test_a_reply_can_be_awaited_or_watched(me: UserView) -> None:
    thread = await me.create_thread()
    assert (await thread.ask("Awaited?")).text == "Hello, you."
    pieces = [piece async for piece in thread.ask("Watched?").text()]
    assert "".join(pieces) == "Hello, you."
    assert len(pieces) > 1


@pytest.mark.req("S1-14")
async def test_a_reader_who_leaves_does_not_stop_the_turn(me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.gate = asyncio.Event()
    thread = await me.create_thread()
    reply = thread.ask("Are you there?")
    async for _ in reply:
        break
    scripted_agent.gate.set()
    assert (await reply.ended()).status == "executed"
    assert await read_messages(thread) == [("user", "Are you there?"), ("assistant", "Hello, you.")]


@pytest.mark.req("S1-15")
async def test_a_turn_that_fails_keeps_what_was_shown(me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = ["Half a ", AgentFailed("the provider broke off")]
    thread = await me.create_thread()
    reply = thread.ask("Go on")
    with pytest.raises(AgentFailed, match="broke off"):
        await reply
    turn = await reply.ended()
    assert (turn.status, turn.error) == ("dispatch_failed", "the provider broke off")
    last = (await thread.messages())[-1]
    assert (last.role, last.text, last.metadata) == ("assistant", "Half a ", {"status": "dispatch_failed"})


@pytest.mark.req("S1-15")
async def test_a_turn_that_showed_nothing_stores_no_message(me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = [events.StepStart(), events.Status("thinking"), AgentFailed("no")]
    thread = await me.create_thread()
    assert (await thread.ask("Go on").ended()).status == "dispatch_failed"
    assert await read_messages(thread) == [("user", "Go on")]
    scripted_agent.lines = ["Better."]
    assert (await thread.ask("And now?")).text == "Better."


async def test_an_agent_that_raises_anything_shows_no_details(me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = [RuntimeError("password=hunter2 at /etc/app.py")]
    turn = await (await me.create_thread()).ask("Hi").ended()
    assert turn.status == "dispatch_failed"
    assert turn.error is not None
    assert "hunter2" not in turn.error


@pytest.mark.req("S1-15", "S1-28")
async def test_a_stopped_turn_keeps_what_was_shown(me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.gate = asyncio.Event()
    thread = await me.create_thread()
    reply = thread.ask("Tell me everything")
    await reply.accept()
    await scripted_agent.waiting.wait()
    assert await reply.stop()
    turn = await reply.ended()
    assert turn.status == "stopped"
    last = (await thread.messages())[-1]
    assert (last.text, last.metadata) == ("Hello, ", {"status": "stopped"})
    assert not await reply.stop()


@pytest.mark.req("S1-18")
async def test_usage_is_stored_on_the_turn_only(me: UserView) -> None:
    thread = await me.create_thread()
    reply = thread.ask("How much?")
    shown = [event async for event in reply]
    assert not [event for event in shown if isinstance(event, events.Usage)]
    assert (await reply.ended()).usage["output_tokens"] == 2
    assert (await thread.refresh()).token_count == 12
    assert b"tokens" not in (await thread.messages())[-1].parts_json


@pytest.mark.req("S1-18")
async def test_a_status_is_shown_but_not_stored(me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = [events.Status("looking it up"), "Found."]
    thread = await me.create_thread()
    shown = [event async for event in thread.ask("Well?")]
    assert events.Status("looking it up") in shown
    assert b"looking" not in (await thread.messages())[-1].parts_json


@pytest.mark.req("S1-20")
async def test_a_longer_final_text_sends_the_rest_and_a_different_one_is_stored(
    me: UserView, scripted_agent: ScriptedAgent, caplog: pytest.LogCaptureFixture
) -> None:
    thread = await me.create_thread()
    scripted_agent.lines = ["Hello", events.FinalText("Hello, world")]
    assert "".join([piece async for piece in thread.ask("One").text()]) == "Hello, world"
    scripted_agent.lines = ["Hallo", events.FinalText("Hello")]
    assert (await thread.ask("Two")).text == "Hello"
    assert "agent anomaly: diverging-text" in caplog.messages


@pytest.mark.req("S1-25")
async def test_a_retry_with_the_same_key_finds_the_same_turn(me: UserView, scripted_agent: ScriptedAgent) -> None:
    thread = await me.create_thread()
    first = await thread.ask("Once", key="k1")
    again = await thread.ask("Once", key="k1")
    assert again == first
    assert len(await read_messages(thread)) == 2
    assert len(scripted_agent.prompts) == 1


@pytest.mark.req("S1-25")
async def test_a_key_with_another_request_is_refused(me: UserView) -> None:
    thread = await me.create_thread()
    await thread.ask("Once", key="k1")
    with pytest.raises(KeyReused):
        await thread.ask("Something else", key="k1")
    assert len(await read_messages(thread)) == 2


@pytest.mark.req("S1-25")
async def test_a_retry_while_the_turn_runs_joins_its_stream(me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.gate = asyncio.Event()
    thread = await me.create_thread()
    first = thread.ask("Once", key="k1")
    await first.accept()
    await scripted_agent.waiting.wait()
    joined = thread.ask("Once", key="k1")
    assert (await joined.accept()).id == (await first.turn()).id
    scripted_agent.gate.set()
    assert (await joined) == (await first)
    assert len(scripted_agent.prompts) == 1


@pytest.mark.req("S1-16")
async def test_a_turn_that_is_finished_twice_stores_one_reply(me: UserView, threadline: Threadline) -> None:
    thread = await me.create_thread()
    turn = await thread.ask("Once").ended()
    ending = Ending(TurnEnd("executed"), assistant("Another", id=reply_id(turn.id)), [])
    assert await threadline.turns.finish(me.scope, await threadline.turns.find(me.scope, turn.id), ending) is None
    assert [text for _, text in await read_messages(thread)] == ["Once", "Hello, you."]


@pytest.mark.req("S1-31")
async def test_a_busy_thread_rejects_queues_or_interrupts_by_policy(
    me: UserView, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.gate = asyncio.Event()
    thread = await me.create_thread()
    first = thread.ask("First")
    await first.accept()
    await scripted_agent.waiting.wait()
    with pytest.raises(TurnRunning) as refused:
        await thread.ask("Second").accept()
    assert refused.value.current_count == 1
    queued = thread.ask("Third", policy="queue")
    await queued.accept()
    scripted_agent.gate.set()
    assert (await queued).text == "Hello, you."
    assert (await first.ended()).status == "executed"
    assert scripted_agent.prompt_texts() == [("user", "First"), ("assistant", "Hello, you."), ("user", "Third")]


@pytest.mark.req("S1-31")
async def test_an_interrupting_request_stops_the_running_turn(me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.gate = asyncio.Event()
    thread = await me.create_thread()
    first = thread.ask("First")
    await first.accept()
    await scripted_agent.waiting.wait()
    second = thread.ask("Never mind", policy="interrupt")
    await second.accept()
    scripted_agent.gate = None
    assert (await first.ended()).status == "stopped"
    assert (await second).text == "Hello, you."


@pytest.mark.req("S3-24")
async def test_quick_messages_are_answered_in_order_and_each_sees_the_ones_before(
    me: UserView, scripted_agent: ScriptedAgent
) -> None:
    thread = await me.create_thread()
    replies = [thread.ask(f"Message {n}", surface="slack") for n in range(5)]
    for reply in replies:
        await reply.accept()
    for reply in replies:
        assert (await reply.ended()).status == "executed"
    asked = [[words for role, words in scripted_agent.prompt_texts(turn) if role == "user"] for turn in range(5)]
    assert asked == [[f"Message {n}" for n in range(turn + 1)] for turn in range(5)]


@pytest.mark.req("S1-30")
async def test_the_first_message_gives_the_title_and_a_title_set_by_a_person_stays(me: UserView) -> None:
    thread = await me.create_thread()
    await thread.ask("What is the\n capital of Portugal? " + "Really. " * 40)
    title = (await thread.refresh()).title
    assert title is not None
    assert title.startswith("What is the capital of Portugal?")
    assert len(title) <= 100
    await thread.update(title="Lisbon")
    await thread.ask("And of Spain?")
    assert (await thread.refresh()).title == "Lisbon"


async def test_a_reply_to_an_undone_message_is_not_stored(me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.gate = asyncio.Event()
    thread = await me.create_thread()
    await thread.append("Before", assistant("Yes."))
    reply = thread.ask("Undone")
    await reply.accept()
    await scripted_agent.waiting.wait()
    await thread.rewind(1)
    scripted_agent.gate.set()
    assert (await reply.ended()).reply_seq is None
    assert await read_messages(thread) == [("user", "Before"), ("assistant", "Yes.")]


async def test_a_thread_deleted_during_a_turn_stays_deleted(me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.gate = asyncio.Event()
    thread = await me.create_thread()
    reply = thread.ask("Hello?")
    await reply.accept()
    await scripted_agent.waiting.wait()
    await thread.delete()
    scripted_agent.gate.set()
    await reply.ended()
    with pytest.raises(NotFound):
        await me.thread(thread.id)


@pytest.mark.parametrize("message", ["", "   \n", "\u200b\u200d"])
async def test_an_empty_request_is_refused_and_nothing_is_stored(me: UserView, message: str) -> None:
    thread = await me.create_thread()
    with pytest.raises(InvalidInput):
        await thread.ask(message)
    assert await read_messages(thread) == []


async def test_only_a_user_message_is_a_request(me: UserView) -> None:
    thread = await me.create_thread()
    with pytest.raises(InvalidInput):
        await thread.ask(assistant("I said so"))
    assert await read_messages(thread) == []


async def test_a_viewer_may_not_ask(threadline: Threadline, me: UserView) -> None:
    thread = await me.create_thread()
    viewer = await threadline.as_user(role="viewer").thread(thread.id)
    with pytest.raises(RoleRefused):
        await viewer.ask("May I?")


async def test_an_unknown_agent_fails_the_turn(me: UserView) -> None:
    turn = await (await me.create_thread()).ask("Hi", agent="unknown").ended()
    assert (turn.status, turn.error) == ("dispatch_failed", "agent 'unknown' not found")


async def test_a_message_id_that_is_in_the_thread_is_not_answered_again(
    me: UserView, scripted_agent: ScriptedAgent
) -> None:
    thread = await me.create_thread()
    first = await thread.ask(user("Hi", id="m-1"))
    assert await thread.ask(user("Hi", id="m-1")) == first
    for other in (thread.ask(user("Hello", id="m-1")), thread.ask(user("Hi", id="m-1"), agent="another")):
        with pytest.raises(DuplicateId, match="m-1"):
            await other
    assert len(scripted_agent.prompts) == 1
