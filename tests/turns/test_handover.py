"""Turns that outlive the grace period of a service that ends are handed over and finished by another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, NamedTuple

import pytest

from tests.scripted_agent import ScriptedAgent, make_threadline
from threadline.agents.loop import LoopAgent
from threadline.agents.models import RoundSettings
from threadline.agents.tools import Tool, tool
from threadline.bootstrap import Threadline
from threadline.core.errors import TurnRunning
from threadline.core.events import Event, Restart, TextDelta, ToolCall
from threadline.core.messages import Message, user
from threadline.core.parts import ToolPart
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Lease, Surface, Turn, TurnInfo
from threadline.library import ThreadHandle
from threadline.ports import Store
from threadline.replies import Defer, Reply
from threadline.settings import Settings
from threadline.testing.clock import ManualClock
from threadline.turns.acceptance import TurnRequest
from threadline.turns.leases import Holder

_HANDOVER_SECONDS = 300
_LEASE_SECONDS = 60
_PATIENCE = 30


@pytest.fixture
async def other(
    store: Store, settings: Settings, clock: ManualClock, scripted_agent: ScriptedAgent, threadline: Threadline
) -> AsyncIterator[Threadline]:
    """Another process on the same database."""
    made = make_threadline(store, settings, clock, scripted_agent)
    yield made
    await made.runner.close()


class Begun(NamedTuple):
    """A turn that has said its first line, and waits."""

    thread: ThreadHandle
    reply: Reply
    turn: TurnInfo


async def begun(
    threadline: Threadline, scripted_agent: ScriptedAgent, surface: Surface = "web", key: str | None = None
) -> Begun:
    scripted_agent.gate = asyncio.Event()
    thread = await threadline.as_user().create_thread()
    reply = thread.ask("Hi", surface=surface, key=key)
    turn = await reply.accept()
    async with asyncio.timeout(_PATIENCE):
        await scripted_agent.waiting.wait()
    return Begun(thread, reply, turn)


async def handed_over(
    threadline: Threadline, scripted_agent: ScriptedAgent, surface: Surface = "web", key: str | None = None
) -> Begun:
    """The same after its service ended. The next run does not wait at the gate."""
    there = await begun(threadline, scripted_agent, surface, key)
    await threadline.runner.close(hands_over=True)
    scripted_agent.gate = None
    return there


def scope_of(threadline: Threadline) -> Scope:
    return threadline.as_user().scope


async def outcome(threadline: Threadline, turn: TurnInfo) -> Turn:
    async with asyncio.timeout(_PATIENCE):
        async for _ in threadline.streams.read(scope_of(threadline), turn.id):
            pass
    return await threadline.turns.find(scope_of(threadline), turn.id)


async def read_messages(thread: ThreadHandle) -> list[tuple[str, str, Any]]:
    return [(each.role, each.text, each.metadata.get("status")) for each in await thread.messages()]


@pytest.mark.req("S1-14", "S1-16")
@pytest.mark.parametrize("surface", ["web", "api"])
async def test_a_turn_that_outlives_its_service_is_finished_by_another(
    threadline: Threadline, other: Threadline, scripted_agent: ScriptedAgent, surface: Surface
) -> None:
    thread, _, turn = await handed_over(threadline, scripted_agent, surface)
    left = await threadline.turns.find(scope_of(threadline), turn.id)
    assert (left.status, left.is_handed_over) == ("running", True)
    assert await other.recovery.recover(system_scope(scope_of(threadline).tenant_id)) == 1
    assert (await outcome(other, turn)).status == "executed"
    assert await read_messages(thread) == [("user", "Hi", None), ("assistant", "Hello, you.", None)]
    shown = [streamed.event async for streamed in other.streams.read(scope_of(threadline), turn.id)]
    assert [each for each in shown if isinstance(each, Restart | TextDelta)] == [
        TextDelta("Hello, "),
        Restart(),
        TextDelta("Hello, "),
        TextDelta("you."),
    ]


@pytest.mark.req("S1-15")
async def test_of_many_processes_that_find_a_handed_over_turn_one_continues_it(
    threadline: Threadline, other: Threadline, scripted_agent: ScriptedAgent
) -> None:
    thread, _, turn = await handed_over(threadline, scripted_agent)
    asked_before = len(scripted_agent.prompts)
    await asyncio.gather(
        *(each.recovery.recover(scope_of(threadline)) for each in (other, threadline) for _ in range(3))
    )
    assert (await outcome(other, turn)).status == "executed"
    assert len(scripted_agent.prompts) == asked_before + 1
    assert [role for role, *_ in await read_messages(thread)] == ["user", "assistant"]


@pytest.mark.req("S1-15")
async def test_a_turn_handed_over_long_ago_is_interrupted(
    threadline: Threadline, other: Threadline, scripted_agent: ScriptedAgent, clock: ManualClock
) -> None:
    thread, _, turn = await handed_over(threadline, scripted_agent)
    clock.advance(_HANDOVER_SECONDS)
    assert await other.recovery.recover(scope_of(threadline)) == 1
    assert (await outcome(other, turn)).status == "interrupted"
    assert await read_messages(thread) == [("user", "Hi", None), ("assistant", "Hello, ", "interrupted")]


@pytest.mark.req("S1-15")
@pytest.mark.parametrize(("surface", "hands_over"), [("cli", True), ("cli", False), ("web", False), ("api", False)])
async def test_turns_of_a_terminal_or_a_program_end_with_it(
    threadline: Threadline, scripted_agent: ScriptedAgent, surface: Surface, hands_over: bool
) -> None:
    thread, reply, _ = await begun(threadline, scripted_agent, surface)
    await threadline.runner.close(hands_over=hands_over)
    assert (await reply.ended()).status == "interrupted"
    assert (await read_messages(thread))[-1] == ("assistant", "Hello, ", "interrupted")


async def test_a_turn_can_be_handed_over_twice(
    threadline: Threadline, other: Threadline, scripted_agent: ScriptedAgent
) -> None:
    thread, _, turn = await handed_over(threadline, scripted_agent)
    scripted_agent.gate = asyncio.Event()
    scripted_agent.waiting.clear()
    await other.recovery.recover(scope_of(threadline))
    async with asyncio.timeout(_PATIENCE):
        await scripted_agent.waiting.wait()
    await other.runner.close()
    left = await other.turns.find(scope_of(threadline), turn.id)
    assert (left.is_handed_over, left.fence) == (True, 2)
    scripted_agent.gate = None
    await threadline.recovery.recover(scope_of(threadline))
    assert (await outcome(threadline, turn)).status == "executed"
    assert (await read_messages(thread))[-1] == ("assistant", "Hello, you.", None)


@pytest.mark.req("S1-28")
async def test_a_turn_with_a_stop_request_is_not_handed_over(
    threadline: Threadline, store: Store, scripted_agent: ScriptedAgent
) -> None:
    thread, reply, turn = await begun(threadline, scripted_agent)
    await store.scoped(scope_of(threadline)).request_stop(turn.id)
    await threadline.runner.close(hands_over=True)
    assert (await reply.ended()).status == "stopped"
    assert (await read_messages(thread))[-1] == ("assistant", "Hello, ", "stopped")


@pytest.mark.req("S1-28")
async def test_a_turn_is_stopped_while_no_process_runs_it(
    threadline: Threadline, other: Threadline, scripted_agent: ScriptedAgent
) -> None:
    thread, _, turn = await handed_over(threadline, scripted_agent)
    assert await other.runner.stop(scope_of(threadline), turn.id) is True
    assert (await other.turns.find(scope_of(threadline), turn.id)).status == "stopped"
    assert (await read_messages(thread))[-1] == ("assistant", "Hello, ", "stopped")
    assert len(scripted_agent.prompts) == 1


@pytest.mark.req("S1-25")
async def test_a_repeated_request_joins_the_handed_over_turn(
    threadline: Threadline, other: Threadline, scripted_agent: ScriptedAgent
) -> None:
    thread, _, turn = await handed_over(threadline, scripted_agent, key="once")
    again = (await other.as_user().thread(thread.id)).ask("Hi", surface="web", key="once")
    async with asyncio.timeout(_PATIENCE):
        ended = await again.ended()
    assert (ended.id, ended.status) == (turn.id, "executed")
    assert await read_messages(thread) == [("user", "Hi", None), ("assistant", "Hello, you.", None)]


@pytest.mark.req("S1-31")
async def test_a_handed_over_turn_counts_as_running_for_a_second_message(
    threadline: Threadline, other: Threadline, scripted_agent: ScriptedAgent
) -> None:
    thread, _, turn = await handed_over(threadline, scripted_agent)
    there = await other.as_user().thread(thread.id)
    with pytest.raises(TurnRunning):
        await there.ask("Me too", surface="web", policy="reject").accept()
    # No process sweeps here: the waiting request recovers the turn before it.
    async with asyncio.timeout(_PATIENCE):
        assert (await there.ask("And now?", surface="cli", policy="queue").ended()).status == "executed"
    assert (await other.turns.find(scope_of(threadline), turn.id)).status == "executed"
    assert [(role, text) for role, text, _ in await read_messages(thread)] == [
        ("user", "Hi"),
        ("user", "And now?"),
        ("assistant", "Hello, you."),
        ("assistant", "Hello, you."),
    ]


@pytest.mark.req("S1-31")
async def test_an_interrupting_message_ends_a_handed_over_turn(
    threadline: Threadline, other: Threadline, scripted_agent: ScriptedAgent
) -> None:
    thread, _, turn = await handed_over(threadline, scripted_agent)
    there = await other.as_user().thread(thread.id)
    async with asyncio.timeout(_PATIENCE):
        assert (await there.ask("No, this", surface="web", policy="interrupt").ended()).status == "executed"
    assert (await other.turns.find(scope_of(threadline), turn.id)).status == "stopped"


@pytest.mark.req("S1-15", "S1-31")
async def test_a_request_in_a_terminal_does_not_wait_for_a_dead_process(
    threadline: Threadline, store: Store, clock: ManualClock
) -> None:
    me = threadline.as_user()
    thread = await me.create_thread()
    request = TurnRequest(user("Hi"), "web", thread_id=thread.id)
    holder = Holder(Lease("dead", 30), threadline.runner.make_way)
    dead = (await threadline.turns.accept(me.scope, request, holder)).turn
    clock.advance(_LEASE_SECONDS)
    async with asyncio.timeout(_PATIENCE):
        assert (await thread.ask("And now?", surface="cli").ended()).status == "executed"
    assert (await threadline.turns.find(me.scope, dead.id)).status == "interrupted"


@pytest.mark.req("S1-31", "S3-24")
async def test_a_queued_request_is_handed_over_with_the_running_turn(
    threadline: Threadline, other: Threadline, scripted_agent: ScriptedAgent
) -> None:
    thread, _, turn = await begun(threadline, scripted_agent)
    waiting = await thread.ask("And now?", surface="web", policy="queue").accept()
    await threadline.runner.close(hands_over=True)
    scripted_agent.gate = None
    left = [await other.turns.find(scope_of(threadline), each.id) for each in (turn, waiting)]
    assert [(each.status, each.is_handed_over) for each in left] == [("running", True), ("accepted", True)]
    assert await other.recovery.recover(scope_of(threadline)) == 2
    ended = [await outcome(other, each) for each in (turn, waiting)]
    assert [each.status for each in ended] == ["executed", "executed"]
    assert ended[0].finished_at is not None
    assert [seen for role, seen in scripted_agent.prompt_texts() if role == "user"] == ["Hi", "And now?"]


async def test_an_ending_process_takes_no_turn_over(
    threadline: Threadline, other: Threadline, scripted_agent: ScriptedAgent
) -> None:
    turn = (await handed_over(threadline, scripted_agent)).turn
    ending = asyncio.Event()
    ending.set()
    async with asyncio.timeout(_PATIENCE):
        await other.recovery.run(60, ending)
    assert (await other.turns.find(scope_of(threadline), turn.id)).is_handed_over


class Payer:
    """A model that pays once in every turn, under a new call id each time it is asked, and says what came of it."""

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id

    async def round(self, messages: Any, tools: Any, settings: RoundSettings) -> AsyncGenerator[Event, None]:
        if messages[-1].role == "user":
            yield TextDelta("Paying. ")
            yield ToolCall(self._call_id, "pay", {})
        else:
            yield TextDelta("Done.")

    async def close(self) -> None:
        return None


class Till:
    """Where a tool pays: counts how often, and keeps the first one waiting."""

    def __init__(self) -> None:
        self.paid = 0
        self.paying = asyncio.Event()

    async def pay(self) -> str:
        """Pays."""
        self.paid += 1
        if self.paid == 1:
            self.paying.set()
            await asyncio.Event().wait()
        return "paid"


def build_threadline(store: Store, settings: Settings, clock: ManualClock, call_id: str, *tools: Tool) -> Threadline:
    return Threadline(store, settings, clock, agents={"scripted": LoopAgent(Payer(call_id), tools)})


def calls(message: Message) -> list[tuple[str, str]]:
    return [(part.call_id, part.state) for part in message.parts if isinstance(part, ToolPart)]


@pytest.mark.req("S1-11", "S1-13")
@pytest.mark.parametrize(("repeatable", "paid", "state"), [(False, 1, "output-error"), (True, 2, "output-available")])
async def test_a_tool_interrupted_by_a_shutdown_runs_again_only_if_it_is_repeatable(
    store: Store, settings: Settings, clock: ManualClock, repeatable: bool, paid: int, state: str
) -> None:
    till = Till()
    pay = tool(repeatable=repeatable)(till.pay)
    first, second = (build_threadline(store, settings, clock, call_id, pay) for call_id in ("first", "second"))
    thread = await first.as_user().create_thread()
    turn = await thread.ask("Pay", surface="web").accept()
    async with asyncio.timeout(_PATIENCE):
        await till.paying.wait()
    await first.runner.close(hands_over=True)
    await second.recovery.recover(scope_of(second))
    assert (await outcome(second, turn)).status == "executed"
    assert till.paid == paid
    reply = (await thread.messages())[-1]
    assert (reply.text, calls(reply)) == ("Paying. \n\nDone.", [("first", state)])
    shown = [streamed.event async for streamed in second.streams.read(scope_of(second), turn.id)]
    assert "".join(each.text for each in shown if isinstance(each, TextDelta)) == "Paying. Done."
    assert Restart() not in shown


@pytest.mark.req("S1-16")
async def test_an_approved_tool_is_finished_after_a_handover(
    store: Store, settings: Settings, clock: ManualClock
) -> None:
    till = Till()
    pay = tool(repeatable=True, needs_approval=True)(till.pay)
    first, second = (build_threadline(store, settings, clock, call_id, pay) for call_id in ("first", "second"))
    thread = await first.as_user().create_thread()
    await thread.ask("Pay", surface="web", approver=Defer()).ended()
    (asked,) = await thread.pending()
    turn = await thread.respond({asked.id: True}, surface="web").accept()
    async with asyncio.timeout(_PATIENCE):
        await till.paying.wait()
    await first.runner.close(hands_over=True)
    await second.recovery.recover(scope_of(second))
    assert (await outcome(second, turn)).status == "executed"
    assert till.paid == 2
    messages = await thread.messages()
    assert [message.role for message in messages] == ["user", "assistant"]
    assert (messages[-1].text, calls(messages[-1])) == ("Paying. \n\nDone.", [("first", "output-available")])


async def test_an_approval_requested_after_a_handover_can_be_answered_later(
    threadline: Threadline, store: Store, settings: Settings, clock: ManualClock, scripted_agent: ScriptedAgent
) -> None:
    thread, _, turn = await handed_over(threadline, scripted_agent)
    pay = tool(needs_approval=True)(Till().pay)
    second = build_threadline(store, settings, clock, "second", pay)
    await second.recovery.recover(scope_of(second))
    assert (await outcome(second, turn)).status == "executed"
    assert [each.call_id for each in await thread.pending()] == ["second"]
