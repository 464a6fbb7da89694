"""Dispatch without a thread, and agents behind HTTP: what an agent receives and what it may return."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.ports import free_port
from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.conftest import SERVICE
from tests.service.running_service import THREADS, Client, serving, streamed_text
from threadline.bootstrap import open as open_threadline
from threadline.service.process.server import Server, address_of, listen
from threadline.settings import AgentSettings, GuardSettings, Settings

AGENTS = "/api/v1/agents"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Far:
    """An agent behind HTTP that records the bodies it receives."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.reply: dict[str, Any] = {"content": "Far away."}

    async def answer(self, request: Request) -> Response:
        self.bodies.append(await request.json())
        return JSONResponse(self.reply)


@pytest.fixture
async def far() -> AsyncIterator[tuple[Far, Client]]:
    """The agent, and a service that has it as `far`."""
    agent = Far()
    listening = listen("127.0.0.1", 0)
    server = Server(Starlette(routes=[Route("/", agent.answer, methods=["POST"])]), grace_seconds=1)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    await server.ready.wait()
    known = {"far": AgentSettings("remote", settings={"url": f"{address_of(listening)}/", "attempts": 1})}
    settings = Settings(database=":memory:", service=SERVICE, agents=known)
    async with open_threadline(settings=settings) as threadline, serving(threadline) as client:
        yield agent, client
    server.should_exit = True
    await running


@pytest.mark.req("S0-04", "S0-05", "S0-06")
@pytest.mark.parametrize("route", ["message", "stream"])
async def test_the_agent_gets_the_context_first_and_the_other_fields_unchanged(
    far: tuple[Far, Client], route: str
) -> None:
    agent, client = far
    await client.http.post(f"{AGENTS}/far/context", json={"context": "I live in Bern."})
    pinned = {"role": "system", "content": "Persisted user context:\nI live in Bern."}
    answer = await client.http.post(f"{AGENTS}/far/{route}", json={"role": "user", "content": "Where do I live?"})
    assert answer.status_code == 200
    assert "Far away." in answer.text
    assert agent.bodies[-1]["messages"] == [pinned, {"role": "user", "content": "Where do I live?"}]
    assert (agent.bodies[-1]["role"], agent.bodies[-1]["content"]) == ("user", "Where do I live?")
    picture = {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "Bern"}'}}
    given = [
        {"role": "developer", "content": "Be brief.", "name": "ops"},
        {"role": "user", "content": "a", "name": "ada"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": [{"type": "text", "text": "c"}, picture]},
    ]
    keys = {"temperature": 0.25, "metadata": {"trace": 7}, "tools": [{"type": "function"}], "content": "mine"}
    await client.http.post(f"{AGENTS}/far/{route}", json={"messages": given, **keys})
    assert agent.bodies[-1] == {"messages": [pinned, *given], "role": "user", **keys}


@pytest.mark.req("C-05")
async def test_a_remote_agent_gets_the_tools_and_pictures_of_a_thread_and_returns_its_own(
    far: tuple[Far, Client],
) -> None:
    agent, client = far
    agent.reply = {
        "messages": [
            {"role": "user", "content": "not mine"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
            {"role": "assistant", "content": "A cat."},
        ]
    }
    picture = {"type": "file", "mediaType": "image/png", "url": PIXEL}
    parts = [{"type": "text", "text": "What is this?"}, picture]
    asked = {"stateKey": "cat", "agentId": "far", "message": {"role": "user", "parts": parts}}
    assert (await client.http.post("/api/v1/ai/chat", json=asked)).status_code == 200
    assert agent.bodies[-1]["messages"][0]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": PIXEL}},
    ]
    agent.reply = {"parts": [{"type": "text", "text": "Here."}, picture, {"type": "data-mood", "data": {"good": True}}]}
    await client.http.post("/api/v1/ai/chat", json={**asked, "message": "Show me another"})
    sent = agent.bodies[-1]["messages"]
    assert [entry["role"] for entry in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": "{}"}
    assert sent[2] == {"role": "tool", "tool_call_id": "c1", "content": "a cat"}
    stored = (await client.http.get(f"{THREADS}/cat")).json()["messages"]
    assert [part["type"] for part in stored[1]["parts"]] == ["tool-look", "text"]
    assert [part["type"] for part in stored[3]["parts"]] == ["text", "file", "data-mood"]


@pytest.mark.req("C-05")
async def test_the_example_of_an_agent_behind_http_answers(tmp_path: Path) -> None:
    """The program of the documentation, as its reader runs it."""
    example = Path(__file__).parents[2] / "examples" / "remote_agent.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(example), "0", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().removeprefix("listening on ").strip()
        known = {"example": AgentSettings("remote", settings={"url": url, "attempts": 1})}
        settings = Settings(database=":memory:", agent="example", service=SERVICE, agents=known)
        async with open_threadline(settings=settings) as threadline, serving(threadline) as client:
            await client.ask("Send a picture and a source", "k")
            streamed = await client.ask("And now?", "k")
            assert streamed_text(streamed) == "I got 5 messages, 0 pictures and 1 calls."
            assert "tool-output-available" in [chunk["type"] for chunk in streamed]
            stored = (await client.http.get(f"{THREADS}/k")).json()["messages"]
            assert [part["type"] for part in stored[1]["parts"]] == ["tool-count", "text", "file", "source-url"]
    finally:
        process.kill()
        await process.wait()


@pytest.mark.req("S0-17")
@pytest.mark.parametrize("route", ["message", "stream"])
@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": role, "content": "eat the FORBIDDEN fruit"}, {"role": "user", "content": "go"}]}
        for role in ("system", "assistant", "developer", "tool")
    ]
    + [
        {"content": "go", "metadata": {"note": ["forbidden fruit"]}},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "forbidden fruit"}]}]},
        {"messages": [{"role": "user", "content": "go", "name": "forbidden fruit"}]},
    ],
)
async def test_the_guard_reads_every_entry_of_a_body(
    settings: Settings, scripted_agent: ScriptedAgent, route: str, body: dict[str, Any]
) -> None:
    guarded = msgspec.structs.replace(settings, guard=GuardSettings(patterns=("forbidden fruit",)))
    agents = {"scripted": make_agent(scripted_agent)}
    async with open_threadline(settings=guarded, agents=agents) as threadline, serving(threadline) as client:
        answer = await client.http.post(f"{AGENTS}/scripted/{route}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "guard_refused")
    assert scripted_agent.prompts == []


@pytest.mark.parametrize("key", [None, "stamped"])
async def test_a_reply_that_needs_approval_is_202_and_denies_nothing(key: str | None) -> None:
    settings = Settings(database=":memory:", service=SERVICE)
    async with open_threadline(settings=settings) as threadline, serving(threadline) as client:
        body = {"content": "stamp hello"} if key is None else {"content": "stamp hello", "stateKey": key}
        answer = await client.http.post(f"{AGENTS}/rehearsal/message", json=body)
        assert (answer.status_code, answer.json()["status"]) == (202, "awaiting_approval")
        (call,) = [part for part in answer.json()["parts"] if part["type"] == "tool-stamp"]
        assert call["state"] == "approval-requested"
        streamed = await client.http.post(f"{AGENTS}/rehearsal/stream", json={"content": "stamp hello"})
        assert "tool-approval-request" in [chunk["type"] for chunk in client.chunks(streamed)]


@pytest.mark.req("S0-01")
async def test_pinning_a_context_contacts_no_agent(far: tuple[Far, Client]) -> None:
    agent, client = far
    offline = {
        "id": "offline",
        "provider": "remote",
        "settings": {"url": f"http://127.0.0.1:{free_port()}/", "attempts": 1},
    }
    assert (await client.http.post(AGENTS, json=offline)).status_code == 201
    for name in ("far", "offline"):
        pinned = await client.http.post(f"{AGENTS}/{name}/context", json={"context": "I live in Bern."})
        assert (pinned.status_code, pinned.json()) == (200, {"status": "applied"})
        assert (await client.http.get(f"{AGENTS}/{name}/context")).json()["context"] == "I live in Bern."
    assert agent.bodies == []
    assert (await client.http.post(f"{AGENTS}/offline/message", json={"content": "Hi"})).status_code == 502
