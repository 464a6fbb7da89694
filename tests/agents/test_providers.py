"""The OpenAI and Anthropic adapters against a server with both APIs: requests and events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.agents.agent_calls import collect, text_of
from tests.agents.mock_provider import MockProvider
from threadline.agents.anthropic import AnthropicModel
from threadline.agents.loop import LoopAgent
from threadline.agents.models import Model, RoundSettings
from threadline.agents.openai import OpenAIModel
from threadline.agents.tools import Tool, tool
from threadline.core.events import (
    Event,
    Finish,
    ReasoningDelta,
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
from threadline.core.prompts import Prompt, say
from threadline.net.retry import Retrier, RetryPolicy
from threadline.testing.agents import memory_services, prompt_of

PROVIDERS = pytest.mark.parametrize("provider", ["openai", "anthropic"])


class Sleeper:
    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.fixture
def slept() -> Sleeper:
    return Sleeper()


@pytest.fixture
async def model(provider: str, aimock: MockProvider, slept: Sleeper) -> AsyncIterator[Model]:
    retrier = Retrier(RetryPolicy(attempts=3), sleep=slept, jitter=lambda: 1.0)
    made: Model
    if provider == "openai":
        made = OpenAIModel("gpt-5", api_key="k", base_url=f"{aimock.url}/v1", retrier=retrier)
    else:
        made = AnthropicModel("claude-test", api_key="k", base_url=aimock.url, retrier=retrier)
    yield made
    await made.close()


async def weather(city: str) -> str:
    """The weather in a city."""
    if city == "Oz":
        raise LookupError("no such city")
    return "sunny"


async def events_of(model: Model, prompt: Prompt, *tools: Tool) -> list[Event]:
    return [event async for event in LoopAgent(model, tools).run(prompt, memory_services())]


def ask(model: Model, words: str) -> AsyncIterator[Event]:
    return model.round([say("user", words)], (), RoundSettings())


@PROVIDERS
async def test_text_is_streamed_followed_by_usage_and_finish(model: Model) -> None:
    events = await events_of(model, prompt_of("hello", system="You are kind."))
    assert events == [
        StepStart(),
        TextDelta("Hello, how are you t"),
        TextDelta("oday?"),
        Usage(input_tokens=11, output_tokens=7),
        Finish("stop"),
    ]


@PROVIDERS
async def test_tools_are_offered_and_called_concurrently(model: Model, aimock: MockProvider) -> None:
    events = await events_of(model, prompt_of("weather?"), tool(weather))
    assert [event for event in events if not isinstance(event, Usage)] == [
        StepStart(),
        TextDelta("Let me look."),
        ToolInputStart("call_w1", "weather"),
        ToolInputDelta("call_w1", '{"city":"Bern"}'),
        *([ToolCall("call_w1", "weather", {"city": "Bern"})] if isinstance(model, AnthropicModel) else []),
        ToolInputStart("call_w2", "weather"),
        ToolInputDelta("call_w2", '{"city":"Oz"}'),
        *([] if isinstance(model, AnthropicModel) else [ToolCall("call_w1", "weather", {"city": "Bern"})]),
        ToolCall("call_w2", "weather", {"city": "Oz"}),
        ToolResult("call_w1", "sunny"),
        ToolError("call_w2", "LookupError: no such city"),
        StepStart(),
        TextDelta("Sunny in Bern; I do "),
        TextDelta("not know Oz."),
        Finish("stop"),
    ]
    offered = aimock.last_request()["tools"][0]["function"]
    assert (offered["name"], offered["description"]) == ("weather", "The weather in a city.")
    assert offered["parameters"]["required"] == ["city"]


@PROVIDERS
async def test_reasoning_is_separate_from_text(model: Model) -> None:
    events = await events_of(model, prompt_of("think"))
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert (thought, text_of(events)) == ("Let me think about it.", "42.")


@PROVIDERS
async def test_the_finish_reason_is_kept(model: Model) -> None:
    assert (await events_of(model, prompt_of("long")))[-1] == Finish("length")


@PROVIDERS
async def test_the_threads_model_overrides_the_agents(model: Model, aimock: MockProvider) -> None:
    await events_of(model, prompt_of("long", model="other-model"))
    assert aimock.last_request()["model"] == "other-model"


@PROVIDERS
async def test_a_truncated_reply_fails_and_is_not_retried(model: Model, slept: Sleeper) -> None:
    shown, error = await collect(ask(model, "cut off"))
    assert text_of(shown).startswith("This answer is cut")
    assert error == "the model server could not be reached or closed the connection"
    assert slept.waits == []


@PROVIDERS
async def test_a_rate_limited_request_waits_as_requested_and_reports_it(
    model: Model, slept: Sleeper, provider: str
) -> None:
    events, _ = await collect(ask(model, f"limited by {provider}"))
    assert slept.waits == [7.0]
    assert isinstance(events[0], Status)
    assert "is limiting requests (HTTP 429): slow down; retrying in 7 s" in events[0].text
    assert text_of(events) == "Now I have time."


@PROVIDERS
async def test_a_rejected_key_is_reported_without_quoting_it(model: Model, slept: Sleeper) -> None:
    _, error = await collect(ask(model, "refused"))
    assert error == "the model server rejected the key (HTTP 401): check the agent's key and its permissions"
    assert slept.waits == []


@PROVIDERS
async def test_server_errors_are_retried_with_growing_delays(model: Model, slept: Sleeper) -> None:
    shown, error = await collect(ask(model, "broken"))
    assert error == "the model server had an internal error (HTTP 500): it burns"
    assert slept.waits == [1.0, 2.0]
    assert all(isinstance(event, Status) for event in shown)


@PROVIDERS
async def test_a_rejected_prompt_is_reported_with_the_providers_reason(model: Model, slept: Sleeper) -> None:
    _, error = await collect(ask(model, "too much"))
    assert error == "the model server rejected the request (HTTP 400): the prompt is too long: 9 tokens > 8"
    assert slept.waits == []
