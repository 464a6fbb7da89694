"""The MCP server as clients see it: the official Python client over HTTP and standard input, on both databases."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.service.conftest import SERVICE
from tests.service.running_service import client_of, serving
from tests.service.token_clients import bearer, token_for
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.messages import assistant, user
from threadline.core.parts import tool_part
from threadline.mcp_server.thread_tools import ANSWER_CHARACTERS, TOOLS
from threadline.settings import Settings
from threadline.testing.postgres import shared_server

pytestmark = pytest.mark.req("G-05")

READING = {"list_threads", "search_threads", "read_thread", "list_saved_points"}
WRITING = {"append_messages", "branch_thread", "save_point"}
SECRET = "sk-ant-api03-" + "A1b2C3d4" * 11
MODES = ("auto", "legacy")


@pytest.fixture(params=["file", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "t.db") if request.param == "file" else await shared_server().create_database()


@pytest.fixture
async def threadline(database: str) -> AsyncIterator[Threadline]:
    service = msgspec.structs.replace(SERVICE, authentication=True)
    async with open_threadline(settings=Settings(database=database, user="alice", service=service)) as opened:
        yield opened


@pytest.fixture
async def service(threadline: Threadline) -> AsyncIterator[str]:
    async with serving(threadline) as client:
        yield client.url


@asynccontextmanager
async def over_http(url: str, token: str, mode: str = "auto") -> AsyncIterator[Client]:
    http = httpx2.AsyncClient(headers=bearer(token), timeout=60, verify=False)
    async with http, Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client:
        yield client


@asynccontextmanager
async def over_stdio(home: Path, *options: str, mode: str = "auto", **environment: str) -> AsyncIterator[Client]:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "threadline", "mcp", *options],
        env={"HOME": str(home), **environment},
        cwd=home,
    )
    async with Client(stdio_client(command), mode=mode, read_timeout_seconds=120) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    result: Any = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert not result.is_error, content
    return json.loads(content.text)


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result: Any = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)


def contents_of(result: Any) -> Any:
    return result.contents


async def use_every_tool(client: Client) -> str:
    """What any client does with any transport; the id of the thread it made."""
    offered: Any = (await client.list_tools()).tools
    assert {tool.name for tool in offered} == READING | WRITING
    assert {tool.name for tool in offered if tool.annotations.read_only_hint} == READING
    assert all(tool.annotations.destructive_hint is False for tool in offered)
    said = [{"role": "user", "text": "What is there to see in Lisbon?"}, {"role": "assistant", "text": f"Key {SECRET}"}]
    made = await call(client, "append_messages", messages=said, title="Trip", key="one call/1")
    again = await call(client, "append_messages", messages=said, title="Trip", key="one call/1")
    assert (made["was_stored_before"], again["was_stored_before"]) == (False, True)
    thread = made["thread"]
    assert again["thread"] == thread
    await call(client, "append_messages", thread=thread, messages=[{"role": "user", "text": "And in Porto?"}])
    (listed,) = (await call(client, "list_threads"))["threads"]
    assert (listed["id"], listed["title"], listed["message_count"]) == (thread, "Trip", 3)
    (found,) = (await call(client, "search_threads", query="lisbon"))["threads"]
    assert found["hits"][0]["seq"] == 0
    window = await call(client, "read_thread", thread=thread, around=found["hits"][0]["message"], limit=2)
    assert [message["seq"] for message in window["messages"]] == [0, 1]
    assert SECRET not in json.dumps(window)
    assert window["later"] == "read_thread with first=2"
    saved = await call(client, "save_point", thread=thread, name="start", at=0)
    assert saved == {"saved": {"name": "start", "thread": thread, "seq": 0}}
    assert (await call(client, "list_saved_points"))["saved_points"] == [saved["saved"]]
    branch = (await call(client, "branch_thread", thread=thread, at=1, title="Other trip"))["thread"]
    assert (branch["title"], branch["message_count"]) == ("Other trip", 2)
    resources = (await client.list_resources()).resources
    assert {str(resource.uri) for resource in resources} == {
        f"threadline://threads/{id}" for id in (thread, branch["id"])
    }
    (template,) = (await client.list_resource_templates()).resource_templates
    assert template.uri_template == "threadline://threads/{id}"
    (contents,) = contents_of(await client.read_resource(f"threadline://threads/{thread}"))
    assert contents.text.startswith("# Trip\n")
    assert "And in Porto?" in contents.text
    return str(thread)


@pytest.mark.parametrize("mode", MODES)
async def test_every_tool_and_resource_over_http(threadline: Threadline, service: str, mode: str) -> None:
    async with over_http(service, await token_for(threadline, "alice"), mode) as client:
        await use_every_tool(client)


async def test_every_tool_and_resource_on_standard_input(database: str, tmp_path: Path) -> None:
    async with over_stdio(tmp_path, "--database", database) as client:
        thread = await use_every_tool(client)
    async with over_stdio(tmp_path, "--database", database, "--read-only", mode="legacy") as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == READING
        assert "role must be member" in await refusal(client, "save_point", thread=thread, name="x")
        assert (await call(client, "read_thread", thread=thread))["thread"]["message_count"] == 3


async def test_every_tool_on_standard_input_for_a_service(threadline: Threadline, service: str, tmp_path: Path) -> None:
    token = await token_for(threadline, "alice")
    async with over_stdio(tmp_path, "--server", service, THREADLINE_TOKEN=token) as client:
        await use_every_tool(client)
    viewer = await token_for(threadline, "alice", "viewer")
    async with over_stdio(tmp_path, "--server", service, "--token", viewer) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == READING
    command = [sys.executable, "-m", "threadline", "mcp", "--server", service, "--token", "wrong"]
    refused = await asyncio.to_thread(
        subprocess.run, command, input="", capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert refused.returncode != 0
    assert "token" in refused.stderr
    assert refused.stdout == ""


async def test_a_viewer_reads_and_writes_nothing(threadline: Threadline, service: str) -> None:
    async with over_http(service, await token_for(threadline, "alice")) as member:
        thread = await use_every_tool(member)
    async with over_http(service, await token_for(threadline, "alice", "viewer")) as viewer:
        assert {tool.name for tool in (await viewer.list_tools()).tools} == READING
        before = await call(viewer, "read_thread", thread=thread)
        writes: dict[str, dict[str, Any]] = {
            "append_messages": {"thread": thread, "messages": [{"role": "user", "text": "x"}]},
            "branch_thread": {"thread": thread},
            "save_point": {"thread": thread, "name": "x"},
        }
        for tool, arguments in writes.items():
            assert "role must be member" in await refusal(viewer, tool, **arguments)
        assert await call(viewer, "read_thread", thread=thread) == before
        assert len((await call(viewer, "list_threads"))["threads"]) == 2


async def test_threads_of_others_are_not_found_like_unknown_ones(threadline: Threadline, service: str) -> None:
    async with over_http(service, await token_for(threadline, "alice")) as alice:
        thread = await use_every_tool(alice)
    async with over_http(service, await token_for(threadline, "bob")) as bob:
        calls: dict[str, dict[str, Any]] = {"read_thread": {}, "branch_thread": {}, "save_point": {"name": "x"}}
        for tool, more in calls.items():
            theirs = await refusal(bob, tool, thread=thread, **more)
            unknown = await refusal(bob, tool, thread="0" * 26, **more)
            assert theirs.replace(thread, "…") == unknown.replace("0" * 26, "…")
        for uri in (f"threadline://threads/{thread}", "threadline://threads/none", "threadline://other/1"):
            with pytest.raises(MCPError, match="not found"):
                await bob.read_resource(uri)
        assert await call(bob, "search_threads", query="Lisbon") == {"threads": []}
        assert (await bob.list_resources()).resources == []


async def test_wrong_arguments_are_named(threadline: Threadline, service: str) -> None:
    async with over_http(service, await token_for(threadline, "alice")) as client:
        for tool, arguments, reason in (
            ("list_threads", {"limit": 0}, "limit"),
            ("list_threads", {"cursor": "x"}, "cursor was not issued here"),
            ("search_threads", {}, "query"),
            ("search_threads", {"query": " "}, "at least one word"),
            ("read_thread", {"thread": "x", "surprise": 1}, "surprise"),
            ("read_thread", {"thread": "x", "first": 0, "around": 0}, "cannot be combined"),
            ("append_messages", {"messages": [{"role": "system", "text": "x"}]}, "system"),
            ("append_messages", {"messages": []}, "messages"),
            ("delete_thread", {}, "tool must be one of list_threads"),
        ):
            assert reason in await refusal(client, tool, **arguments)
        with pytest.raises(MCPError):
            # Over the service's limit on bodies.
            await call(client, "append_messages", messages=[{"role": "user", "text": "x" * 1_050_000}])
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor="x")
        assert (await call(client, "list_threads"))["threads"] == []


async def test_answers_are_bounded_and_everything_can_be_read(threadline: Threadline, service: str) -> None:
    thread = await threadline.as_user("alice").create_thread(title="Long")
    await thread.append(*[user("w" * 30_000, id=f"m{seq}") for seq in range(10)])
    await thread.append(assistant([tool_part("clock", "c1", {"zone": "UTC"}, output="12:00")]))
    async with over_http(service, await token_for(threadline, "alice")) as client:
        newest = await call(client, "read_thread", thread=thread.id, characters=50_000, limit=100)
        assert [message["seq"] for message in newest["messages"]] == [9, 10]
        assert "12:00" in newest["messages"][-1]["text"]
        read: list[int] = []
        first: int | None = 0
        while first is not None:
            page = await call(client, "read_thread", thread=thread.id, characters=50_000, limit=100, first=first)
            assert len(json.dumps(page)) < ANSWER_CHARACTERS * 1.2
            read += [message["seq"] for message in page["messages"]]
            first = int(page["later"].partition("=")[2]) if "later" in page else None
        assert read == list(range(11))
        short = await call(client, "read_thread", thread=thread.id, first=0, limit=1)
        assert len(short["messages"][0]["text"]) == 4_000
        assert short["messages"][0]["left_out"].startswith("26000 characters")
        (contents,) = contents_of(await client.read_resource(f"threadline://threads/{thread.id}"))
        assert len(contents.text) < 101_000
        assert "earlier messages are left out" in contents.text


async def test_requests_without_a_token_or_from_other_pages_are_refused(service: str) -> None:
    anyone = client_of(service)
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert (await anyone.http.post("/mcp", json=request)).status_code == 401
    assert (await anyone.http.post("/mcp", json=request, headers={"origin": "http://evil"})).status_code == 403
    assert (await anyone.http.get("/mcp")).status_code == 405
    await anyone.close()


async def test_an_agent_of_the_settings_uses_our_own_server(tmp_path: Path) -> None:
    from threadline.agents.mcp.servers import McpServers
    from threadline.core.mcp_servers import McpServer

    command = (sys.executable, "-m", "threadline", "mcp", "--database", str(tmp_path / "own.db"))
    servers = McpServers({"memory": McpServer(command=command, connect_seconds=120.0, timeout_seconds=120.0)})
    try:
        source = servers.source(["memory"])
        await servers.report()
        tools = {tool.name: tool for tool in (await source.offer()).tools}
        assert {f"memory__{tool.name}" for tool in TOOLS} <= set(tools)
        said = {"messages": [{"role": "user", "text": "Remember the milk"}]}
        made = json.loads(await tools["memory__append_messages"].run(said))
        read = json.loads(await tools["memory__read_thread"].run({"thread": made["thread"]}))
        assert read["messages"][0]["text"] == "Remember the milk"
    finally:
        await servers.close()


def test_the_command_does_not_import_the_service() -> None:
    code = (
        "import sys; import threadline.cli.mcp_stdio, threadline.bootstrap; "
        "print([name for name in sys.modules if name.startswith('threadline.service')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
