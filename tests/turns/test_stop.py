"""A turn whose end is being stored is not interrupted, neither by a second stop nor by a closing process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.scripted_agent import ScriptedAgent
from threadline.bootstrap import Threadline
from threadline.core import events
from threadline.core.errors import StoreFull
from threadline.core.messages import user
from threadline.core.threads import Scope
from threadline.core.turns import Turn
from threadline.library import UserView
from threadline.replies import DenyAll
from threadline.testing.clock import ManualClock
from threadline.turns.acceptance import Ending, TurnRequest


class SlowEnd:
    """The storing of a turn's end, held until it is let go."""

    def __init__(self, finish: Callable[[Scope, Turn, Ending], Awaitable[Turn | None]]) -> None:
        self._finish = finish
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, turn: Turn, ending: Ending) -> Turn | None:
        self.begun.set()
        await self.go.wait()
        return await self._finish(scope, turn, ending)


@pytest.mark.req("S1-28")
@pytest.mark.parametrize("again", ["stop", "close"])
async def test_a_turn_that_is_ending_is_stopped_only_once(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowEnd(threadline.turns.finish)
    monkeypatch.setattr(threadline.turns, "finish", slow)
    scripted_agent.gate = asyncio.Event()
    thread = await me.create_thread()
    reply = thread.ask("Hi")
    turn = await reply.accept()
    await scripted_agent.waiting.wait()
    assert await reply.stop()
    await slow.begun.wait()
    if again == "stop":
        await threadline.runner.stop(me.scope, turn.id)
        slow.go.set()
    else:
        closing = asyncio.create_task(threadline.runner.close())
        await asyncio.sleep(0)
        slow.go.set()
        await closing
    ended = await asyncio.wait_for(reply.ended(), 30)
    assert ended.status == "stopped"
    assert [message.text for message in await thread.messages()] == ["Hi", "Hello, "]


async def stayed(threadline: Threadline, scope: Scope, turn_id: str) -> str:
    """What a page shows, which waits until another process ends the turn."""
    shown = [streamed.event async for batch in threadline.streams.batches(scope, turn_id) for streamed in batch]
    return "".join(event.text for event in shown if isinstance(event, events.TextDelta))


async def test_a_reader_gets_the_error_or_waits_if_the_end_cannot_be_stored(
    threadline: Threadline, me: UserView, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(scope: Scope, turn: Turn, ending: Ending) -> Turn | None:
        raise StoreFull("the disk is full")

    finish = threadline.turns.finish
    monkeypatch.setattr(threadline.turns, "finish", fail)
    reply = (await me.create_thread()).ask("Hi", surface="cli")
    turn = await reply.accept()
    staying = asyncio.create_task(stayed(threadline, me.scope, turn.id))
    words = reply.text()
    async with asyncio.timeout(30):
        assert [await anext(words), await anext(words)] == ["Hello, ", "you."]
        with pytest.raises(StoreFull):
            await anext(words)
        with pytest.raises(StoreFull):
            await reply
        assert not staying.done()
        monkeypatch.setattr(threadline.turns, "finish", finish)
        clock.advance(31)
        assert await threadline.recovery.recover(me.scope) == 1
        assert await staying == "Hello, you."


@pytest.mark.req("S1-28")
async def test_the_stream_of_a_turn_stopped_before_its_first_step_ends(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.gate = asyncio.Event()
    thread = await me.create_thread()
    running = thread.ask("One")
    await running.accept()
    request = TurnRequest(user("Two"), "cli", thread_id=thread.id, policy="queue")
    waiting = (await threadline.turns.accept(me.scope, request)).turn
    assert await threadline.store.scoped(me.scope).request_stop(waiting.id)
    threadline.runner.start(me.scope, waiting, DenyAll()).cancel()
    async with asyncio.timeout(30):
        shown = [streamed.event async for streamed in threadline.streams.read(me.scope, waiting.id)]
    assert shown == [events.Failure("stopped")]
    scripted_agent.gate.set()
    assert (await running).text == "Hello, you."
