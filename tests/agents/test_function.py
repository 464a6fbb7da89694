"""Functions as agents."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from threadline.agents.function import FunctionAgent, as_agent
from threadline.agents.limits import RunLimits
from threadline.agents.rehearsal import RehearsalAgent
from threadline.bootstrap import open as open_threadline
from threadline.core.errors import AgentFailed, InvalidInput
from threadline.core.events import Event, Failure, Finish, TextDelta, ToolCall, ToolResult, Usage
from threadline.core.parts import ToolPart
from threadline.core.prompts import Prompt
from threadline.ports import AgentServices
from threadline.testing.agents import memory_services, prompt_of


async def said(function: Any, prompt: Prompt | None = None) -> list[Event]:
    return [event async for event in as_agent(function).run(prompt or prompt_of("hi"), memory_services())]


async def test_an_async_generator_streams_text_and_events() -> None:
    async def echo(prompt: Prompt) -> AsyncIterator[str | Event]:
        yield "You said "
        yield f"{len(prompt.messages)} things."
        yield Usage(1, 2)
        yield Finish("length")

    assert await said(echo, prompt_of("a", "b", "c")) == [
        TextDelta("You said "),
        TextDelta("3 things."),
        Usage(1, 2),
        Finish("length"),
    ]


async def test_an_async_function_returns_the_reply() -> None:
    async def echo(text: str) -> str:
        return text.upper()

    assert await said(echo, prompt_of("first", "ok", "second")) == [TextDelta("SECOND"), Finish()]


async def test_a_plain_function_runs_in_a_thread() -> None:
    def where(prompt: Prompt) -> str:
        return threading.current_thread().name

    assert await said(where) == [TextDelta("threadline-tool"), Finish()]


async def test_a_second_parameter_gets_the_services() -> None:
    async def look(prompt: Prompt, services: AgentServices, tone: str = "plain") -> str:
        return type(services.journal).__name__

    assert await said(look) == [TextDelta("MemoryJournal"), Finish()]


async def test_an_agent_object_is_used_unchanged() -> None:
    agent = RehearsalAgent()
    assert as_agent(agent) is agent


async def test_a_return_value_of_another_type_is_named() -> None:
    async def odd(text: str) -> Any:
        return {"a": 1}

    with pytest.raises(AgentFailed, match="odd must return text or events, got dict"):
        await said(odd)


async def test_an_exception_fails_the_run_with_its_message() -> None:
    async def failing(text: str) -> Any:
        yield "I begin"
        yield Failure("no luck")

    def raising(text: str) -> str:
        raise LookupError("nothing there")

    with pytest.raises(AgentFailed, match="no luck"):
        await said(failing)
    with pytest.raises(AgentFailed, match="LookupError: nothing there"):
        await said(raising)


async def test_the_reply_of_a_function_is_limited() -> None:
    async def endless(text: str) -> Any:
        while True:
            yield "x" * 100

    agent = FunctionAgent(endless, limits=RunLimits(reply_bytes=1_000))
    with pytest.raises(AgentFailed, match="grew beyond 1,000 bytes"):
        [event async for event in agent.run(prompt_of("hi"), memory_services())]


def test_a_value_that_cannot_be_an_agent_is_refused() -> None:
    def plain_generator(text: str) -> Iterator[str]:
        yield text

    def takes_nothing() -> str:
        return ""

    with pytest.raises(InvalidInput, match="must be an async generator"):
        as_agent(plain_generator)
    with pytest.raises(InvalidInput, match="must take the prompt"):
        as_agent(takes_nothing)
    with pytest.raises(InvalidInput, match="got a int"):
        as_agent(5)


async def test_a_tool_output_that_json_cannot_express_is_repaired_and_does_not_fail_the_turn() -> None:
    async def looks(prompt: Prompt) -> AsyncIterator[Event]:
        yield ToolCall("1", "read", {"path": "a"})
        yield ToolResult("1", {"content": "a\x00b", "size": float("nan")})
        yield TextDelta("Read.")

    async with open_threadline(":memory:", agents={"looks": looks}) as threadline:
        thread = await threadline.as_user("ada").create_thread(agent_id="looks")
        reply = await thread.ask("Read it.")
        (tool,) = [part for part in reply.parts if isinstance(part, ToolPart)]
        assert (await thread.turns())[0].status == "executed"
    assert tool.output_value() == {"content": "a\ufffdb", "size": "nan"}
    assert reply.text == "Read."
