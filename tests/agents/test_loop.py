"""The tool loop: every call is answered once, in order, on every way out; nothing unrepeatable runs twice."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from threadline.agents.approval import Remembering, Standing
from threadline.agents.calls import Cancel, Hooks, Ran
from threadline.agents.limits import Limits
from threadline.agents.loop import LoopAgent
from threadline.agents.tools import Tool, tool
from threadline.core.errors import AgentFailed, InvalidInput, StoreUnavailable
from threadline.core.events import (
    ApprovalRequest,
    Event,
    Failure,
    Finish,
    Status,
    StepStart,
    TextDelta,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
    Usage,
)
from threadline.core.folding import Fold
from threadline.core.parts import Approval, StepStartPart, TextPart, ToolPart
from threadline.core.prompts import Prompt, PromptMessage
from threadline.core.turns import ToolRun
from threadline.ports import Desk, Verdict
from threadline.testing.agents import MemoryJournal, ScriptedModel, memory_desk, prompt_of

DONE = (TextDelta("Done."), Finish())


async def events_of(agent: LoopAgent, prompt: Prompt | None = None, desk: Desk | None = None) -> list[Event]:
    return [event async for event in agent.answer(prompt or prompt_of("go"), desk or memory_desk())]


async def shown_until_failure(agent: LoopAgent) -> tuple[list[Event], str]:
    shown: list[Event] = []
    try:
        async for event in agent.answer(prompt_of("go"), memory_desk()):
            shown.append(event)  # noqa: PERF401 - what was shown before the failure counts
    except AgentFailed as exc:
        return shown, str(exc)
    raise AssertionError("the agent did not fail")


def call(id: str, name: str = "book", **given: Any) -> ToolCall:
    return ToolCall(id, name, given)


@pytest.fixture
def booked() -> list[str]:
    return []


@pytest.fixture
def book(booked: list[str]) -> Tool:
    async def book(seat: str = "a") -> dict[str, str]:
        booked.append(seat)
        return {"booked": seat}

    return tool(book)


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


async def refuse(call: ToolCall) -> Cancel | None:
    raise PermissionError("not on Sundays")


async def cancel(call: ToolCall) -> Cancel | None:
    return Cancel({"dry run": True})


async def pass_on(call: ToolCall) -> Cancel | None:
    return None


class Broken:
    async def decide(self, call: ToolCall) -> Verdict:
        raise ConnectionError("nobody there")


async def explode() -> None:
    raise RuntimeError("boom")


@pytest.mark.req("S4-07", "S1-13")
@pytest.mark.parametrize(
    ("way", "expected", "ran"),
    [
        ("hook error", ToolError("c1", "a hook stopped book: PermissionError: not on Sundays"), False),
        ("hook cancel", ToolResult("c1", {"dry run": True}), False),
        (
            "approval error",
            ToolError("c1", "approval for book could not be asked: ConnectionError: nobody there"),
            False,
        ),
        ("denied", ToolDenied("c1", "too dear"), False),
        ("execution error", ToolError("c1", "RuntimeError: boom"), True),
        ("success", ToolResult("c1", {"booked": "a"}), True),
    ],
)
async def test_a_call_has_one_result_on_each_of_the_six_ways_out(
    way: str, expected: Event, ran: bool, book: Tool
) -> None:
    hooks = Hooks(before=(pass_on, {"hook error": refuse, "hook cancel": cancel}.get(way, pass_on)))
    function = explode if way == "execution error" else book.function
    seat = Tool.from_function(function, name="book", needs_approval=way in ("approval error", "denied"))
    approver = Broken() if way == "approval error" else Standing("deny", "too dear")
    journal = MemoryJournal()
    model = ScriptedModel([call("c1")], DONE)
    events = await events_of(LoopAgent(model, [seat], hooks), desk=memory_desk(journal, approver))
    assert events == [StepStart(), call("c1"), expected, StepStart(), TextDelta("Done."), Finish()]
    assert journal.log == (["begin c1", "end c1"] if ran else [])
    answered = model.seen[1][-1].parts[1]
    assert isinstance(answered, ToolPart)
    assert answered.is_answered


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (ToolCall("c1", "fly", {}), "there is no tool 'fly'; the tools are: book"),
        (ToolCall("c1", "book", {"seat": 1}), "bad arguments for book: Expected `str`, got `int` - at `$.seat`"),
        (ToolCall("c1", "book", '{"seat": "1'), 'the arguments of book are not a JSON object: \'{"seat": "1\''),
    ],
)
async def test_a_call_that_cannot_be_run_is_told_to_the_model(sent: ToolCall, said: str, book: Tool) -> None:
    journal = MemoryJournal()
    events = await events_of(LoopAgent(ScriptedModel([sent], DONE), [book]), desk=memory_desk(journal))
    assert events[2] == ToolError("c1", said)
    assert events[-1] == Finish()
    assert journal.log == []


async def test_a_hook_after_a_tool_sees_what_came_of_it_and_may_change_it(book: Tool) -> None:
    seen: list[Ran] = []

    async def watch(call: ToolCall, ran: Ran) -> Ran | None:
        seen.append(ran)
        return None

    async def blur(call: ToolCall, ran: Ran) -> Ran | None:
        return ToolResult(call.call_id, "something")

    journal = MemoryJournal()
    hooks = Hooks(after=(watch, blur))
    events = await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), [book], hooks), desk=memory_desk(journal))
    assert seen == [ToolResult("c1", {"booked": "a"})]
    assert events[2] == ToolResult("c1", "something")


async def test_a_hook_that_fails_after_a_tool_makes_an_error_that_says_the_tool_ran(book: Tool) -> None:
    async def fail(call: ToolCall, ran: Ran) -> Ran | None:
        raise OSError("log full")

    events = await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), [book], Hooks(after=(fail,))))
    assert events[2] == ToolError("c1", "book ran, but a hook after it failed: OSError: log full")


async def test_the_intent_is_stored_before_the_tool_runs_and_the_result_before_it_is_told() -> None:
    journal = MemoryJournal()

    async def book() -> str:
        journal.log.append("run")
        return "ok"

    agent = LoopAgent(ScriptedModel([call("c1")], DONE), [tool(book)])
    async for event in agent.answer(prompt_of("go"), memory_desk(journal)):
        if isinstance(event, ToolResult):
            journal.log.append("told")
    assert journal.log == ["begin c1", "run", "end c1", "told"]


async def test_without_a_stored_intent_nothing_runs(book: Tool, booked: list[str]) -> None:
    class Down(MemoryJournal):
        async def begin(self, call: ToolCall, *, repeatable: bool) -> ToolRun | None:
            raise StoreUnavailable("the disk is gone")

    with pytest.raises(StoreUnavailable):
        await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), [book]), desk=memory_desk(Down()))
    assert booked == []


async def test_calls_of_one_round_run_together_and_are_told_in_order() -> None:
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


async def test_no_more_tools_run_at_once_than_the_limit_says() -> None:
    running, most = 0, 0

    async def book() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    model = ScriptedModel([call(f"c{n}") for n in range(10)], DONE)
    await events_of(LoopAgent(model, [tool(book)], limits=Limits(parallel=3)))
    assert most == 3


async def test_people_are_asked_about_one_call_at_a_time_in_order() -> None:
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
    await events_of(LoopAgent(model, [seat]), desk=memory_desk(approver=OneAtATime()))
    assert asked == ["c1", "c2", "c3"]


async def test_a_turn_that_waits_for_approval_ends_with_the_request(book: Tool, booked: list[str]) -> None:
    seat = Tool.from_function(book.function, needs_approval=True)

    async def look() -> str:
        return "free"

    model = ScriptedModel([call("c1"), call("c2", "look")])
    events = await events_of(LoopAgent(model, [seat, tool(look)]), desk=memory_desk(approver=Standing("defer")))
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
async def test_an_approval_that_has_come_settles_the_call_before_the_next_round(
    approval: Approval, expected: Event, book: Tool
) -> None:
    seat = Tool.from_function(book.function, needs_approval=True)
    model = ScriptedModel(DONE)
    agent = LoopAgent(model, [seat])
    events = await events_of(agent, waiting_for(approval), memory_desk(approver=Standing("defer")))
    assert events == [call("c1", seat="9"), expected, StepStart(), TextDelta("Done."), Finish()]
    shown = model.seen[0][-1]
    assert shown.role == "assistant"
    assert shown.parts[0] == TextPart("I book.")
    assert [part.call_id for part in shown.parts if isinstance(part, ToolPart)] == ["c1"]


async def test_an_answer_to_a_request_is_not_asked_for_again_but_a_missing_one_is(
    book: Tool, booked: list[str]
) -> None:
    seat = Tool.from_function(book.function, needs_approval=True)
    events = await events_of(
        LoopAgent(ScriptedModel(DONE), [seat]), waiting_for(Approval("a1")), memory_desk(approver=Standing("defer"))
    )
    assert isinstance(events[1], ApprovalRequest)
    assert booked == []


@pytest.mark.req("S1-13")
async def test_an_unrepeatable_tool_that_was_cut_off_is_not_run_again(book: Tool, booked: list[str]) -> None:
    journal = MemoryJournal()
    await journal.begin(call("c1"), repeatable=False)
    events = await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), [book]), desk=memory_desk(journal))
    assert events[2] == ToolError(
        "c1",
        "book was started earlier in this turn and cut off; whether it took effect is not known. "
        "It cannot be repeated safely, so it was not run again.",
    )
    assert booked == []


async def test_a_repeatable_tool_that_was_cut_off_is_run_again(book: Tool, booked: list[str]) -> None:
    journal = MemoryJournal()
    await journal.begin(call("c1"), repeatable=True)
    again = Tool.from_function(book.function, repeatable=True)
    events = await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), [again]), desk=memory_desk(journal))
    assert events[2] == ToolResult("c1", {"booked": "a"})
    assert booked == ["a"]


async def test_what_was_repeatable_when_it_began_counts(book: Tool, booked: list[str]) -> None:
    journal = MemoryJournal()
    await journal.begin(call("c1"), repeatable=False)
    again = Tool.from_function(book.function, repeatable=True)
    await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), [again]), desk=memory_desk(journal))
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
    async with aclosing(agent.answer(prompt_of("go"), memory_desk(journal))) as answer:
        while not isinstance(await anext(answer), ToolResult):
            pass
    again = await events_of(LoopAgent(ScriptedModel(calls, DONE), [tool(book)]), desk=memory_desk(journal))
    assert again[3] == ToolResult("c1", "first")
    assert isinstance(again[4], ToolError)
    assert again[4].call_id == "c2"
    assert ran == ["1", "2"]


async def test_a_recorded_error_is_told_again_as_an_error(booked: list[str]) -> None:
    journal = MemoryJournal()
    agent = [Tool.from_function(explode, name="book")]
    first = await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), agent), desk=memory_desk(journal))
    again = await events_of(LoopAgent(ScriptedModel([call("c1")], DONE), agent), desk=memory_desk(journal))
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


async def test_an_agent_that_never_stops_calling_is_stopped_with_all_calls_answered(book: Tool) -> None:
    model = ScriptedModel(*[[call(f"c{n}")] for n in range(5)])
    shown, error = await shown_until_failure(LoopAgent(model, [book], limits=Limits(rounds=3)))
    assert "called tools for 3 rounds" in error
    assert [type(event) for event in shown] == [StepStart, ToolCall, ToolResult] * 3


async def test_a_model_that_hangs_is_stopped_when_the_time_is_over() -> None:
    model = ScriptedModel([TextDelta("Let me see"), asyncio.Event().wait])
    with pytest.raises(AgentFailed, match=r"took longer than 0\.02 s"):
        await events_of(LoopAgent(model, limits=Limits(seconds=0.02)))


async def test_a_tool_that_hangs_is_answered_and_then_the_time_is_over() -> None:
    async def book() -> None:
        await asyncio.Event().wait()

    agent = LoopAgent(ScriptedModel([call("c1")], DONE), [tool(book)], limits=Limits(seconds=0.02))
    shown, error = await shown_until_failure(agent)
    assert error == "The answer took longer than 0.02 s and was stopped."
    assert isinstance(shown[2], ToolError)
    assert "was stopped" in shown[2].error


async def test_the_time_stands_still_while_a_person_thinks(book: Tool) -> None:
    class Slow:
        async def decide(self, call: ToolCall) -> Verdict:
            await asyncio.sleep(0.1)
            return Verdict("allow")

    seat = Tool.from_function(book.function, needs_approval=True)
    agent = LoopAgent(ScriptedModel([call("c1")], DONE), [seat], limits=Limits(seconds=0.08))
    assert (await events_of(agent, desk=memory_desk(approver=Slow())))[-1] == Finish()


async def test_a_reply_that_never_ends_is_stopped_before_it_cannot_be_stored() -> None:
    model = ScriptedModel([TextDelta("x" * 400), TextDelta("é" * 400), Finish()])
    shown, error = await shown_until_failure(LoopAgent(model, limits=Limits(reply_bytes=1000)))
    assert "grew past 1,000 bytes" in error
    assert shown == [StepStart(), TextDelta("x" * 400)]


async def test_a_result_with_no_room_left_becomes_an_error_not_silence() -> None:
    async def book() -> str:
        return "x" * 600

    model = ScriptedModel([call("c1"), call("c2")], DONE)
    shown = await events_of(LoopAgent(model, [tool(book)], limits=Limits(reply_bytes=1_000)))
    assert isinstance(shown[3], ToolResult)
    assert shown[4] == ToolError("c2", "the result found no room in this reply")


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

    answer = LoopAgent(Watched(), [tool(book)]).answer(prompt_of("go"), memory_desk())
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


async def _read(answer: Any) -> None:
    async for _ in answer:
        pass


async def test_two_tools_with_one_name_are_refused(book: Tool) -> None:
    with pytest.raises(InvalidInput, match="the same name: book, book"):
        LoopAgent(ScriptedModel(), [book, book])


async def test_closing_an_agent_closes_its_model() -> None:
    model = ScriptedModel()
    await LoopAgent(model).close()
    assert model.closed


async def test_an_approver_remembers_always_and_never() -> None:
    asked: list[str] = []
    answers = {"book": "always", "burn": "never", "look": "allow", "wait": "defer", "buy": "deny"}

    async def ask(call: ToolCall) -> Any:
        asked.append(call.name)
        return answers[call.name]

    approver = Remembering(ask)
    for _ in range(2):
        verdicts = {name: (await approver.decide(call("c", name))).answer for name in answers}
        assert verdicts == {"book": "allow", "burn": "deny", "look": "allow", "wait": "defer", "buy": "deny"}
    assert asked == ["book", "burn", "look", "wait", "buy", "look", "wait", "buy"]
    later = Remembering(ask, allowed=approver.allowed, denied=approver.denied)
    assert (await later.decide(call("c", "book"))).answer == "allow"
    assert len(asked) == 8
