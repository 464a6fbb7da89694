"""Each call has exactly one result in every case, and no unrepeatable tool runs twice."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from tests.agents.agent_calls import DONE, call, events_of
from threadline.agents.call_runner import Cancel, Hooks, ToolOutcome
from threadline.agents.loop import LoopAgent
from threadline.agents.tools import Tool, tool
from threadline.core.errors import StoreUnavailable
from threadline.core.event_fold import Fold
from threadline.core.events import (
    Event,
    Finish,
    StepStart,
    TextDelta,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolResult,
)
from threadline.core.parts import TextPart, ToolPart
from threadline.core.prompts import Prompt, PromptMessage, say
from threadline.core.turns import ToolRun
from threadline.ports import Verdict
from threadline.testing.agents import FixedApprover, MemoryJournal, ScriptedModel, memory_services, prompt_of


async def refuse(call: ToolCall) -> Cancel | None:
    raise PermissionError("not on Sundays")


async def cancel(call: ToolCall) -> Cancel | None:
    return Cancel({"dry run": True})


async def pass_on(call: ToolCall) -> Cancel | None:
    return None


class Broken:
    async def decide(self, call: ToolCall) -> Verdict:
        raise ConnectionError("no connection")


async def explode() -> None:
    raise RuntimeError("boom")


@pytest.mark.req("S4-07", "S1-13")
@pytest.mark.parametrize(
    ("way", "expected", "ran"),
    [
        ("hook error", ToolError("c1", "a hook failed before book: PermissionError: not on Sundays"), False),
        ("hook cancel", ToolResult("c1", {"dry run": True}), False),
        (
            "approval error",
            ToolError("c1", "approval for book could not be requested: ConnectionError: no connection"),
            False,
        ),
        ("denied", ToolDenied("c1", "too dear"), False),
        ("execution error", ToolError("c1", "RuntimeError: boom"), True),
        ("success", ToolResult("c1", {"booked": "a"}), True),
    ],
)
async def test_a_call_has_exactly_one_result_in_each_of_six_cases(
    way: str, expected: Event, ran: bool, book: Tool
) -> None:
    hooks = Hooks(before=(pass_on, {"hook error": refuse, "hook cancel": cancel}.get(way, pass_on)))
    function = explode if way == "execution error" else book.function
    seat = Tool.from_function(function, name="book", needs_approval=way in ("approval error", "denied"))
    approver = Broken() if way == "approval error" else FixedApprover("deny", "too dear")
    journal = MemoryJournal()
    model = ScriptedModel([call("c1")], DONE)
    events = await events_of(LoopAgent(model, [seat], hooks), services=memory_services(journal, approver))
    assert events == [StepStart(), call("c1"), expected, StepStart(), TextDelta("Done."), Finish()]
    assert journal.log == (["begin c1", "end c1"] if ran else [])
    answered = model.seen[1][-1].parts[1]
    assert isinstance(answered, ToolPart)
    assert answered.is_answered


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (ToolCall("c1", "fly", {}), "unknown tool 'fly'; available: book"),
        (
            ToolCall("c1", "book", {"seat": 1}),
            "arguments of book are not valid: Expected `str`, got `int` - at `$.seat`",
        ),
        (ToolCall("c1", "book", '{"seat": "1'), 'arguments of book must be a JSON object, got \'{"seat": "1\''),
    ],
)
async def test_an_invalid_call_is_an_error_for_the_model(sent: ToolCall, said: str, book: Tool) -> None:
    journal = MemoryJournal()
    events = await events_of(LoopAgent(ScriptedModel([sent], DONE), [book]), services=memory_services(journal))
    assert events[2] == ToolError("c1", said)
    assert events[-1] == Finish()
    assert journal.log == []


async def test_an_after_hook_gets_the_result_and_may_replace_it(book: Tool) -> None:
    seen: list[ToolOutcome] = []

    async def watch(call: ToolCall, ran: ToolOutcome) -> ToolOutcome | None:
        seen.append(ran)
        return None

    async def blur(call: ToolCall, ran: ToolOutcome) -> ToolOutcome | None:
        return ToolResult(call.call_id, "something")

    journal = MemoryJournal()
    hooks = Hooks(after=(watch, blur))
    events = await events_of(
        LoopAgent(ScriptedModel([call("c1")], DONE), [book], hooks), services=memory_services(journal)
    )
    assert seen == [ToolResult("c1", {"booked": "a"})]
    assert events[2] == ToolResult("c1", "something")


async def test_a_failing_after_hook_is_an_error_that_says_the_tool_ran(book: Tool) -> None:
    async def fail(call: ToolCall, ran: ToolOutcome) -> ToolOutcome | None:
        raise OSError("log full")

    events = await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), [book], Hooks(after=(fail,))))
    assert events[2] == ToolError("c1", "book ran, but a hook after it failed: OSError: log full")


async def test_the_intent_is_stored_before_the_tool_runs_and_the_result_before_it_is_emitted() -> None:
    journal = MemoryJournal()

    async def book() -> str:
        journal.log.append("run")
        return "ok"

    agent = LoopAgent(ScriptedModel([call("c1")], DONE), [tool(book)])
    async for event in agent.run(prompt_of("go"), memory_services(journal)):
        if isinstance(event, ToolResult):
            journal.log.append("told")
    assert journal.log == ["begin c1", "run", "end c1", "told"]


async def test_without_a_stored_intent_nothing_runs(book: Tool, booked: list[str]) -> None:
    class Down(MemoryJournal):
        async def begin(self, call: ToolCall, *, repeatable: bool) -> ToolRun | None:
            raise StoreUnavailable("the disk is gone")

    with pytest.raises(StoreUnavailable):
        await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), [book]), services=memory_services(Down()))
    assert booked == []


@pytest.mark.req("S1-13")
async def test_an_interrupted_unrepeatable_tool_is_not_run_again(book: Tool, booked: list[str]) -> None:
    journal = MemoryJournal()
    await journal.begin(call("c1"), repeatable=False)
    events = await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), [book]), services=memory_services(journal))
    assert events[2] == ToolError(
        "c1",
        "book was started earlier in this turn and interrupted; it is not known whether it took effect. "
        "It is not safe to repeat, so it was not run again.",
    )
    assert booked == []


async def test_an_interrupted_repeatable_tool_is_run_again(book: Tool, booked: list[str]) -> None:
    journal = MemoryJournal()
    await journal.begin(call("c1"), repeatable=True)
    again = Tool.from_function(book.function, repeatable=True)
    events = await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), [again]), services=memory_services(journal))
    assert events[2] == ToolResult("c1", {"booked": "a"})
    assert booked == ["a"]


@pytest.mark.parametrize(("began", "now"), [(False, True), (True, False)])
async def test_a_tool_must_be_repeatable_both_at_its_start_and_now(
    began: bool, now: bool, book: Tool, booked: list[str]
) -> None:
    journal = MemoryJournal()
    await journal.begin(call("c1"), repeatable=began)
    again = Tool.from_function(book.function, repeatable=now)
    await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), [again]), services=memory_services(journal))
    assert booked == []


async def test_after_a_crash_between_two_results_the_first_is_reused_and_the_second_not_repeated() -> None:
    journal = MemoryJournal()
    ran: list[str] = []
    second_began = asyncio.Event()

    async def book(seat: str) -> str:
        ran.append(seat)
        if seat == "1":
            await second_began.wait()
            return "first"
        second_began.set()
        await asyncio.Event().wait()
        return "second"

    calls = [call("c1", seat="1"), call("c2", seat="2")]
    agent = LoopAgent(ScriptedModel(calls), [tool(book)])
    async with aclosing(agent.run(prompt_of("go"), memory_services(journal))) as answer:
        while not isinstance(await anext(answer), ToolResult):
            pass
    assert journal.log == ["begin c1", "begin c2", "end c1"]
    again = await events_of(LoopAgent(ScriptedModel(calls, DONE), [tool(book)]), services=memory_services(journal))
    assert again[3] == ToolResult("c1", "first")
    assert isinstance(again[4], ToolError)
    assert again[4].call_id == "c2"
    assert ran == ["1", "2"]


async def test_a_turn_taken_over_continues_the_reply(book: Tool, booked: list[str]) -> None:
    journal = MemoryJournal()
    await journal.begin(call("c1", seat="9"), repeatable=False)
    await journal.end("c1", {"output": {"booked": "9"}})
    begun = (
        TextPart("I book."),
        ToolPart("c1", "book", "input-available", b'{"seat":"9"}'),
        ToolPart("c2", "book", "input-streaming", b'"{se"'),
    )
    prompt = Prompt(messages=(say("user", "go"), PromptMessage("assistant", begun)))
    model = ScriptedModel(DONE)
    events = await events_of(LoopAgent(model, [book]), prompt, memory_services(journal))
    assert events[:2] == [call("c1", seat="9"), ToolResult("c1", {"booked": "9"})]
    assert booked == []
    assert model.seen[0][-1].parts == (
        TextPart("I book."),
        ToolPart("c1", "book", "output-available", b'{"seat":"9"}', b'{"booked":"9"}'),
    )


async def test_a_recorded_error_is_replayed_as_an_error(booked: list[str]) -> None:
    journal = MemoryJournal()
    agent = [Tool.from_function(explode, name="book")]
    first = await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), agent), services=memory_services(journal))
    again = await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), agent), services=memory_services(journal))
    assert first == again
    assert journal.log == ["begin c1", "end c1", "begin c1"]


async def test_a_provider_that_reuses_an_id_in_the_next_round_gets_its_tool_run(book: Tool, booked: list[str]) -> None:
    model = ScriptedModel([call("0", seat="1")], [call("0", seat="2")], DONE)
    events = await events_of(LoopAgent(model, [book]))
    assert booked == ["1", "2"]
    fold = Fold()
    for event in events:
        fold.add(event)
    outputs = [part.output for part in fold.parts() if isinstance(part, ToolPart)]
    assert outputs == [b'{"booked":"1"}', b'{"booked":"2"}']
