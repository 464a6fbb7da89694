"""Runs in the environment of the frameworks: message histories of Pydantic AI, on the database that
FRAMEWORK_TEST_DATABASE names. Its packages on PyPI have no tests, so its own serializer is the oracle."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, ImageUrl, ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

import threadline
from threadline.adapters.pydantic_ai import load_messages, save_messages
from threadline.core.parts import ToolPart

DATABASE = os.environ["FRAMEWORK_TEST_DATABASE"]
SECRET = "sk-proj-" + "Ab3dE5fG7hJ9kL1m" * 3

HISTORY: list[ModelMessage] = [
    ModelRequest(
        parts=[
            SystemPromptPart("Be brief."),
            UserPromptPart(
                [
                    f"Key {SECRET}",
                    ImageUrl("https://example.org/a.png"),
                    BinaryContent(b"\x89P\xff", media_type="image/png"),
                ]
            ),
        ],
        instructions="Never tell.",
        metadata={"token": "hello world"},
    ),
    ModelResponse(
        parts=[
            ThinkingPart("I look.", signature="ErUB" * 40, provider_name="anthropic", id="rs_1"),
            NativeToolCallPart("web_search", {"q": "news"}, "n1", provider_name="anthropic"),
            NativeToolReturnPart("web_search", [{"url": "https://example.org"}], "n1", provider_name="anthropic"),
            ToolCallPart("look", f'{{"key": "{SECRET}"}}', "c1"),
            ToolCallPart("draw", {"n": 10**30}, "c2"),
            ToolCallPart("odd", "{no json", "c3"),
        ],
        usage=RequestUsage(input_tokens=3, output_tokens=4),
        model_name="m",
        provider_details={"password": "hunter2"},
    ),
    ModelRequest(
        parts=[
            ToolReturnPart("look", {"found": [1, None]}, "c1", metadata={"app": "only"}),
            ToolReturnPart("draw", "no paint", "c2", outcome="failed"),
            ToolReturnPart("odd", "NUL \x00 and \U0001f600", "c3"),
        ]
    ),
    ModelResponse(parts=[TextPart("Found."), TextPart("x" * 2_000_000)]),
    ModelResponse(parts=[]),
    ModelRequest(parts=[UserPromptPart("")]),
]


@pytest.fixture
async def thread() -> AsyncIterator[threadline.GatewayThread]:
    async with threadline.open(DATABASE) as tl:
        yield await tl.as_user(uuid.uuid4().hex).create_thread()


def dumped(messages: list[ModelMessage]) -> Any:
    return ModelMessagesTypeAdapter.dump_python(messages, mode="json")


async def test_messages_are_read_back_equal_whatever_they_are(thread: threadline.GatewayThread) -> None:
    for number in range(len(HISTORY)):
        await save_messages(thread, HISTORY[number : number + 1])
    assert dumped(await load_messages(thread)) == dumped(HISTORY)
    own = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(HISTORY))
    assert await load_messages(thread) == own


async def test_calls_and_results_are_one_part_and_secrets_are_masked(thread: threadline.GatewayThread) -> None:
    await save_messages(thread, HISTORY)
    messages = await thread.messages()
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    calls = {part.name: part for part in messages[1].parts if isinstance(part, ToolPart)}
    assert {name: call.state for name, call in calls.items()} == {
        "web_search": "output-available",
        "look": "output-available",
        "draw": "output-error",
        "odd": "output-available",
    }
    assert messages[1].text.startswith("Found.")
    assert SECRET.encode() not in b"".join(message.parts_json for message in messages)
    assert dumped(await load_messages(thread)) == dumped(HISTORY)


async def test_a_repetition_stores_nothing(thread: threadline.GatewayThread) -> None:
    for _ in range(3):
        await save_messages(thread, HISTORY[:3])
        await save_messages(thread, HISTORY[3:], key="second")
    assert dumped(await load_messages(thread)) == dumped(HISTORY)
    with pytest.raises(threadline.DuplicateId):
        await save_messages(thread, HISTORY[:1], key="second")


async def test_an_agent_continues_what_it_and_others_said(thread: threadline.GatewayThread) -> None:
    seen: list[list[ModelMessage]] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(messages)
        return ModelResponse(parts=[TextPart(f"{len(messages)} messages")])

    agent = Agent(FunctionModel(model))
    result = await agent.run("one", message_history=await load_messages(thread))
    await save_messages(thread, result.new_messages())
    open_call = threadline.tool_part("look", "c9", {"q": 1})
    done = threadline.tool_part("look", "c8", {"q": 1}, output="found")
    await thread.append("From the page", threadline.assistant([done, threadline.TextPart("Done."), open_call]))
    before = await load_messages(thread)
    result = await agent.run("two", message_history=before)
    await save_messages(thread, result.new_messages())
    assert [message.text for message in await thread.messages() if message.role == "user"] == [
        "one",
        "From the page",
        "two",
    ]
    returned = [part.content for message in seen[-1] for part in message.parts if part.part_kind == "tool-return"]
    assert returned[0] == "found"
    assert len(returned) == 2
    await thread.undo()
    assert dumped(await load_messages(thread)) == dumped(before)


async def test_runs_with_tools_and_retries_are_read_back_equal(thread: threadline.GatewayThread) -> None:
    agent = Agent(TestModel())
    tried: list[str] = []

    @agent.tool_plain
    def look(place: str) -> str:
        tried.append(place)
        if len(tried) == 1:
            raise ModelRetry(f"not {place}")
        return "found"

    everything: list[ModelMessage] = []
    for question in ("one", "two"):
        result = await agent.run(question, message_history=await load_messages(thread))
        await save_messages(thread, result.new_messages())
        everything = result.all_messages()
    assert await load_messages(thread) == everything


async def test_half_a_character_stops_no_agent(thread: threadline.GatewayThread) -> None:
    await save_messages(thread, [ModelRequest(parts=[UserPromptPart("half \ud83d")])])
    (request,) = await load_messages(thread)
    assert [part.content for part in request.parts if isinstance(part, UserPromptPart)] == ["half \ufffd"]


async def test_what_is_no_message_is_refused(thread: threadline.GatewayThread) -> None:
    bad: Any = ["text"]
    with pytest.raises(threadline.InvalidInput, match="got str"):
        await save_messages(thread, bad)
