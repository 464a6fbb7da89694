"""Tools that the caller runs, on each store: the turn waits for the output, and the same reply continues with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import pytest

from threadline import ClientTool, ToolOutput
from threadline.agents.loop import LoopAgent
from threadline.agents.models import RoundSettings, ToolSpec
from threadline.agents.tools import Tool, tool
from threadline.bootstrap import Threadline
from threadline.core.approvals import MAX_OUTPUT_BYTES, Answer
from threadline.core.errors import Conflict, GuardRefused, InvalidInput, LimitExceeded, NotFound, RoleRefused
from threadline.core.events import Event, Finish, TextDelta, ToolCall
from threadline.core.messages import Message
from threadline.core.model_texts import TitleSettings
from threadline.core.parts import ToolPart
from threadline.core.prompts import PromptMessage
from threadline.library import ThreadHandle, UserView
from threadline.ports import Store
from threadline.settings import GuardSettings, Settings
from threadline.testing.agents import ScriptedModel, Step
from threadline.testing.clock import ManualClock

PLACE = {"city": "Bern"}
DONE: list[Event] = [TextDelta("Done."), Finish()]
CALL = ToolCall("c1", "locate", {"exact": True})
CALLS: list[Event] = [TextDelta("Where?"), CALL, Finish("tool-calls")]
MAP = ClientTool("show_map", "Shows a map.", {"type": "object", "properties": {"zoom": {"type": "integer"}}})


@tool
def add(one: int, other: int) -> int:
    """Adds."""
    return one + other


@tool(needs_approval=True)
def pay(sum: int) -> str:
    """Pays."""
    return f"paid {sum}"


class Guide:
    """A Threadline whose agent has a tool of each kind and plays a script."""

    def __init__(self, store: Store, tenant_id: str, clock: ManualClock) -> None:
        self.model = ScriptedModel()
        agent = LoopAgent(self, [add, pay, Tool.on_client("locate", "Where the user is.")])
        settings = Settings(
            tenant=tenant_id,
            user="alice",
            agent="guide",
            guard=GuardSettings(patterns=("forbidden",)),
            # The script has no line for a title.
            titles=TitleSettings(by_model=False),
        )
        self.threadline = Threadline(store, settings, clock, agents={"guide": agent})

    async def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        async for event in self.model.round(messages, tools, settings):
            yield event

    async def close(self) -> None:
        return None

    def script(self, *rounds: Sequence[Step]) -> None:
        self.model = ScriptedModel(*rounds)

    @property
    def offered(self) -> list[str]:
        return [each.name for each in self.model.tools]

    @property
    def me(self) -> UserView:
        return self.threadline.as_user()


@pytest.fixture
async def guide(store: Store, tenant_id: str, clock: ManualClock) -> AsyncIterator[Guide]:
    made = Guide(store, tenant_id, clock)
    yield made
    await made.threadline.runner.close()


async def waiting(guide: Guide, calls: Sequence[Event] = CALLS, **more: Any) -> ThreadHandle:
    thread = await guide.me.create_thread()
    guide.script(calls, DONE)
    await thread.ask("Where am I?", **more)
    return thread


def calls_of(message: Message | PromptMessage) -> list[ToolPart]:
    return [part for part in message.parts if isinstance(part, ToolPart)]


@pytest.mark.req("C-01")
async def test_the_turn_waits_for_the_output_and_the_same_reply_continues(guide: Guide) -> None:
    thread = await waiting(guide)
    (open_call,) = await thread.pending()
    assert (open_call.approval_id, open_call.id, open_call.input) == (None, "c1", {"exact": True})
    asked = (await thread.messages())[-1]
    reply = await thread.respond({open_call.id: ToolOutput(PLACE)})
    assert (reply.id, reply.text) == (asked.id, "Where?\n\nDone.")
    (call,) = calls_of(reply)
    assert (call.state, call.output_value()) == ("output-available", PLACE)
    assert calls_of(guide.model.seen[1][-1])[0].output_value() == PLACE
    assert (await thread.pending(), len(await thread.messages())) == ([], 2)
    assert [turn.status for turn in await thread.turns()] == ["executed", "executed"]


@pytest.mark.req("C-01")
async def test_an_error_of_the_client_is_shown_to_the_model(guide: Guide) -> None:
    thread = await waiting(guide)
    (call,) = calls_of(await thread.respond({"c1": ToolOutput(error="permission denied")}))
    assert (call.state, call.error) == ("output-error", "permission denied")
    assert calls_of(guide.model.seen[1][-1])[0].error == "permission denied"


@pytest.mark.req("C-01")
async def test_an_output_is_taken_once(guide: Guide) -> None:
    thread = await waiting(guide)
    answers = [thread.respond({"c1": ToolOutput({"a": 1, "b": 2})}) for _ in range(3)]
    first, *others = await asyncio.gather(*answers)
    assert all(other == first for other in others)
    assert await thread.respond({"c1": ToolOutput({"b": 2, "a": 1})}) == first
    with pytest.raises(Conflict, match="answered before, with another"):
        await thread.respond({"c1": ToolOutput({"a": 2})})
    assert len(await thread.turns()) == 2


@pytest.mark.req("C-01")
async def test_server_tools_run_and_the_turn_waits_for_the_rest(guide: Guide) -> None:
    sum_call, payment_call = ToolCall("s1", "add", {"one": 1, "other": 2}), ToolCall("p1", "pay", {"sum": 5})
    mixed: list[Event] = [sum_call, CALL, payment_call, Finish("tool-calls")]
    thread = await waiting(guide, mixed)
    states = [call.state for call in calls_of((await thread.messages())[-1])]
    assert states == ["output-available", "input-available", "approval-requested"]
    locate, payment = await thread.pending()
    for some in ({locate.id: ToolOutput(PLACE)}, {payment.id: True}):
        with pytest.raises(InvalidInput, match="has no answer"):
            await thread.respond(some)
    with pytest.raises(InvalidInput, match="waits for an output, got a decision"):
        await thread.respond({locate.id: True, payment.id: True})
    with pytest.raises(InvalidInput, match="waits for a decision, got an output"):
        await thread.respond({locate.id: ToolOutput(1), payment.id: ToolOutput(1)})
    reply = await thread.respond({locate.id: ToolOutput(PLACE), payment.id: True})
    assert [call.output_value() for call in calls_of(reply)] == [3, PLACE, "paid 5"]


@pytest.mark.req("C-01")
async def test_a_reply_can_wait_again(guide: Guide) -> None:
    thread = await guide.me.create_thread()
    second: list[Event] = [ToolCall("c2", "locate", {}), Finish("tool-calls")]
    guide.script(CALLS, second, DONE)
    await thread.ask("Where am I?")
    half = await thread.respond({"c1": ToolOutput(1)})
    assert await thread.respond({"c1": ToolOutput(1)}) == half
    with pytest.raises(Conflict, match="answered before"):
        await thread.respond({"c1": ToolOutput(1), "c2": ToolOutput(2)})
    whole = await thread.respond({"c2": ToolOutput(2)})
    assert [call.output_value() for call in calls_of(whole)] == [1, 2]


@pytest.mark.req("C-01")
async def test_what_does_not_fit_is_refused_and_nothing_is_stored(guide: Guide) -> None:
    thread = await waiting(guide)
    before = await thread.messages()
    refused: list[tuple[type[Exception], dict[str, Answer]]] = [
        (InvalidInput, {}),
        (InvalidInput, {"c2": ToolOutput(1)}),
        (InvalidInput, {"c1": ToolOutput(1), "c2": ToolOutput(1)}),
        (InvalidInput, {"c1": ToolOutput({1, 2})}),
        (LimitExceeded, {"c1": ToolOutput("x" * MAX_OUTPUT_BYTES)}),
        (LimitExceeded, {"c1": ToolOutput(error="x" * (MAX_OUTPUT_BYTES + 1))}),
        (GuardRefused, {"c1": ToolOutput({"text": "this is forbidden"})}),
    ]
    for error, answers in refused:
        with pytest.raises(error):
            await thread.respond(answers)
    viewer = await guide.threadline.as_user(role="viewer").thread(thread.id)
    with pytest.raises(RoleRefused):
        await viewer.respond({"c1": ToolOutput(1)})
    branch = await thread.branch()
    assert await branch.pending() == []
    with pytest.raises(NotFound):
        await branch.respond({"c1": ToolOutput(1)})
    assert (await thread.messages(), len(await thread.turns())) == (before, 1)


@pytest.mark.req("C-01")
async def test_an_output_for_another_timeline_or_after_a_new_question_is_refused(guide: Guide) -> None:
    thread = await waiting(guide)
    asked = await thread.messages()
    guide.script(DONE)
    await thread.ask("Never mind.")
    assert await thread.pending() == []
    with pytest.raises((Conflict, NotFound, InvalidInput)):
        await thread.respond({"c1": ToolOutput(1)})
    shown = calls_of(guide.model.seen[0][-2])
    assert [call.state for call in shown] == ["output-error"]
    await thread.rewind(asked[0].seq)
    with pytest.raises(NotFound):
        await thread.respond({"c1": ToolOutput(1)})


@pytest.mark.req("C-01")
@pytest.mark.parametrize("surface", ["cli", "slack", "matrix"])
async def test_a_surface_that_cannot_run_tools_is_not_offered_any(guide: Guide, surface: Any) -> None:
    guide.script(DONE)
    thread = await guide.me.create_thread()
    await thread.ask("Where am I?", surface=surface, client_tools=[MAP])
    assert guide.offered == ["add", "pay"]


@pytest.mark.req("C-01")
async def test_a_request_declares_tools_and_the_continued_reply_has_them_too(guide: Guide) -> None:
    shown: list[Event] = [ToolCall("m1", "show_map", {"zoom": 3}), Finish("tool-calls")]
    # A request cannot replace a tool of the agent.
    taken = ClientTool("add", "Another tool.")
    thread = await waiting(guide, shown, client_tools=[MAP, taken])
    assert guide.offered == ["add", "pay", "locate", "show_map"]
    assert guide.model.tools[0].description == "Adds."
    await thread.respond({"m1": ToolOutput("shown")})
    assert guide.offered == ["add", "pay", "locate", "show_map"]
    guide.script(DONE)
    await thread.ask("And now?")
    assert guide.offered == ["add", "pay", "locate"]
