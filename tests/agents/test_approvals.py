"""Approvals: when they are requested, and how a decision of a later turn is applied."""

from __future__ import annotations

import asyncio

import pytest

from tests.agents.agent_calls import DONE, call, collect, events_of
from threadline.agents.limits import RunLimits
from threadline.agents.loop import LoopAgent
from threadline.agents.tools import Tool, tool
from threadline.core.events import (
    ApprovalRequest,
    Event,
    Finish,
    StepStart,
    TextDelta,
    ToolCall,
    ToolDenied,
    ToolResult,
)
from threadline.core.parts import Approval, TextPart, ToolPart
from threadline.core.prompts import Prompt, PromptMessage
from threadline.ports import Verdict
from threadline.testing.agents import FixedApprover, ScriptedModel, memory_services, prompt_of


async def explode() -> None:
    raise RuntimeError("boom")


async def test_approvals_are_requested_one_at_a_time_in_order() -> None:
    asked: list[str] = []
    asking = 0

    class OneAtATime:
        async def decide(self, call: ToolCall) -> Verdict:
            nonlocal asking
            asking += 1
            assert asking == 1
            await asyncio.sleep(0)
            asking -= 1
            asked.append(call.call_id)
            return Verdict("allow")

    seat = Tool.from_function(explode, name="book", needs_approval=True)
    model = ScriptedModel([call("c1"), call("c2"), call("c3")], DONE)
    await events_of(LoopAgent(model, [seat]), services=memory_services(approver=OneAtATime()))
    assert asked == ["c1", "c2", "c3"]


async def test_a_turn_that_waits_for_approval_ends_with_the_request(book: Tool, booked: list[str]) -> None:
    seat = Tool.from_function(book.function, needs_approval=True)

    async def look() -> str:
        return "free"

    model = ScriptedModel([call("c1"), call("c2", "look")])
    events = await events_of(
        LoopAgent(model, [seat, tool(look)]), services=memory_services(approver=FixedApprover("defer"))
    )
    request = events[3]
    assert isinstance(request, ApprovalRequest)
    assert request.call_id == "c1"
    assert events[4:] == [ToolResult("c2", "free"), Finish("tool-calls")]
    assert booked == []


def waiting_for(approval: Approval | None) -> Prompt:
    part = ToolPart("c1", "book", "approval-responded" if approval else "input-available", b'{"seat":"9"}')
    open_call = ToolPart(part.call_id, part.name, part.state, part.input, approval=approval)
    asked = PromptMessage("assistant", (TextPart("I book."), open_call))
    return Prompt(messages=(PromptMessage("user", (TextPart("go"),)), asked))


@pytest.mark.parametrize(
    ("approval", "expected"),
    [
        (Approval("a1", approved=True), ToolResult("c1", {"booked": "9"})),
        (Approval("a1", approved=False, reason="no"), ToolDenied("c1", "no")),
    ],
)
async def test_a_decided_approval_finishes_the_call_before_the_next_round(
    approval: Approval, expected: Event, book: Tool
) -> None:
    seat = Tool.from_function(book.function, needs_approval=True)
    model = ScriptedModel(DONE)
    agent = LoopAgent(model, [seat])
    events = await events_of(agent, waiting_for(approval), memory_services(approver=FixedApprover("defer")))
    assert events == [call("c1", seat="9"), expected, StepStart(), TextDelta("Done."), Finish()]
    shown = model.seen[0][-1]
    assert shown.role == "assistant"
    assert shown.parts[0] == TextPart("I book.")
    assert [part.call_id for part in shown.parts if isinstance(part, ToolPart)] == ["c1"]


async def test_only_undecided_approvals_are_requested_again(book: Tool, booked: list[str]) -> None:
    seat = Tool.from_function(book.function, needs_approval=True)
    events = await events_of(
        LoopAgent(ScriptedModel(DONE), [seat]),
        waiting_for(Approval("a1")),
        memory_services(approver=FixedApprover("defer")),
    )
    assert isinstance(events[1], ApprovalRequest)
    assert booked == []


class Thoughtful:
    async def decide(self, call: ToolCall) -> Verdict:
        await asyncio.sleep(0.1)
        return Verdict("allow")


@pytest.mark.usefixtures("idle_time")
async def test_the_time_budget_is_paused_while_a_person_decides(book: Tool) -> None:
    seat = Tool.from_function(book.function, needs_approval=True)
    agent = LoopAgent(ScriptedModel([call("c1")], DONE), [seat], limits=RunLimits(seconds=0.08))
    assert (await events_of(agent, services=memory_services(approver=Thoughtful())))[-1] == Finish()


@pytest.mark.usefixtures("idle_time")
async def test_the_time_budget_resumes_after_the_decision(book: Tool) -> None:
    seat = Tool.from_function(book.function, needs_approval=True)
    model = ScriptedModel([call("c1")], [asyncio.Event().wait])
    agent = LoopAgent(model, [seat], limits=RunLimits(seconds=0.08))
    heard, error = await collect(agent.run(prompt_of("go"), memory_services(approver=Thoughtful())))
    assert heard[-1] == StepStart()
    assert error == "the reply took longer than 0.08 s and was stopped"
