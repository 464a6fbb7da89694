"""Agents behind HTTP: the request, the accepted forms of a reply, and failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.agent_calls import collect
from tests.agents.fault_server import FaultServer, answer, faulty, hanging, silent, sse, streamed
from threadline.agents.limits import RunLimits
from threadline.agents.remote import RemoteAgent
from threadline.core.errors import SettingsInvalid
from threadline.core.events import (
    Event,
    FinalText,
    Finish,
    ReasoningDelta,
    Status,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from threadline.core.prompts import Prompt
from threadline.net.addresses import is_public, parse_url
from threadline.net.retry import RequestFailed, Retrier, RetryPolicy
from threadline.net.sse import SseEvent, SseReader
from threadline.testing.agents import memory_services, prompt_of


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with faulty() as made:
        yield made


def agent(server: FaultServer, **options: Any) -> RemoteAgent:
    async def sleep(seconds: float) -> None:
        pass

    retrier = Retrier(RetryPolicy(attempts=2), sleep=sleep, jitter=lambda: 1.0)
    options = {"silence_seconds": 30, "retrier": retrier, **options}
    return RemoteAgent(f"{server.url}/agent?x=1", **options)


def ask(agent: RemoteAgent, prompt: Prompt | None = None) -> AsyncIterator[Event]:
    return agent.run(prompt or prompt_of("hi"), memory_services())


def replied(body: Any) -> bytes:
    return answer(200, json.dumps(body).encode())


async def test_a_remote_agent_gets_the_dispatch_payload_its_token_and_the_turns_id(server: FaultServer) -> None:
    server.will(replied({"content": "Hello."}))
    prompt = prompt_of("one", "two", "three", system="Persisted user context:\nBern", turn_id="t1")
    events, _ = await collect(ask(agent(server, token="secret"), prompt))
    assert events == [TextDelta("Hello."), Finish()]
    request = server.requests[0]
    assert request.line == "POST /agent?x=1 HTTP/1.1"
    assert request.headers["authorization"] == "bearer secret"
    assert request.headers["idempotency-key"] == "t1"
    assert request.body == {
        "messages": [
            {"role": "system", "content": "Persisted user context:\nBern"},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ],
        "role": "user",
        "content": "three",
    }


@pytest.mark.parametrize(
    "body",
    [
        "Hello.",
        {"content": "Hello."},
        {"text": "Hello."},
        {"role": "assistant", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo."}]},
        {"message": {"role": "assistant", "content": "Hello."}},
        {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}]},
        {"choices": [{"message": {"role": "assistant", "content": "Hello."}}]},
        {"reply": "Hello.", "progress": 100},
    ],
)
async def test_a_json_reply_may_have_any_of_the_usual_shapes(server: FaultServer, body: Any) -> None:
    server.will(replied(body))
    assert await collect(ask(agent(server))) == ([TextDelta("Hello."), Finish()], None)


async def test_usage_in_a_json_reply_is_read(server: FaultServer) -> None:
    server.will(replied({"content": "Hello.", "usage": {"prompt_tokens": 5, "completion_tokens": 2}}))
    events, _ = await collect(ask(agent(server)))
    assert Usage(5, 2) in events


@pytest.mark.req("S3-26")
async def test_unknown_and_progress_events_are_ignored(server: FaultServer) -> None:
    server.will(
        streamed(
            b": heartbeat\n\n",
            *sse({"type": "progress", "percent": 10}),
            *sse({"type": "text-delta", "text": "Hel"}),
            b"event: progress\ndata: 20 percent\n\n",
            b"event: thinking_about_lunch\ndata: {}\n\n",
            b"id: 7\nretry: 100\n\n",
            *sse({"type": "kind-of-tomorrow", "text": "no"}, ["a", "list"], 7, "not json {", {"nothing": None}),
            *sse(
                {"type": "tool-result", "call_id": 5}, {"type": "approval-request", "call_id": "c", "approval_id": "a"}
            ),
            *sse({"type": "text-delta", "text": "lo."}),
        )
    )
    assert await collect(ask(agent(server))) == ([TextDelta("Hel"), TextDelta("lo."), Finish()], None)


@pytest.mark.parametrize(
    ("sent", "events"),
    [
        ({"type": "text-delta", "id": "1", "delta": "Hi"}, TextDelta("Hi")),
        ({"type": "reasoning-delta", "delta": "Hm"}, ReasoningDelta("Hm")),
        ({"delta": "Hi"}, TextDelta("Hi")),
        ({"content": "Hi"}, TextDelta("Hi")),
        ({"type": "token", "token": "Hi"}, TextDelta("Hi")),
        ({"choices": [{"delta": {"content": "Hi"}}]}, TextDelta("Hi")),
        ({"choices": [{"delta": {"reasoning_content": "Hm"}}]}, ReasoningDelta("Hm")),
        ({"type": "usage", "input_tokens": 3, "output_tokens": 4}, Usage(3, 4)),
        ({"type": "status", "text": "looking"}, Status("looking")),
    ],
)
async def test_a_stream_may_have_any_of_the_usual_formats(server: FaultServer, sent: Any, events: Event) -> None:
    server.will(
        streamed(*sse(sent, {"choices": [{"delta": {}, "finish_reason": "length"}]}, "[DONE]", {"delta": "late"}))
    )
    assert await collect(ask(agent(server))) == ([events, Finish("length")], None)


async def test_events_of_its_own_tools_are_shown(server: FaultServer) -> None:
    call = {"type": "tool-call", "call_id": "c1", "name": "look", "input": {"a": 1}}
    result = {"type": "tool-result", "call_id": "c1", "output": [2**70]}
    request = {"type": "approval-request", "call_id": "c1", "approval_id": "a1"}
    server.will(streamed(*sse(call, request, result, {"type": "final-text", "text": "Done."}, {"type": "finish"})))
    events, error = await collect(ask(agent(server)))
    assert error is None
    assert events[0] == ToolCall("c1", "look", {"a": 1})
    assert isinstance(events[1], ToolResult)
    assert events[2:] in ([TextDelta("Done."), Finish()], [FinalText("Done."), Finish()])


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (answer(200, b"<html>"), "the agent's reply is not JSON"),
        (replied({"ok": True}), "the agent's reply contains no text"),
        (replied({"error": "no luck"}), "the agent failed: no luck"),
        (replied({"error": {"message": "no luck"}}), "the agent failed: no luck"),
        (answer(401, b"{}"), "the agent rejected the key (HTTP 401): check the agent's key and its permissions"),
        (answer(422, b'{"detail": "bad thread"}'), "the agent rejected the request (HTTP 422): bad thread"),
        (answer(302, b"", "location: /a"), "the agent replied with a redirect (HTTP 302), which is not followed"),
        (answer(200, b"{}", "content-encoding: gzip"), "the agent compressed its reply, which is not supported"),
        (streamed(*sse({"type": "progress"})), "the agent's stream contains no event that Threadline knows"),
        (streamed(*sse({"type": "error", "errorText": "burnt"})), "the agent failed: burnt"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000 + b"\r\n\r\n", "the agent closed the connection too early"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "the agent closed the connection too early"),
    ],
)  # fmt: skip
async def test_an_invalid_reply_is_reported_in_one_sentence(server: FaultServer, script: bytes, said: str) -> None:
    server.will(script)
    assert (await collect(ask(agent(server))))[1] == said


async def test_an_agent_that_never_replies_times_out(server: FaultServer) -> None:
    server.will(silent)
    events, error = await collect(ask(agent(server, silence_seconds=0.2)))
    assert error == "the agent did not reply in time"
    assert [type(event) for event in events] == [Status]


@pytest.mark.parametrize("script", [hanging(*sse({"delta": "Once"})), streamed(*sse({"delta": "Once"}), whole=False)])
async def test_an_agent_that_stops_midway_is_not_retried(server: FaultServer, script: Any) -> None:
    server.will(script)
    events, error = await collect(ask(agent(server, silence_seconds=1)))
    assert events == [TextDelta("Once")]
    assert error in ("the agent did not reply in time", "the agent closed the connection too early")
    assert len(server.requests) == 1


async def test_a_transient_failure_is_retried(server: FaultServer) -> None:
    server.will(answer(503, b"{}", "retry-after: 2"), replied("Hello."))
    events, error = await collect(ask(agent(server)))
    assert error is None
    assert events[0] == Status("the agent had an internal error (HTTP 503); retrying in 2 s")


async def test_an_unreachable_agent_is_reported() -> None:
    gone = RemoteAgent("http://127.0.0.1:9/", retrier=Retrier(RetryPolicy(attempts=1)))
    assert await collect(ask(gone)) == ([], "the agent could not be reached")


async def test_an_endless_reply_is_bounded(server: FaultServer) -> None:
    server.will(streamed(*sse(*[{"delta": "x" * 600}] * 3)))
    events, error = await collect(ask(agent(server, limits=RunLimits(reply_bytes=1_000))))
    assert error == "the reply grew beyond 1,000 bytes and was stopped"
    assert len(events) == 1


async def test_an_endless_line_is_bounded(server: FaultServer) -> None:
    server.will(streamed(b"data: " + b"x" * 1_100_000))
    assert (await collect(ask(agent(server))))[1] == "the agent sent a line of more than 1,048,576 characters"


async def test_closing_the_reply_closes_the_connection(server: FaultServer) -> None:
    server.will(hanging(*sse({"delta": "Once"})))
    said = agent(server).run(prompt_of("hi"), memory_services())
    assert await anext(said) == TextDelta("Once")
    await said.aclose()
    await asyncio.wait_for(server.closed.wait(), 30)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:7f00:1]", "[::]", "0.0.0.0", "localhost",
     "169.254.169.254", "10.0.0.1", "[fe80::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "224.0.0.1"],
)  # fmt: skip
async def test_internal_addresses_are_refused_in_every_spelling(server: FaultServer, host: str) -> None:
    port = server.url.rpartition(":")[2]
    server.will(replied("inside"))
    inside = RemoteAgent(f"http://{host}:{port}/", public_only=True, retrier=Retrier(RetryPolicy(attempts=1)))
    _, error = await collect(ask(inside))
    assert error in (
        "the agent's address must be public, got an internal one",
        "the agent's host name cannot be resolved",
    )
    assert server.requests == []


async def test_a_port_of_another_protocol_is_refused() -> None:
    ssh = RemoteAgent("http://93.184.216.34:22/", public_only=True)
    assert (await collect(ask(ssh)))[1] == "the agent's port must be 80, 443 or at least 1024, got 22"


def test_public_addresses_are_public() -> None:
    assert is_public("93.184.216.34")
    assert is_public("2606:2800:220:1:248:1893:25c8:1946")


@pytest.mark.parametrize(
    "url",
    ["gopher://a/", "data:text/plain,a", "file:///etc/passwd", "http://", "a.example", "http://a@127.0.0.1:80@b/",
     "http://user:pw@a.example/", "http://a.example:99999/", "http://a b/", "http://[::1/", "http://a\r\nx: y/"],
)  # fmt: skip
def test_other_urls_than_plain_http_are_refused(url: str) -> None:
    with pytest.raises(SettingsInvalid):
        parse_url(url)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), max_size=5), st.data())
def test_events_are_parsed_the_same_wherever_chunks_end(texts: list[str], data: st.DataObject) -> None:
    ending = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    raw = "".join(f"event: e{ending}data: {text}{ending}data:more{ending}{ending}" for text in texts).encode() + b"\n"
    reader = SseReader()
    found: list[SseEvent] = []
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        found += reader.feed(raw[:size])
        raw = raw[size:]
    assert found == [SseEvent("e", f"{text}\nmore") for text in texts]


def test_an_event_of_many_lines_is_bounded() -> None:
    line = b"data: " + b"x" * 400_000 + b"\n"
    with pytest.raises(RequestFailed, match="an event of more than"):
        SseReader().feed(line * 3)
