"""Turns whose process died are ended with what was shown, or run again once, by the process that finds them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.scripted_agent import ScriptedAgent
from threadline.agents.function import as_agent
from threadline.agents.loop import LoopAgent
from threadline.agents.models import RoundSettings
from threadline.agents.tools import tool
from threadline.bootstrap import Threadline
from threadline.core.errors import TurnRunning
from threadline.core.events import Event, Restart, StepStart, TextDelta, ToolCall, ToolResult, from_json, to_json
from threadline.core.messages import assistant, user
from threadline.core.parts import ToolPart
from threadline.core.prompts import Prompt
from threadline.core.threads import system_scope
from threadline.core.turns import Chunk, Surface, Turn, TurnEnd
from threadline.library import ThreadHandle, UserView
from threadline.ports import AgentServices, Store
from threadline.replies import DenyAll
from threadline.settings import Settings
from threadline.testing.clock import ManualClock
from threadline.turns.acceptance import Ending, TurnRequest

_LEASE_SECONDS = 60


async def accepted(threadline: Threadline, thread: ThreadHandle, surface: Surface) -> Turn:
    request = TurnRequest(user("Are you there?"), surface, thread_id=thread.id)
    return (await threadline.turns.accept(threadline.as_user().scope, request)).turn


async def lease_as_dead_process(threadline: Threadline, me: UserView, turn: Turn, clock: ManualClock) -> Turn:
    leased = await threadline.store.scoped(me.scope).lease_turn(turn.id, "dead", seconds=30)
    assert leased is not None
    return leased


async def outcome(threadline: Threadline, me: UserView, turn: Turn) -> Turn:
    async for _ in threadline.streams.read(me.scope, turn.id):
        pass
    return await threadline.turns.find(me.scope, turn.id)


@pytest.mark.req("S1-15")
async def test_a_web_turn_of_a_dead_process_is_interrupted_with_what_was_shown(
    threadline: Threadline, me: UserView, clock: ManualClock
) -> None:
    thread = await me.create_thread()
    turn = await lease_as_dead_process(threadline, me, await accepted(threadline, thread, "web"), clock)
    tx = threadline.store.scoped(me.scope)
    await tx.put_chunks(
        turn.id, turn.fence, [Chunk(1, to_json(TextDelta("I was "))), Chunk(2, to_json(TextDelta("say")))]
    )
    assert await threadline.recovery.recover(me.scope) == 0
    clock.advance(_LEASE_SECONDS)
    assert await threadline.recovery.recover(me.scope) == 1
    last = (await thread.messages())[-1]
    assert (last.role, last.text, last.metadata) == ("assistant", "I was say", {"status": "interrupted"})
    ended = await tx.turn(turn.id)
    assert ended is not None
    assert ended.status == "interrupted"
    assert await threadline.recovery.recover(me.scope) == 0


@pytest.mark.req("S1-15")
async def test_a_request_after_a_dead_process_is_answered_without_a_sweep(
    threadline: Threadline, me: UserView, clock: ManualClock
) -> None:
    """As in a library, where no other process sweeps."""
    thread = await me.create_thread()
    dead = await lease_as_dead_process(threadline, me, await accepted(threadline, thread, "api"), clock)
    with pytest.raises(TurnRunning):
        await thread.ask("Are you still there?")
    clock.advance(_LEASE_SECONDS)
    assert (await thread.ask("And now?")).text == "Hello, you."
    assert (await threadline.turns.find(me.scope, dead.id)).status == "interrupted"
    assert [message.text for message in await thread.messages()] == ["Are you there?", "And now?", "Hello, you."]


@pytest.mark.req("S1-15")
async def test_a_request_queued_behind_a_dead_process_is_answered_without_a_sweep(
    threadline: Threadline, me: UserView, clock: ManualClock
) -> None:
    thread = await me.create_thread()
    dead = await lease_as_dead_process(threadline, me, await accepted(threadline, thread, "cli"), clock)
    behind = TurnRequest(user("Me too"), "cli", thread_id=thread.id)
    queued = (await threadline.turns.accept(me.scope, behind)).turn
    waiting = thread.ask("And now?", surface="cli")
    await waiting.accept()
    clock.advance(_LEASE_SECONDS)
    async with asyncio.timeout(30):
        assert (await outcome(threadline, me, dead)).status == "interrupted"
        clock.advance(_LEASE_SECONDS)
        assert (await outcome(threadline, me, queued)).status == "interrupted"
        assert (await waiting.ended()).status == "executed"


@pytest.mark.req("S3-23")
async def test_a_channel_turn_of_a_dead_process_is_answered_once(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent, clock: ManualClock, tenant_id: str
) -> None:
    thread = await me.create_thread()
    turn = await lease_as_dead_process(threadline, me, await accepted(threadline, thread, "slack"), clock)
    clock.advance(_LEASE_SECONDS)
    system = system_scope(tenant_id)
    await asyncio.gather(*(threadline.recovery.recover(system) for _ in range(5)))
    ended = await outcome(threadline, me, turn)
    assert ended.status == "executed"
    assert len(scripted_agent.prompts) == 1
    assert [message.role for message in await thread.messages()] == ["user", "assistant"]


async def test_an_unknown_chunk_does_not_keep_a_turn_from_ending(
    threadline: Threadline, me: UserView, clock: ManualClock
) -> None:
    thread = await me.create_thread()
    turn = await lease_as_dead_process(threadline, me, await accepted(threadline, thread, "web"), clock)
    shown = [Chunk(1, to_json(TextDelta("I was "))), Chunk(2, b'{"type":"of-tomorrow"}'), Chunk(3, b"{}")]
    await threadline.store.scoped(me.scope).put_chunks(turn.id, turn.fence, shown)
    clock.advance(_LEASE_SECONDS)
    assert await threadline.recovery.recover(me.scope) == 1
    assert (await thread.messages())[-1].text == "I was "


async def test_a_request_accepted_just_now_is_left_to_its_process(
    threadline: Threadline, me: UserView, clock: ManualClock
) -> None:
    thread = await me.create_thread()
    await accepted(threadline, thread, "web")
    assert await threadline.recovery.recover(me.scope) == 0
    clock.advance(_LEASE_SECONDS)
    assert await threadline.recovery.recover(me.scope) == 1


@pytest.mark.req("S1-15")
@pytest.mark.parametrize("surface", ["web", "cli", "slack"])
async def test_a_process_that_was_suspended_does_not_recover_its_own_turns(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent, clock: ManualClock, surface: Surface
) -> None:
    scripted_agent.gate = asyncio.Event()
    thread = await me.create_thread()
    running = thread.ask("Hi", surface=surface)
    await running.accept()
    await scripted_agent.waiting.wait()
    waiting = thread.ask("And now?", surface=surface, policy="queue")
    await waiting.accept()
    # No lease was renewed in the meantime: the machine was suspended.
    clock.advance(_LEASE_SECONDS)
    assert await threadline.recovery.recover(me.scope) == 0
    scripted_agent.gate.set()
    assert (await running.ended()).status == (await waiting.ended()).status == "executed"


@pytest.mark.req("S1-15")
async def test_a_queued_request_is_left_to_the_process_that_has_reserved_it(
    threadline: Threadline, me: UserView, clock: ManualClock
) -> None:
    """Another process's turn died, and its end frees the thread for the queued request."""
    thread = await me.create_thread()
    dead = await lease_as_dead_process(threadline, me, await accepted(threadline, thread, "web"), clock)
    request = TurnRequest(user("And now?"), "cli", thread_id=thread.id)
    behind = (await threadline.turns.accept(me.scope, request)).turn
    clock.advance(_LEASE_SECONDS)
    session = threadline.store.scoped(me.scope)
    assert await session.renew_lease(behind.id, 0, "waits for its thread", seconds=30)
    assert await threadline.recovery.recover(me.scope) == 1
    assert (await threadline.turns.find(me.scope, dead.id)).status == "interrupted"
    assert (await threadline.turns.find(me.scope, behind.id)).status == "accepted"
    # It does not renew its reservation, so it is gone as well.
    clock.advance(_LEASE_SECONDS)
    assert await threadline.recovery.recover(me.scope) == 1
    assert (await threadline.turns.find(me.scope, behind.id)).status == "interrupted"


async def test_a_process_that_lost_the_lease_writes_nothing(
    threadline: Threadline, me: UserView, clock: ManualClock
) -> None:
    thread = await me.create_thread()
    stale = await lease_as_dead_process(threadline, me, await accepted(threadline, thread, "web"), clock)
    clock.advance(_LEASE_SECONDS)
    await threadline.recovery.recover(me.scope)
    ending = Ending(TurnEnd("executed"), assistant("Too late"), [])
    assert await threadline.turns.finish(me.scope, stale, ending) is None
    assert "Too late" not in [message.text for message in await thread.messages()]


class Effects:
    """A world that tools act on; counts how often."""

    def __init__(self) -> None:
        self.ran: list[str] = []


async def test_an_unrepeatable_tool_is_not_run_again_after_a_takeover(
    store: Store, settings: Settings, clock: ManualClock
) -> None:
    effects = Effects()
    began = asyncio.Event()

    async def spend(prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event | str, None]:
        call = ToolCall("call-1", "pay", {"amount": 5})
        yield call
        earlier = await services.journal.begin(call, repeatable=False)
        if earlier is None:
            effects.ran.append("pay")
            began.set()
            await asyncio.Event().wait()
        outcome: Any = "unknown" if earlier is None or earlier.output_json is None else "paid"
        yield ToolResult("call-1", outcome)
        yield "Done."

    first = Threadline(store, settings, clock, agents={"scripted": as_agent(spend)})
    me = first.as_user()
    thread = await me.create_thread()
    turn = await accepted(first, thread, "slack")
    dying = first.runner.start(me.scope, turn, DenyAll())
    await began.wait()
    # What kill -9 leaves: the intent is stored, the lease expires, no end is stored.
    clock.advance(_LEASE_SECONDS)
    second = Threadline(store, settings, clock, agents={"scripted": as_agent(spend)})
    await second.recovery.recover(system_scope(me.scope.tenant_id))
    ended = await outcome(second, me, turn)
    assert ended.status == "executed"
    assert effects.ran == ["pay"]
    dying.cancel()
    await asyncio.wait([dying])
    assert [message.role for message in await thread.messages()] == ["user", "assistant"]


class Debtor:
    """A model that wants to pay once in every turn, under a new call id each time it is asked."""

    def __init__(self, *call_ids: str) -> None:
        self._call_ids = list(call_ids)

    async def round(self, messages: Any, tools: Any, settings: RoundSettings) -> AsyncGenerator[Event, None]:
        if messages[-1].role == "user":
            yield ToolCall(self._call_ids.pop(0), "pay", {})
        else:
            yield TextDelta("Paid.")

    async def close(self) -> None:
        return None


async def test_the_calls_of_an_abandoned_answer_never_run(store: Store, settings: Settings, clock: ManualClock) -> None:
    """One process dies after it showed a call and before the tool began; the next one restarts, pays, and dies as well,
    before its stream is stored; the third must not take the first one's call for one that waits."""
    effects = Effects()
    paying = asyncio.Event()

    @tool(repeatable=False)
    async def pay() -> str:
        """Pays."""
        effects.ran.append("pay")
        paying.set()
        await asyncio.Event().wait()
        return "paid"

    second, third = (
        Threadline(store, settings, clock, agents={"scripted": LoopAgent(Debtor(call_id), [pay])})
        for call_id in ("second", "third")
    )
    me = second.as_user()
    thread = await me.create_thread()
    turn = await lease_as_dead_process(second, me, await accepted(second, thread, "slack"), clock)
    tx = store.scoped(me.scope)
    shown: tuple[Event, ...] = (StepStart(), TextDelta("Paying. "), ToolCall("first", "pay", {}))
    await tx.put_chunks(turn.id, turn.fence, [Chunk(n, to_json(event)) for n, event in enumerate(shown, start=1)])
    clock.advance(_LEASE_SECONDS)
    await second.recovery.recover(me.scope)
    await paying.wait()
    assert Restart() in [from_json(chunk.json) for chunk in await tx.chunks(turn.id)]
    clock.advance(_LEASE_SECONDS)
    await third.recovery.recover(me.scope)
    assert (await outcome(third, me, turn)).status == "executed"
    await second.runner.close()
    reply = (await thread.messages())[-1]
    assert effects.ran == ["pay"]
    assert [part.call_id for part in reply.parts if isinstance(part, ToolPart)] == ["second"]
    assert reply.text == "Paid."
