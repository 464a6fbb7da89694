"""The tool loop: rounds, concurrent tools, limits, and stopping in the middle."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from tests.agents.agent_calls import DONE, call, collect, events_of
from threadline.agents.limits import RunLimits
from threadline.agents.loop import LoopAgent
from threadline.agents.tools import Tool, tool
from threadline.core.errors import AgentFailed, InvalidInput
from threadline.core.events import (
    Failure,
    Finish,
    Status,
    StepStart,
    TextDelta,
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
    Usage,
)
from threadline.core.parts import StepStartPart, TextPart, ToolPart
from threadline.core.prompts import PromptMessage
from threadline.testing.agents import ScriptedModel, memory_services, prompt_of


async def test_without_tool_calls_one_round_is_the_answer() -> None:
    model = ScriptedModel([TextDelta("Hel"), TextDelta("lo"), Usage(3, 2), Finish("length")])
    assert await events_of(LoopAgent(model)) == [
        StepStart(),
        TextDelta("Hel"),
        TextDelta("lo"),
        Usage(3, 2),
        Finish("length"),
    ]
    assert model.seen == [(PromptMessage("user", (TextPart("go"),)),)]


@pytest.mark.req("S1-13")
async def test_a_call_is_run_and_the_next_round_sees_it_paired_with_its_result(book: Tool) -> None:
    model = ScriptedModel(
        [
            TextDelta("I book."),
            ToolInputStart("c1", "book"),
            ToolInputDelta("c1", '{"seat":"12"}'),
            call("c1", seat="12"),
            Finish("tool-calls"),
        ],
        DONE,
    )
    events = await events_of(LoopAgent(model, [book]))
    assert events == [
        StepStart(),
        TextDelta("I book."),
        ToolInputStart("c1", "book"),
        ToolInputDelta("c1", '{"seat":"12"}'),
        ToolCall("c1", "book", {"seat": "12"}),
        ToolResult("c1", {"booked": "12"}),
        StepStart(),
        TextDelta("Done."),
        Finish(),
    ]
    assert model.tools == (book.spec,)
    assert model.seen[1][1:] == (
        PromptMessage(
            "assistant",
            (
                StepStartPart(),
                TextPart("I book."),
                ToolPart("c1", "book", "output-available", b'{"seat":"12"}', b'{"booked":"12"}'),
            ),
        ),
    )


async def test_calls_of_one_round_run_concurrently_and_are_emitted_in_order() -> None:
    first_may_end = asyncio.Event()

    async def book(seat: str) -> str:
        if seat == "first":
            await first_may_end.wait()
        else:
            first_may_end.set()
        return seat

    model = ScriptedModel([call("c1", seat="first"), call("c2", seat="second")], DONE)
    events = await events_of(LoopAgent(model, [tool(book)]))
    assert events[3:5] == [ToolResult("c1", "first"), ToolResult("c2", "second")]


async def test_no_more_tools_run_concurrently_than_the_limit() -> None:
    running, most = 0, 0

    async def book() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    model = ScriptedModel([call(f"c{n}") for n in range(10)], DONE)
    await events_of(LoopAgent(model, [tool(book)], limits=RunLimits(parallel=3)))
    assert most == 3


async def test_an_agent_that_never_stops_calling_is_stopped_with_all_calls_answered(book: Tool) -> None:
    model = ScriptedModel(*[[call(f"c{n}")] for n in range(5)])
    shown, error = await collect(
        LoopAgent(model, [book], limits=RunLimits(rounds=3)).run(prompt_of("go"), memory_services())
    )
    assert error == "the agent called tools for 3 rounds without finishing its reply"
    assert [type(event) for event in shown] == [StepStart, ToolCall, ToolResult] * 3


@pytest.mark.usefixtures("idle_time")
async def test_a_model_that_hangs_is_stopped_when_the_budget_is_used_up() -> None:
    model = ScriptedModel([TextDelta("Let me see"), asyncio.Event().wait])
    with pytest.raises(AgentFailed, match=r"took longer than 0\.02 s"):
        await events_of(LoopAgent(model, limits=RunLimits(seconds=0.02)))


@pytest.mark.usefixtures("idle_time")
async def test_a_tool_that_hangs_gets_an_error_result_before_the_run_is_stopped() -> None:
    async def book() -> None:
        await asyncio.Event().wait()

    agent = LoopAgent(ScriptedModel([call("c1")], DONE), [tool(book)], limits=RunLimits(seconds=0.02))
    shown, error = await collect(agent.run(prompt_of("go"), memory_services()))
    assert error == "the reply took longer than 0.02 s and was stopped"
    assert isinstance(shown[2], ToolError)
    assert "was stopped" in shown[2].error


async def test_an_endless_reply_is_stopped_while_it_can_still_be_stored() -> None:
    model = ScriptedModel([TextDelta("x" * 400), TextDelta("é" * 400), Finish()])
    shown, error = await collect(
        LoopAgent(model, limits=RunLimits(reply_bytes=1000)).run(prompt_of("go"), memory_services())
    )
    assert error == "the reply grew beyond 1,000 bytes and was stopped"
    assert shown == [StepStart(), TextDelta("x" * 400)]


async def test_a_result_that_is_too_large_for_the_reply_becomes_an_error() -> None:
    async def book() -> str:
        return "x" * 600

    model = ScriptedModel([call("c1"), call("c2")], DONE)
    shown = await events_of(LoopAgent(model, [tool(book)], limits=RunLimits(reply_bytes=1_000)))
    assert isinstance(shown[3], ToolResult)
    assert shown[4] == ToolError("c2", "the result is too large for this reply")


async def test_a_failure_event_of_a_model_fails_the_agent() -> None:
    with pytest.raises(AgentFailed, match="overloaded"):
        await events_of(LoopAgent(ScriptedModel([TextDelta("a"), Failure("overloaded")])))


async def test_other_events_pass_through() -> None:
    events = await events_of(LoopAgent(ScriptedModel([Status("thinking"), *DONE])))
    assert Status("thinking") in events


@pytest.mark.parametrize("how", ["close", "cancel"])
async def test_stopping_the_answer_stops_its_tools_and_its_model(how: str) -> None:
    began, ended, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def book() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    class Watched(ScriptedModel):
        async def round(self, *given: Any) -> Any:
            try:
                yield call("c1")
                yield call("c2", "nothing")
            finally:
                closed.set()

    answer = LoopAgent(Watched(), [tool(book)]).run(prompt_of("go"), memory_services())
    if how == "close":
        while not isinstance(await anext(answer), ToolCall):
            pass
        await answer.aclose()
        assert closed.is_set()
        return
    reader = asyncio.ensure_future(_read(answer))
    await began.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert ended.is_set()


@pytest.mark.usefixtures("idle_time")
async def test_a_model_that_swallows_its_cancellation_does_not_get_more_time() -> None:
    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    model = ScriptedModel([stubborn, TextDelta("late"), TextDelta("later"), Finish()])
    heard, error = await collect(
        LoopAgent(model, limits=RunLimits(seconds=0.02)).run(prompt_of("go"), memory_services())
    )
    assert error == "the reply took longer than 0.02 s and was stopped"
    assert heard == [StepStart()]
    assert _cancellations() == 0


@pytest.mark.usefixtures("idle_time")
async def test_cancellation_takes_precedence_over_the_time_limit() -> None:
    hanging = asyncio.Event()

    async def work_on() -> None:
        try:
            await hanging.wait()
        finally:
            # The reader is cancelled from outside while the time budget cancels it too.
            reader.cancel()

    answer = LoopAgent(ScriptedModel([work_on]), limits=RunLimits(seconds=0.02)).run(prompt_of("go"), memory_services())
    reader = asyncio.ensure_future(_read(answer))
    with pytest.raises(asyncio.CancelledError):
        await reader


def _cancellations() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def _read(answer: Any) -> None:
    async for _ in answer:
        pass


async def test_two_tools_with_the_same_name_are_refused(book: Tool) -> None:
    with pytest.raises(InvalidInput, match="must be unique, got book, book"):
        LoopAgent(ScriptedModel(), [book, book])


async def test_closing_an_agent_closes_its_model() -> None:
    model = ScriptedModel()
    await LoopAgent(model).close()
    assert model.closed
