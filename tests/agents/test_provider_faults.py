"""Providers that hang, disconnect or send invalid data: one clear error each, and no second start of a reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.agents.agent_calls import collect
from tests.agents.fault_server import FaultServer, answer, faulty, hanging, silent, sse, streamed
from threadline.agents.anthropic import AnthropicModel
from threadline.agents.loop import LoopAgent
from threadline.agents.models import Model, RoundSettings
from threadline.agents.openai import OpenAIModel
from threadline.agents.tools import tool
from threadline.core.errors import SettingsInvalid
from threadline.core.event_fold import Fold
from threadline.core.events import Event, Finish, ReasoningEnd, Status, TextDelta, ToolCall, ToolError
from threadline.core.parts import TextPart, ToolPart
from threadline.core.prompts import Prompt, PromptMessage, say
from threadline.net.retry import Retrier, RetryPolicy
from threadline.testing.agents import memory_services, prompt_of

PROVIDERS = pytest.mark.parametrize("provider", ["openai", "anthropic"])


def openai_chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "1", "object": "chat.completion.chunk", "choices": [{"delta": delta, "finish_reason": finish}]}


OPENAI_TEXT = sse(openai_chunk(content="Once upon"))
OPENAI_END = sse(openai_chunk("stop"), "[DONE]")
ANTHROPIC_TEXT = sse(
    {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Once upon"}},
    named=True,
)
ANTHROPIC_END = sse(
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
    named=True,
)


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with faulty() as made:
        yield made


@pytest.fixture
def text(provider: str) -> list[bytes]:
    return OPENAI_TEXT if provider == "openai" else ANTHROPIC_TEXT


@pytest.fixture
def end(provider: str) -> list[bytes]:
    return OPENAI_END if provider == "openai" else ANTHROPIC_END


def made(provider: str, server: FaultServer, **options: Any) -> Model:
    async def sleep(seconds: float) -> None:
        pass

    options = {
        "api_key": "k",
        "base_url": server.url,
        "silence_seconds": 30,
        "retrier": Retrier(RetryPolicy(attempts=2), sleep=sleep, jitter=lambda: 1.0),
        **options,
    }
    return OpenAIModel("m", **options) if provider == "openai" else AnthropicModel("m", **options)


@pytest.fixture
async def model(provider: str, server: FaultServer) -> AsyncIterator[Model]:
    model = made(provider, server)
    yield model
    await model.close()


def ask(model: Model, *messages: PromptMessage) -> AsyncIterator[Event]:
    return model.round(messages or [say("user", "tell")], (), RoundSettings())


async def given_up(model: Model) -> tuple[list[Event], str | None]:
    heard = await collect(ask(model))
    await model.close()
    return heard


@PROVIDERS
async def test_a_provider_that_never_replies_times_out(provider: str, server: FaultServer) -> None:
    server.will(silent)
    heard, error = await given_up(made(provider, server, silence_seconds=0.2))
    assert error == "the model server did not reply in time"
    assert [type(event) for event in heard] == [Status]
    assert len(server.requests) == 2


@PROVIDERS
async def test_a_provider_that_stops_sending_times_out_and_its_text_is_kept(
    provider: str, server: FaultServer, text: list[bytes]
) -> None:
    server.will(hanging(*text))
    heard, error = await given_up(made(provider, server, silence_seconds=1))
    assert heard == [TextDelta("Once upon")]
    assert error == "the model server did not reply in time"
    assert len(server.requests) == 1


@PROVIDERS
async def test_a_connection_that_breaks_mid_stream_is_reported(
    model: Model, server: FaultServer, text: list[bytes]
) -> None:
    server.will(streamed(*text, whole=False))
    heard, error = await collect(ask(model))
    assert heard == [TextDelta("Once upon")]
    assert error == "the model server could not be reached or closed the connection"
    assert len(server.requests) == 1


@PROVIDERS
async def test_a_stream_without_a_finish_reason_is_an_error(
    model: Model, server: FaultServer, text: list[bytes]
) -> None:
    server.will(streamed(*text))
    heard, error = await collect(ask(model))
    assert heard == [TextDelta("Once upon")]
    assert error == "the provider stopped in the middle of its reply"


@PROVIDERS
@pytest.mark.parametrize(
    "nonsense",
    ['{"id": "1", "choi', "[" * 100_000, "[]", "null", '{"choices": 5, "type": 7}', '{"choices": [{"delta": 3}]}'],
)
async def test_an_unreadable_reply_is_reported(
    model: Model, server: FaultServer, text: list[bytes], nonsense: str, provider: str
) -> None:
    frame = sse(nonsense)[0]
    server.will(streamed(*text, frame if provider == "openai" else b"event: message_delta\n" + frame))
    heard, error = await collect(ask(model))
    assert heard == [TextDelta("Once upon")]
    assert error in (
        "the model server sent a reply that cannot be read",
        "the provider sent a reply that cannot be read",
        "the provider stopped in the middle of its reply",
    )


@PROVIDERS
async def test_a_failure_before_the_first_event_is_retried(
    model: Model, server: FaultServer, text: list[bytes], end: list[bytes]
) -> None:
    server.will(streamed(whole=False), streamed(*text, *end))
    heard, error = await collect(ask(model))
    assert error is None
    assert isinstance(heard[0], Status)
    assert heard[1] == TextDelta("Once upon")
    assert heard[-1] == Finish("stop")


@PROVIDERS
async def test_an_error_inside_the_stream_is_reported(
    model: Model, server: FaultServer, text: list[bytes], provider: str
) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "too many of you"}}
    server.will(streamed(*text, *sse(error, named=provider == "anthropic")))
    heard, told = await collect(ask(model))
    assert heard == [TextDelta("Once upon")]
    assert told is not None
    assert "too many of you" in told


@PROVIDERS
async def test_an_exhausted_quota_is_not_retried(model: Model, server: FaultServer) -> None:
    server.will(answer(429, b'{"error": {"code": "insufficient_quota", "message": "no money"}}'))
    _, error = await collect(ask(model))
    assert error == "the model server reports that the account's quota is used up"
    assert len(server.requests) == 1


@PROVIDERS
async def test_a_retry_delay_that_is_too_long_is_reported_instead(model: Model, server: FaultServer) -> None:
    server.will(answer(429, b'{"error": {"message": "later"}}', "retry-after: 3600"))
    _, error = await collect(ask(model))
    assert error == "the model server is limiting requests (HTTP 429): later; try again in 3600 s"
    assert len(server.requests) == 1


@PROVIDERS
async def test_an_error_without_json_is_reported_by_its_status(model: Model, server: FaultServer) -> None:
    server.will(answer(502, b"<html>Bad Gateway</html>", kind="text/html"))
    _, error = await collect(ask(model))
    assert error == "the model server had an internal error (HTTP 502)"


@PROVIDERS
async def test_an_unreachable_server_is_reported(provider: str, server: FaultServer) -> None:
    model = made(provider, server, base_url="http://127.0.0.1:9")
    _, error = await collect(ask(model))
    await model.close()
    assert error == "the model server could not be reached or closed the connection"


@PROVIDERS
async def test_closing_the_round_closes_the_connection(model: Model, server: FaultServer, text: list[bytes]) -> None:
    server.will(hanging(*text))
    round = model.round([say("user", "tell")], (), RoundSettings())
    assert await anext(round) == TextDelta("Once upon")
    await round.aclose()
    await asyncio.wait_for(server.closed.wait(), 30)


@PROVIDERS
async def test_lone_surrogates_in_history_and_replies_do_not_break_the_round(
    model: Model, server: FaultServer, provider: str
) -> None:
    emoji = "\\ud83d"
    frames = b"".join(OPENAI_TEXT if provider == "openai" else ANTHROPIC_TEXT).replace(b"Once upon", emoji.encode())
    server.will(streamed(frames, *(OPENAI_END if provider == "openai" else ANTHROPIC_END)))
    events = [event async for event in LoopAgent(model).run(prompt_of("tell"), memory_services())]
    assert TextDelta("\ufffd") in events
    assert events[-1] == Finish("stop")


def openai_call(arguments: str, finish: str) -> list[bytes]:
    call = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": arguments}}
    return sse(openai_chunk(tool_calls=[call]), openai_chunk(finish), "[DONE]")


def anthropic_call(arguments: str, reason: str) -> list[bytes]:
    return sse(
        {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "c1", "name": "look"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": arguments}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
        named=True,
    )


@PROVIDERS
async def test_truncated_arguments_are_an_error_for_the_model_and_the_next_round_is_valid(
    model: Model, server: FaultServer, provider: str, text: list[bytes], end: list[bytes]
) -> None:
    cut = '{"where": "Ber'
    call = openai_call(cut, "length") if provider == "openai" else anthropic_call(cut, "max_tokens")
    server.will(streamed(*call), streamed(*text, *end))

    async def look(where: str) -> str:
        raise AssertionError("it must not run")

    events = [event async for event in LoopAgent(model, [tool(look)]).run(prompt_of("go"), memory_services())]
    assert ToolCall("c1", "look", cut) in events
    told = [event.error for event in events if isinstance(event, ToolError)]
    assert told == ['arguments of look must be a JSON object, got \'{"where": "Ber\'']
    assert events[-1] == Finish("stop")
    assert "arguments of look must be a JSON object" in str(server.requests[1].body)


async def test_signed_reasoning_is_sent_back_byte_for_byte(server: FaultServer) -> None:
    thought = {"type": "thinking", "thinking": "", "signature": ""}
    frames = sse(
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 2}}},
        {"type": "content_block_start", "index": 0, "content_block": thought},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm, "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "yes."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln+/="}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "ZW5j"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": "Yes."}},
        {"type": "content_block_stop", "index": 2},
        {"type": "ping"},
        {"type": "a_kind_of_tomorrow", "index": 9},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
        named=True,
    )
    server.will(streamed(*frames))
    model = made("anthropic", server)
    heard, _ = await collect(ask(model))
    assert ReasoningEnd({"anthropic": {"signature": "c2ln+/="}}) in heard
    fold = Fold()
    for event in heard:
        fold.add(event)
    history = (say("user", "think"), PromptMessage("assistant", fold.parts()), say("user", "sure?"))
    await collect(ask(model, *history))
    await model.close()
    assert server.requests[1].body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Hm, yes.", "signature": "c2ln+/="},
        {"type": "redacted_thinking", "data": "ZW5j"},
        {"type": "text", "text": "Yes."},
    ]


@PROVIDERS
async def test_a_dangling_call_in_history_never_reaches_the_provider(
    model: Model, server: FaultServer, text: list[bytes], end: list[bytes]
) -> None:
    server.will(streamed(*text, *end))
    open_call = ToolPart("c9", "look", "input-available", b"{}")
    history = (say("user", "look"), PromptMessage("assistant", (TextPart("I look."), open_call)), say("user", "and?"))
    prompt = Prompt(messages=history)
    assert [event async for event in LoopAgent(model).run(prompt, memory_services())][-1] == Finish("stop")
    sent = str(server.requests[0].body)
    assert sent.count("c9") == 2
    assert "interrupted" in sent


@PROVIDERS
async def test_the_environments_key_is_never_sent_to_another_server(
    provider: str, server: FaultServer, text: list[bytes], end: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "environment-secret")
    server.will(streamed(*text, *end))
    model = made(provider, server, api_key=None)
    await collect(ask(model))
    await model.close()
    assert "environment-secret" not in str(server.requests[0].headers)


@PROVIDERS
async def test_without_any_key_the_setting_is_named(
    provider: str, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsInvalid, match="no key for"):
        made(provider, server, api_key=None, base_url=None)


@PROVIDERS
async def test_options_are_added_to_the_request_unchanged(
    provider: str, server: FaultServer, text: list[bytes], end: list[bytes]
) -> None:
    server.will(streamed(*text, *end))
    model = made(provider, server, options={"temperature": 0.25, "top_k": 3})
    await collect(ask(model))
    await model.close()
    assert (server.requests[0].body["temperature"], server.requests[0].body["top_k"]) == (0.25, 3)


async def test_an_anthropic_agent_without_a_model_is_an_error(server: FaultServer) -> None:
    model = AnthropicModel(api_key="k", base_url=server.url)
    with pytest.raises(SettingsInvalid, match="has no model"):
        await collect(ask(model))
    await model.close()
