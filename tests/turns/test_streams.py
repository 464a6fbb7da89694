"""A turn's stream: any number of readers, from any offset, in any process."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from tests.conftest import OpenStore
from tests.scripted_agent import ScriptedAgent, make_threadline
from threadline.bootstrap import Threadline
from threadline.core import events
from threadline.core.errors import AgentFailed, NotFound
from threadline.core.threads import Scope
from threadline.core.turns import Turn
from threadline.library import UserView
from threadline.ports import Approver
from threadline.replies import DenyAll
from threadline.settings import Settings
from threadline.testing.clock import ManualClock
from threadline.turns.streams import StreamedEvent, Streams


async def collected(streams: Streams, scope: Scope, turn_id: str, after: int = 0) -> list[StreamedEvent]:
    return [streamed async for streamed in streams.read(scope, turn_id, after=after)]


@pytest.mark.req("S1-26")
async def test_a_late_reader_gets_the_stream_from_its_beginning(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.gate = asyncio.Event()
    scripted_agent.lines = ["one ", "two ", "three"]
    reply = (await me.create_thread()).ask("Count")
    turn = await reply.accept()
    await scripted_agent.waiting.wait()
    late = asyncio.create_task(collected(threadline.streams, me.scope, turn.id))
    scripted_agent.gate.set()
    await reply.ended()
    chunks = await late
    assert [chunk.n for chunk in chunks] == list(range(1, len(chunks) + 1))
    texts = [e.text for e in (streamed.event for streamed in chunks) if isinstance(e, events.TextDelta)]
    assert "".join(texts) == "one two three"


@pytest.mark.req("S1-26")
async def test_after_the_end_the_same_chunks_come_from_the_store(threadline: Threadline, me: UserView) -> None:
    reply = (await me.create_thread()).ask("Hi")
    live = [event async for event in reply]
    turn = await reply.ended()
    stored = await collected(threadline.streams, me.scope, turn.id)
    assert [streamed.event for streamed in stored] == live
    assert await collected(threadline.streams, me.scope, turn.id, after=2) == stored[2:]
    assert await collected(threadline.streams, me.scope, turn.id, after=len(stored)) == []


@pytest.mark.req("S1-26")
async def test_a_reader_whose_process_only_waited_for_the_turn_gets_its_events(
    threadline: Threadline, me: UserView, settings: Settings, clock: ManualClock
) -> None:
    """Found by the simulation: the turn waits for its thread in two processes, and the other one runs it."""
    waiting = make_threadline(threadline.store, settings, clock, ScriptedAgent())
    reply = (await me.create_thread()).ask("Hi")
    live = [event async for event in reply]
    ended = await threadline.turns.find(me.scope, (await reply.ended()).id)
    waiting.runner.start(me.scope, msgspec.structs.replace(ended, status="accepted"), DenyAll())
    shown = await collected(waiting.streams, me.scope, ended.id)
    assert [streamed.event for streamed in shown] == live


@pytest.mark.req("S1-26", "R-01")
async def test_a_reader_waits_on_if_the_turn_was_here_only_for_a_moment(
    open_store: OpenStore, database: str, threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent
) -> None:
    """Found by the simulation: this process tried to continue the turn, could not, and its reader was told the end."""
    if database == ":memory:":
        pytest.skip("a database in memory belongs to one process")

    async def continue_for_a_moment(scope: Scope, turn: Turn, approver: Approver | None) -> None:
        elsewhere.open(scope.tenant_id, turn)
        asyncio.get_running_loop().call_soon(partial(elsewhere.close, scope.tenant_id, turn.id, has_ended=False))
        tried.set()

    tried, elsewhere = asyncio.Event(), Streams(await open_store(), continue_for_a_moment)
    scripted_agent.gate = asyncio.Event()
    reply = (await me.create_thread()).ask("Hi")
    turn = await reply.accept()
    await scripted_agent.waiting.wait()
    reading = asyncio.create_task(collected(elsewhere, me.scope, turn.id))
    await tried.wait()
    done, _ = await asyncio.wait((reading,), timeout=0.2)
    assert not done
    scripted_agent.gate.set()
    await reply.ended()
    assert await reading == await collected(threadline.streams, me.scope, turn.id)


@pytest.mark.req("S1-26")
async def test_a_reader_in_another_process_follows_a_running_turn(
    open_store: OpenStore,
    database: str,
    threadline: Threadline,
    me: UserView,
    scripted_agent: ScriptedAgent,
    settings: Settings,
    clock: ManualClock,
) -> None:
    if database == ":memory:":
        pytest.skip("a database in memory belongs to one process")
    elsewhere = make_threadline(await open_store(), settings, clock, ScriptedAgent())
    scripted_agent.gate = asyncio.Event()
    scripted_agent.lines = ["begun, ", "done"]
    reply = (await me.create_thread()).ask("Hi")
    turn = await reply.accept()
    await scripted_agent.waiting.wait()
    followed = elsewhere.streams.read(me.scope, turn.id)
    first = await anext(followed)
    assert first.n == 1
    scripted_agent.gate.set()
    rest = [chunk async for chunk in followed]
    assert (await reply.ended()).status == "executed"
    words = [e.text for e in (streamed.event for streamed in [first, *rest]) if isinstance(e, events.TextDelta)]
    assert "".join(words) == "begun, done"


@pytest.mark.req("S1-28")
async def test_a_turn_is_stopped_from_another_process(
    open_store: OpenStore,
    database: str,
    me: UserView,
    scripted_agent: ScriptedAgent,
    settings: Settings,
    clock: ManualClock,
) -> None:
    if database == ":memory:":
        pytest.skip("a database in memory belongs to one process")
    elsewhere = make_threadline(await open_store(), settings, clock, ScriptedAgent())
    scripted_agent.gate = asyncio.Event()
    reply = (await me.create_thread()).ask("Hi")
    turn = await reply.accept()
    await scripted_agent.waiting.wait()
    assert await elsewhere.runner.stop(me.scope, turn.id)
    assert (await asyncio.wait_for(reply.ended(), 30)).status == "stopped"


@pytest.mark.req("S1-26")
async def test_the_stream_of_another_user_is_not_found(threadline: Threadline, me: UserView) -> None:
    turn = await (await me.create_thread()).ask("Hi").ended()
    bob = threadline.as_user("bob").scope
    with pytest.raises(NotFound) as foreign:
        await collected(threadline.streams, bob, turn.id)
    with pytest.raises(NotFound) as unknown:
        await collected(threadline.streams, bob, "nothing")
    assert str(foreign.value).replace(turn.id, "nothing") == str(unknown.value)


async def test_a_slow_reader_does_not_slow_the_turn(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = [f"word{n} " for n in range(500)]
    reply = (await me.create_thread()).ask("Talk")
    turn = await reply.accept()
    slow = threadline.streams.read(me.scope, turn.id)
    await anext(slow)
    assert (await asyncio.wait_for(reply.ended(), 30)).status == "executed"
    assert len([chunk async for chunk in slow]) > 0


async def test_the_first_event_does_not_wait_for_the_disk(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.gate = asyncio.Event()
    reply = (await me.create_thread()).ask("Quick")
    turn = await reply.accept()
    await scripted_agent.waiting.wait()
    first = await anext(threadline.streams.read(me.scope, turn.id))
    assert first.n == 1
    scripted_agent.gate.set()
    await reply.ended()


@pytest.mark.req("S1-16", "S1-25", "S1-26")
async def test_the_stream_of_an_old_turn_is_made_from_its_reply(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent, clock: ManualClock
) -> None:
    scripted_agent.lines = [
        "Let me see. ",
        events.ToolCall("c1", "look", {}),
        events.ToolResult("c1", "seen"),
        "So ",
        "it is.",
    ]
    thread = await me.create_thread()
    first = await thread.ask("Hi", key="k")
    turn = await thread.ask("Hi", key="k").ended()
    young = await collected(threadline.streams, me.scope, turn.id)
    await threadline.recovery.sweep()
    assert await collected(threadline.streams, me.scope, turn.id) == young
    clock.advance(3601)
    await threadline.recovery.sweep()
    assert await threadline.store.scoped(me.scope).chunks(turn.id) == []
    said = [event async for event in thread.ask("Hi", key="k")]
    assert said == [
        events.TextDelta("Let me see. "),
        events.ToolCall("c1", "look", {}),
        events.ToolResult("c1", "seen"),
        events.TextDelta("So it is."),
        events.Finish("stop"),
    ]
    assert await thread.ask("Hi", key="k") == first
    await thread.undo()
    assert [event async for event in thread.ask("Hi", key="k")] == said


@pytest.mark.req("S1-15")
async def test_the_replayed_stream_of_a_failed_turn_ends_with_the_failure(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent, clock: ManualClock
) -> None:
    scripted_agent.lines = ["I begin", AgentFailed("away")]
    turn = await (await me.create_thread()).ask("Hi").ended()
    clock.advance(3601)
    assert await threadline.recovery.drop_chunks(me.scope) > 0
    chunks = await collected(threadline.streams, me.scope, turn.id)
    assert [streamed.event for streamed in chunks] == [events.TextDelta("I begin"), events.Failure("away")]


async def test_streams_of_turns_that_run_are_kept(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent, clock: ManualClock
) -> None:
    scripted_agent.gate = asyncio.Event()
    reply = (await me.create_thread()).ask("Hi")
    turn = await reply.accept()
    await scripted_agent.waiting.wait()
    clock.advance(7200)
    await threadline.recovery.drop_chunks(me.scope)
    scripted_agent.gate.set()
    await reply.ended()
    texts = [streamed.event for streamed in await collected(threadline.streams, me.scope, turn.id)]
    assert events.TextDelta("Hello, ") in texts
