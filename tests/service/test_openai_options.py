"""What a request asks of the model, what is not stored, and chat completions on a thread, by the official client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pydantic
import pytest

from tests.agents.stub_model import stub_model
from tests.scripted_agent import ScriptedAgent
from tests.service.running_service import Client
from tests.service.test_openai_api import WEATHER, sdk, threadline
from tests.service.test_openai_conversations import output, user
from threadline.agents.loop import LoopAgent
from threadline.agents.openai import OpenAIModel
from threadline.agents.tools import tool
from threadline.core.events import Finish, ToolCall
from threadline.core.model_options import ModelOptions
from threadline.testing.agents import memory_services, prompt_of

pytestmark = pytest.mark.req("G-04")
__all__ = ["threadline"]
CHAT_WEATHER: Any = {
    "type": "function",
    "function": {name: value for name, value in WEATHER.items() if name not in ("type", "strict")},
}


class City(pydantic.BaseModel):
    name: str


@pytest.fixture
async def api(client: Client) -> AsyncIterator[openai.AsyncOpenAI]:
    async with sdk(client) as made:
        yield made


async def test_settings_of_the_model_are_passed_on(api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent) -> None:
    made = await api.responses.create(
        model="scripted",
        input="Hi",
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=100,
        tool_choice={"type": "function", "name": "weather"},
        parallel_tool_calls=False,
        reasoning={"effort": "low"},
        tools=[WEATHER],
    )
    wanted = ModelOptions(0.5, 0.9, 100, "tool:weather", False, "low")
    assert scripted_agent.prompts[-1].model_options == wanted
    assert (made.temperature, made.top_p, made.max_output_tokens, made.parallel_tool_calls) == (0.5, 0.9, 100, False)
    assert made.to_dict()["tool_choice"] == {"type": "function", "name": "weather"}
    await api.chat.completions.create(
        model="scripted", messages=[user("Hi")], temperature=0.5, max_completion_tokens=9, tool_choice="none"
    )
    assert scripted_agent.prompts[-1].model_options == ModelOptions(0.5, None, 9, "none")


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"include": ["everything"]}, "include"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"store": False, "background": True}, "store"),
        ({"input": [{"type": "function_call_output", "call_id": "c1", "output": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f1"}]}]}, None),
        ({"input": [{"type": "computer_call", "id": "1"}]}, "input"),
    ],
)
async def test_what_cannot_be_done_is_refused(api: openai.AsyncOpenAI, wrong: Any, param: str | None) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await api.responses.create(**{"model": "scripted", "input": "Hi", **wrong})
    if param is not None:
        assert refused.value.param == param


async def test_a_model_gets_the_settings_and_a_forced_call_only_once() -> None:
    @tool
    async def clock() -> str:
        """The time."""
        return "late"

    asked = ModelOptions(temperature=0.2, max_output_tokens=50, tool_choice="required")
    with stub_model([("clock", {})], "It is late.") as stub:
        own = {"temperature": 1, "max_tokens": 5}
        agent = LoopAgent(OpenAIModel("stub", base_url=stub.url, options=own), [clock])
        prompt = prompt_of("Late?", model_options=asked)
        async for _ in agent.run(prompt, memory_services()):
            pass
        await agent.close()
    first, second = stub.requests
    assert (first["temperature"], first["max_tokens"], first["tool_choice"]) == (0.2, 50, "required")
    assert (second["temperature"], second.get("tool_choice")) == (0.2, None)


async def test_a_reply_that_was_cut_short_is_incomplete(api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = ["Once upon", Finish("length")]
    made = await api.responses.create(model="scripted", input="Tell me", max_output_tokens=2)
    assert made.status == "incomplete"
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"
    stream = await api.responses.create(model="scripted", input="Tell me", stream=True)
    assert [event.type async for event in stream][-1] == "response.incomplete"
    done = await api.chat.completions.create(model="scripted", messages=[user("Tell me")])
    assert done.choices[0].finish_reason == "length"


async def test_a_response_that_is_not_stored_streams(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = ["Hello", ToolCall("c1", "weather", {"city": "Porto"})]
    stream = await api.responses.create(model="scripted", input="Hi", store=False, stream=True, tools=[WEATHER])
    seen = [event async for event in stream]
    last = seen[-1]
    assert last.type == "response.completed"
    assert [item.type for item in last.response.output] == ["message", "function_call"]
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert (await client.http.get("/api/v1/ai/threads")).json()["threads"] == []
    scripted_agent.lines = ["It rains."]
    call: Any = last.response.output[1].to_dict()
    history: Any = [user("Rain?"), call, output(call["call_id"], "rain")]
    made = await api.responses.create(model="scripted", input=history, store=False)
    assert made.output_text == "It rains."
    scripted_agent.lines = [RuntimeError("no")]
    failed = await api.responses.create(model="scripted", input="Hi", store=False, stream=True)
    assert [event.type async for event in failed][-1] == "response.failed"


async def test_structured_outputs_are_parsed(api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = ['{"name": "Porto"}']
    made = await api.responses.parse(model="scripted", input="Where?", text_format=City)
    assert made.output_parsed == City(name="Porto")
    asked = scripted_agent.prompts[-1].response_format
    assert asked is not None
    assert asked["json_schema"]["name"] == "City"
    chat = await api.chat.completions.parse(model="scripted", messages=[user("Where?")], response_format=City)
    assert chat.choices[0].message.parsed == City(name="Porto")


async def test_a_chat_completion_on_a_thread_is_a_turn_of_it(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, user("Hi")]
    first = await api.chat.completions.create(model="scripted", messages=messages, metadata={"thread": "lisbon"})
    assert first.choices[0].message.content == "Hello, you."
    assert scripted_agent.prompt_texts() == [("system", "Be brief."), ("user", "Hi")]
    messages += [{"role": "assistant", "content": "Hello, you."}, user("Rain?")]
    scripted_agent.lines = [ToolCall("c1", "weather", {"city": "Porto"})]
    header = {"X-State-Key": "lisbon"}
    asked = await api.chat.completions.create(
        model="scripted", messages=messages, tools=[CHAT_WEATHER], extra_headers=header
    )
    assert asked.choices[0].finish_reason == "tool_calls"
    messages += [asked.choices[0].message.to_dict(), {"role": "tool", "tool_call_id": "c1", "content": "rain"}]
    scripted_agent.lines = ["It rains."]
    stream = await api.chat.completions.create(
        model="scripted",
        messages=messages,
        tools=[CHAT_WEATHER],
        extra_headers=header,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "It rains."
    assert chunks[-1].usage is not None
    assert [role for role, _ in await client.messages("lisbon")] == ["user", "assistant", "user", "assistant"]
