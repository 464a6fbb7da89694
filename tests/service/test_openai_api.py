"""OpenAI's API, driven by the official `openai` client: models, chat completions and responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.conftest import SERVICE, authenticate_by_header, held
from tests.service.running_service import Client, serving
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.events import ReasoningDelta, ToolCall, ToolResult
from threadline.core.parts import FilePart, ToolPart
from threadline.settings import Settings
from threadline.testing.postgres import shared_server

pytestmark = pytest.mark.req("G-04")
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


@pytest.fixture(params=["memory", "postgres"])
async def threadline(request: pytest.FixtureRequest, scripted_agent: ScriptedAgent) -> AsyncIterator[Threadline]:
    database = ":memory:" if request.param == "memory" else await shared_server().create_database()
    settings = Settings(database=database, agent="scripted", service=SERVICE)
    async with open_threadline(settings=settings, agents={"scripted": make_agent(scripted_agent)}) as opened:
        yield opened


def sdk(client: Client, user: str | None = None) -> openai.AsyncOpenAI:
    headers = {} if user is None else {"test-user": user}
    url = f"{client.url}/v1"
    return openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0, timeout=30, default_headers=headers)


@pytest.fixture
async def api(client: Client) -> AsyncIterator[openai.AsyncOpenAI]:
    async with sdk(client) as made:
        yield made


async def test_models_are_agents(client: Client, api: openai.AsyncOpenAI) -> None:
    found = [model.id async for model in api.models.list()]
    assert "scripted" in found


async def test_a_chat_completion_stores_nothing(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    made = await api.chat.completions.create(
        model="scripted", messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    )
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("Hello, you.", "stop")
    assert made.usage is not None
    assert made.usage.total_tokens == 12
    assert scripted_agent.prompt_texts() == [("system", "Be brief."), ("user", "Hi")]
    assert (await client.http.get("/api/v1/ai/threads")).json()["threads"] == []


async def test_a_chat_completion_streams(client: Client, api: openai.AsyncOpenAI) -> None:
    stream = await api.chat.completions.create(
        model="scripted",
        messages=[{"role": "user", "content": "Hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello, you."
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 10


async def test_a_response_is_created_and_read_again(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    made = await api.responses.create(model="scripted", input="Hi", instructions="Be brief.", metadata={"order": "7"})
    assert (made.output_text, made.status, made.metadata) == ("Hello, you.", "completed", {"order": "7"})
    assert made.usage is not None
    assert made.usage.total_tokens == 12
    assert await api.responses.retrieve(made.id) == made
    items = await api.responses.input_items.list(made.id)
    assert [item.to_dict()["content"] for item in items.data] == [[{"type": "input_text", "text": "Hi"}]]
    assert scripted_agent.prompt_texts() == [("system", "Be brief."), ("user", "Hi")]
    await api.responses.create(model="scripted", input="More", previous_response_id=made.id)
    assert [text for _, text in scripted_agent.prompt_texts()] == ["Hi", "Hello, you.", "More"]


async def test_the_format_of_the_output_is_passed_on(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    wanted: Any = {"format": {"type": "json_schema", "name": "city", "schema": {"type": "object"}, "strict": True}}
    made = await api.responses.create(model="scripted", input="Hi", text=wanted)
    schema = {"name": "city", "schema": {"type": "object"}, "strict": True}
    assert scripted_agent.prompts[-1].response_format == {"type": "json_schema", "json_schema": schema}
    assert made.text is not None
    assert made.text.to_dict()["format"] == wanted["format"]


async def test_stream_events_come_in_order_and_resume_after_a_number(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = [
        ReasoningDelta("Hm."),
        ToolCall("c1", "look", {"at": "map"}),
        ToolResult("c1", "far"),
        "No.",
    ]
    seen = [event async for event in await api.responses.create(model="scripted", input="Far?", stream=True)]
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert [event.type.removeprefix("response.") for event in seen] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.in_progress",
        "mcp_call.completed",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    last = seen[-1]
    assert last.type == "response.completed"
    streamed = [event.item.to_dict() for event in seen if event.type == "response.output_item.done"]
    assert streamed == [item.to_dict() for item in last.response.output]
    rest = await api.responses.retrieve(last.response.id, stream=True, starting_after=9)
    assert [event.to_dict() async for event in rest] == [event.to_dict() for event in seen[10:]]


async def test_a_background_response_is_polled_and_cancelled(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    async with held(scripted_agent):
        made = await api.responses.create(model="scripted", input="Hi", background=True)
        assert made.status in ("queued", "in_progress")
        await asyncio.wait_for(scripted_agent.waiting.wait(), 30)
        assert (await api.responses.retrieve(made.id)).status == "in_progress"
        assert (await api.responses.cancel(made.id)).status == "cancelled"
    assert (await api.responses.retrieve(made.id)).output_text == "Hello, "


async def test_two_requests_that_continue_one_response_are_on_the_thread_and_on_a_branch(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    first = await api.responses.create(model="scripted", input="One")
    both = await asyncio.gather(
        *(api.responses.create(model="scripted", input=text, previous_response_id=first.id) for text in ("Two", "2"))
    )
    threads = {made.conversation.id for made in (first, *both) if made.conversation is not None}
    assert [made.status for made in both] == ["completed", "completed"]
    assert len(threads) == 2
    for turn in (-1, -2):
        assert [text for _, text in scripted_agent.prompt_texts(turn)[:2]] == ["One", "Hello, you."]
        assert len(scripted_agent.prompts[turn].messages) == 3


async def test_a_conversation_is_a_thread(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    await client.ask("Hi", "lisbon")
    thread = (await client.http.get("/api/v1/ai/threads/lisbon")).json()
    made = await api.responses.create(model="scripted", input="More", conversation=f"conv_{thread['id']}")
    assert made.conversation is not None
    assert made.conversation.id == f"conv_{thread['id']}"
    assert len(await client.messages("lisbon")) == 4


async def test_a_function_call_is_left_to_the_caller_and_its_output_continues_the_reply(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = [ToolCall("c1", "weather", {"city": "Porto"})]
    asked = await api.responses.create(model="scripted", input="Rain?", tools=[WEATHER])
    [call] = asked.output
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("weather", '{"city":"Porto"}')
    scripted_agent.lines = ["It rains."]
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    told = await api.responses.create(model="scripted", input=[output], previous_response_id=asked.id)
    assert told.output_text == "It rains."
    [part] = scripted_agent.prompts[-1].messages[-1].parts
    assert isinstance(part, ToolPart)
    assert part.output_value() == "rain"
    output["call_id"] = "c2"
    with pytest.raises(openai.BadRequestError):
        await api.responses.create(model="scripted", input=[output], previous_response_id=told.id)


async def test_an_image_and_earlier_messages_are_shown_to_the_agent(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    content: Any = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": PIXEL}]
    said: Any = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    await api.responses.create(model="scripted", input=[*said, {"role": "user", "content": content}])
    assert [role for role, _ in scripted_agent.prompt_texts()] == ["user", "assistant", "user"]
    assert FilePart("image/gif", PIXEL) in scripted_agent.prompts[-1].messages[-1].parts


async def test_a_response_that_is_not_stored_leaves_nothing(client: Client, api: openai.AsyncOpenAI) -> None:
    made = await api.responses.create(model="scripted", input="Hi", store=False)
    assert (made.output_text, made.status) == ("Hello, you.", "completed")
    assert (await client.http.get("/api/v1/ai/threads")).json()["threads"] == []
    with pytest.raises(openai.NotFoundError):
        await api.responses.retrieve(made.id)


async def test_a_repeated_request_with_the_same_key_is_the_same_response(
    client: Client, api: openai.AsyncOpenAI
) -> None:
    key = {"Idempotency-Key": "order-7"}
    first = await api.responses.create(model="scripted", input="Hi", extra_headers=key)
    assert await api.responses.create(model="scripted", input="Hi", extra_headers=key) == first
    with pytest.raises(openai.UnprocessableEntityError):
        await api.responses.create(model="scripted", input="Else", extra_headers=key)
    key = {"Idempotency-Key": "order-8"}
    more = {"model": "scripted", "input": "More", "previous_response_id": first.id, "extra_headers": key}
    second: Any = await api.responses.create(**more)  # type: ignore[call-overload]  # a dict has no literal keys
    assert await api.responses.create(**more) == second  # type: ignore[call-overload]  # a dict has no literal keys


async def test_errors_raise_the_right_class(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await api.responses.create(model="nobody", input="Hi")
    assert (unknown.value.code, unknown.value.type) == ("not_found", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as empty:
        await api.responses.create(model="scripted", input=[])
    assert (empty.value.code, empty.value.param) == ("invalid_input", "input")
    scripted_agent.lines = [RuntimeError("no")]
    failed = await api.responses.create(model="scripted", input="Hi")
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.message == "the agent failed"


async def test_the_response_of_another_user_does_not_exist(threadline: Threadline) -> None:
    async with serving(threadline, authenticate=authenticate_by_header) as client:
        alice, other = sdk(client, "alice"), sdk(client, "bob")
        made = await alice.responses.create(model="scripted", input="Hi")
        with pytest.raises(openai.NotFoundError):
            await other.responses.create(model="scripted", input="And?", previous_response_id=made.id)
        with pytest.raises(openai.NotFoundError):
            await other.responses.retrieve(made.id)
        assert made.conversation is not None
        with pytest.raises(openai.NotFoundError):
            await other.responses.create(model="scripted", input="And?", conversation=made.conversation.id)
        await alice.close()
        await other.close()
