"""The bridge: any form of dispatch payload in, a request to an OpenAI-compatible server, its reply out."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from tests.agents.fault_server import FaultServer, answer, faulty, hanging, sse, streamed
from tests.agents.mock_provider import MockProvider
from threadline.agents.bridge import Bridge
from threadline.agents.bridge_server import BODY_BYTES, serve_bridge
from threadline.agents.remote import RemoteAgent
from threadline.core.errors import SettingsInvalid
from threadline.core.events import Finish, TextDelta
from threadline.net.retry import Retrier, RetryPolicy
from threadline.testing.agents import memory_services, prompt_of

REPLY = streamed(
    *sse(
        {"choices": [{"delta": {"content": "Hel"}}]},
        {"choices": [{"delta": {"content": "lo."}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}},
        "[DONE]",
    )
)


class Said(NamedTuple):
    status: int
    headers: str
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture
async def upstream() -> AsyncIterator[FaultServer]:
    async with faulty() as server:
        server.will(REPLY)
        yield server


def bridge_to(upstream: FaultServer, **options: Any) -> Bridge:
    async def sleep(seconds: float) -> None:
        pass

    retrier = Retrier(RetryPolicy(attempts=2), sleep=sleep, jitter=lambda: 1.0)
    return Bridge(f"{upstream.url}/v1/", **{"silence_seconds": 30, "retrier": retrier, **options})


@pytest.fixture
async def address(upstream: FaultServer) -> AsyncIterator[str]:
    async with serve_bridge(bridge_to(upstream, model="small", api_key="key")) as url:
        yield url


async def send(address: str, raw: bytes) -> Said:
    host, _, port = address.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(raw)
    said = (await reader.read()).decode()
    writer.close()
    head, _, body = said.partition("\r\n\r\n")
    return Said(int(head.split()[1]), head.lower(), body)


async def post(address: str, body: Any, *headers: str, kind: str = "application/json", host: str = "localhost") -> Said:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = ["POST / HTTP/1.1", f"host: {host}", f"content-type: {kind}", f"content-length: {len(raw)}", *headers]
    return await send(address, "\r\n".join([*lines, "", ""]).encode() + raw)


@pytest.mark.req("S3-09")
@pytest.mark.parametrize(
    ("payload", "sent"),
    [
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " "}, {"content": "b"}]},
            [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        ),
        ({"content": "hi"}, [{"role": "user", "content": "hi"}]),
        ({"role": "system", "content": "hi"}, [{"role": "system", "content": "hi"}]),
        ({"messages": [], "content": "hi"}, [{"role": "user", "content": "hi"}]),
        ({"messages": [{"role": "user", "content": ""}], "content": "hi"}, [{"role": "user", "content": "hi"}]),
        ({"messages": [{"role": "user", "content": "new"}], "content": "old"}, [{"role": "user", "content": "new"}]),
    ],
)
async def test_the_server_always_gets_an_array_of_messages(
    address: str, upstream: FaultServer, payload: Any, sent: Any
) -> None:
    said = await post(address, payload)
    assert said.json == {
        "role": "assistant",
        "content": "Hello.",
        "usage": {"type": "usage", "input_tokens": 4, "output_tokens": 2, "cached_tokens": 0, "reasoning_tokens": 0},
    }
    asked = upstream.requests[0]
    assert asked.line == "POST /v1/chat/completions HTTP/1.1"
    assert asked.body == {"model": "small", "messages": sent, "stream": True}
    assert asked.headers["authorization"] == "bearer key"


@pytest.mark.req("S3-09")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid_message"),
        ({"content": "  "}, 400, "invalid_message"),
        ({"messages": []}, 400, "invalid_message"),
        ({"messages": "hi"}, 400, "invalid_message"),
        ({"messages": [{"role": "user", "content": ""}]}, 400, "invalid_message"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, 400, "invalid_message"),
        ({"messages": ["hi"]}, 400, "invalid_message"),
        ([], 400, "invalid_input"),
        (b"", 400, "invalid_json"),
        (b'{"content": "hi"', 400, "invalid_json"),
        (b'{"content": "a", "content": "b"}', 400, "invalid_json"),
        (b'{"content": "\\ud800"}', 400, "invalid_json"),
        (b"[" * 1_000 + b"]" * 1_000, 413, "limit_exceeded"),
        (b'{"content": "' + b"x" * BODY_BYTES + b'"}', 413, "limit_exceeded"),
    ],
)
async def test_invalid_payloads_get_an_error_code_and_are_not_forwarded(
    address: str, upstream: FaultServer, body: Any, status: int, code: str
) -> None:
    said = await post(address, body)
    assert (said.status, said.json["code"], said.json["status"]) == (status, code, status)
    assert "application/problem+json" in said.headers
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", 405),
        (b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n{}", 415),
        (
            b"POST / HTTP/1.1\r\nhost: evil.example\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
            421,
        ),
        (b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9223372036854775808\r\n\r\n", 413),
    ],
)
async def test_invalid_requests_are_refused(address: str, upstream: FaultServer, raw: bytes, status: int) -> None:
    assert (await send(address, raw)).status == status
    assert upstream.requests == []


async def test_input_that_is_not_http_closes_the_connection_only(address: str) -> None:
    host, _, port = address.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x16\x03\x01 hello?\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    assert (await post(address, {"content": "hi"})).status == 200


async def test_a_reply_is_streamed_and_ends_with_done(address: str) -> None:
    said = await post(address, {"content": "hi"}, "accept: text/event-stream")
    assert "text/event-stream" in said.headers
    lines = [line for line in said.body.replace("\r\n", "\n").split("\n") if line.startswith("data: ")]
    assert lines == [
        'data: {"type":"text-delta","text":"Hel"}',
        'data: {"type":"text-delta","text":"lo."}',
        'data: {"type":"finish","reason":"stop"}',
        'data: {"type":"usage","input_tokens":4,"output_tokens":2,"cached_tokens":0,"reasoning_tokens":0}',
        "data: [DONE]",
    ]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_an_unreachable_upstream_is_a_bad_gateway(address: str, upstream: FaultServer, accept: str) -> None:
    upstream.will(answer(401, b"{}"))
    said = await post(address, {"content": "hi"}, f"accept: {accept}")
    if accept == "application/json":
        assert (said.status, said.json["code"]) == (502, "agent_failed")
    else:
        assert said.status == 502


async def test_an_upstream_that_stops_midway_ends_the_stream_with_an_error(upstream: FaultServer) -> None:
    upstream.will(hanging(*sse({"choices": [{"delta": {"content": "Once"}}]})))
    async with serve_bridge(bridge_to(upstream, silence_seconds=1)) as address:
        said = await post(address, {"content": "hi"}, "accept: text/event-stream")
    assert '"text":"Once"' in said.body
    assert '{"type":"error","errorText":"the agent did not reply in time"}' in said.body


async def test_with_a_token_every_request_must_send_it(upstream: FaultServer) -> None:
    async with serve_bridge(bridge_to(upstream), token="sésame") as address:
        assert (await post(address, {"content": "hi"}, host="bridge.example")).status == 401
        assert (await post(address, {"content": "hi"}, "authorization: Bearer no")).status == 401
        assert upstream.requests == []


async def test_a_public_address_needs_a_token(upstream: FaultServer) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(SettingsInvalid, match="token is missing"):
            await serve_bridge(bridge_to(upstream), host=host).__aenter__()


async def test_an_empty_token_is_refused(upstream: FaultServer) -> None:
    with pytest.raises(SettingsInvalid, match="token must not be empty"):
        await serve_bridge(bridge_to(upstream), host="0.0.0.0", token=" ").__aenter__()


async def test_a_caller_may_choose_the_model_if_none_is_configured(upstream: FaultServer) -> None:
    async with serve_bridge(bridge_to(upstream)) as address:
        await post(address, {"content": "hi", "model": "theirs"})
        await post(address, {"content": "hi", "model": 5})
    assert [request.body["model"] for request in upstream.requests] == ["theirs", "default"]


async def test_an_address_in_use_is_reported(address: str, upstream: FaultServer) -> None:
    port = int(address.rpartition(":")[2])
    with pytest.raises(SettingsInvalid, match=r"cannot listen on 127\.0\.0\.1 port \d+: Address already in use$"):
        await serve_bridge(bridge_to(upstream), port=port).__aenter__()


@pytest.mark.req("S3-09")
async def test_the_command_serves_until_it_is_stopped(upstream: FaultServer) -> None:
    run = "import sys; from threadline.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", run, "bridge", "--port", "0", "--upstream", f"{upstream.url}/v1"]
    environment = {**os.environ, "THREADLINE_BRIDGE_UPSTREAM_KEY": "key"}
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
    assert process.stdout is not None
    try:
        [address] = re.findall(r"http://127\.0\.0\.1:\d+(?= )", (await process.stdout.readline()).decode())
        said = await post(address, {"content": "hi"})
        assert said.json["content"] == "Hello."
        assert upstream.requests[0].headers["authorization"] == "bearer key"
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode == 0


@pytest.mark.req("S3-09")
async def test_a_remote_agent_works_through_the_bridge(aimock: MockProvider) -> None:
    async with serve_bridge(Bridge(f"{aimock.url}/v1", model="gpt-5")) as address:
        prompt = prompt_of("first", "yes?", "hello", system="You are kind.")
        events = [event async for event in RemoteAgent(address).run(prompt, memory_services())]
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert said == "Hello, how are you today?"
    assert events[-1] == Finish("stop")
    assert [message["role"] for message in aimock.last_request()["messages"]] == ["system", "user", "assistant", "user"]
