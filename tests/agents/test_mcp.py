"""MCP servers: real ones from npm over both transports, and one that misbehaves, through agents, HTTP and terminal."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import threadline
from tests.agents.agent_calls import events_of, text_of
from tests.agents.mcp_npm_servers import MISBEHAVING, everything_over_http, server_command
from tests.agents.stub_model import StubModel, stub_model
from tests.service.running_service import CHAT, serving, streamed_text
from threadline.agents.mcp.catalogue import full_name
from threadline.agents.mcp.servers import McpServers
from threadline.agents.registry import build_agent
from threadline.agents.tool_execution import ToolFailed
from threadline.agents.tools import Tool, Toolset, ToolSource
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import InvalidInput, NotFound, SettingsInvalid
from threadline.core.events import Status
from threadline.core.mcp_servers import McpServer
from threadline.settings import AgentSettings, Settings
from threadline.testing.agents import prompt_of

BAD = McpServer(command=(sys.executable, MISBEHAVING), timeout_seconds=20.0)
PATIENCE = 30.0


@asynccontextmanager
async def connected(**servers: McpServer) -> AsyncIterator[tuple[McpServers, ToolSource]]:
    opened = McpServers(servers)
    try:
        source = opened.source(list(servers))
        # The machine may be busy: a turn waits less.
        await opened.report()
        yield opened, source
    finally:
        await opened.close()


async def tools_of(source: ToolSource) -> dict[str, Tool]:
    return {tool.name: tool for tool in (await source.offer()).tools}


async def call(source: ToolSource, name: str, **given: Any) -> Any:
    return await (await tools_of(source))[name].run(given)


async def until(condition: Callable[[Toolset], bool], source: ToolSource) -> Toolset:
    async with asyncio.timeout(PATIENCE):
        while not condition(offered := await source.offer()):  # noqa: ASYNC110 - sources have no event
            await asyncio.sleep(0.01)
    return offered


@pytest.mark.req("A-02")
async def test_a_real_server_gives_tools_images_resources_and_prompts() -> None:
    server = McpServer(command=server_command("everything", "stdio"), deny=("trigger-*",), approve=("get-s*",))
    async with connected(every=server) as (servers, source):
        tools = await tools_of(source)
        assert "every__trigger-long-running-operation" not in tools
        assert {name for name, tool in tools.items() if tool.needs_approval} == {
            "every__get-structured-content",
            "every__get-sum",
        }
        assert tools["every__get-sum"].schema["required"] == ["a", "b"]
        assert await call(source, "every__echo", message="hi") == "Echo: hi"
        text, image, *_ = await call(source, "every__get-tiny-image")
        assert text["type"] == "text"
        assert image["source"]["media_type"] == "image/png"
        structured = json.loads(await call(source, "every__get-structured-content", location="New York"))
        assert structured.keys() == {"temperature", "conditions", "humidity"}
        listed = await call(source, "every__list_resources")
        assert await call(source, "every__read_resource", uri=listed[0]["uri"])
        assert isinstance(await servers.read("every", listed[0]["uri"]), str)
        assert await servers.prompt("every__args-prompt", {"city": "Porto"}) == "What's weather in Porto?"
        with pytest.raises(InvalidInput, match="needs city"):
            await servers.prompt("every__args-prompt")
        with pytest.raises(InvalidInput, match="has no 'town': use city, state"):
            await servers.prompt("every__args-prompt", {"city": "a", "town": "b"})
        with pytest.raises(NotFound):
            await servers.prompt("every__nothing")


@pytest.mark.req("A-02")
async def test_a_server_over_http_is_used_like_a_program_and_reconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOKEN", "secret")
    with everything_over_http() as url:
        server = McpServer(url=url, headers={"authorization": "Bearer ${MCP_TOKEN}"}, timeout_seconds=20.0)
        async with connected(web=server) as (servers, source):
            assert await call(source, "web__echo", message="hi") == "Echo: hi"
            assert await servers.prompt("web__simple-prompt")


@pytest.mark.req("A-02")
async def test_the_filesystem_server_stays_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Porto")
    async with connected(files=McpServer(command=server_command("filesystem", str(tmp_path)))) as (_, source):
        assert await call(source, "files__read_text_file", path=str(tmp_path / "note.txt")) == "Porto"
        with pytest.raises(ToolFailed, match="Access denied"):
            await call(source, "files__read_text_file", path="/etc/passwd")


@pytest.mark.req("A-02")
async def test_a_server_that_returns_too_much_or_dirt_is_cut_and_cleaned() -> None:
    async with connected(bad=BAD) as (_, source):
        with pytest.raises(ToolFailed, match=r"100,000,073 bytes, more than 8,388,608, and was dropped: ask for less"):
            await call(source, "bad__huge")
        assert await call(source, "bad__binary") == "a\ufffd\ufffdb"
        coloured = await call(source, "bad__colours")
        assert coloured.startswith("\\x1b[31mred\\x1b[0m\\x07yyy")
        assert coloured.endswith("[cut: this is the beginning of 200,013 characters]")
        assert len(coloured) < 51_000
        with pytest.raises(ToolFailed, match=r"^no such city$"):
            await call(source, "bad__fail")
        assert await call(source, "bad__echo", text="still here") == "still here"


@pytest.mark.req("A-02")
async def test_a_call_that_hangs_or_floods_is_bounded() -> None:
    async with connected(bad=msgspec.structs.replace(BAD, timeout_seconds=0.5)) as (_, source):
        for name in ("bad__hang", "bad__flood"):
            with pytest.raises(ToolFailed, match=r"took longer than 0.5 s and was stopped"):
                await call(source, name)


@pytest.mark.req("A-02")
async def test_a_server_that_dies_is_restarted_and_the_next_call_waits_for_it() -> None:
    async with connected(bad=BAD) as (_, source):
        tools = await tools_of(source)
        with pytest.raises(ToolFailed, match="MCP server 'bad' ended during the call, and is restarted"):
            await tools["bad__die"].run({})
        assert await tools["bad__echo"].run({"text": "again"}) == "again"


@pytest.mark.req("A-02")
async def test_changed_tools_are_offered_in_the_next_turn() -> None:
    async with connected(bad=BAD) as (_, source):
        assert await call(source, "bad__grow") == "grown"
        await until(lambda offered: any(tool.name == "bad__grown" for tool in offered.tools), source)


async def test_a_list_in_pages_is_read_whole() -> None:
    async with connected(bad=McpServer(command=(sys.executable, MISBEHAVING, "--pages"))) as (_, source):
        assert len(await tools_of(source)) == 100


@pytest.mark.req("A-02")
@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (McpServer(command=(sys.executable, MISBEHAVING, "--dead")), "exit code 1: cannot find my configuration"),
        (McpServer(command=(sys.executable, MISBEHAVING, "--silent"), connect_seconds=1.0), "did not answer in time"),
        (McpServer(command=("/no/such/program",)), "there is no program '/no/such/program'"),
        (McpServer(command=("true",), env={"A": "NOT_SET_ANYWHERE"}), "environment variable NOT_SET_ANYWHERE, which"),
        (McpServer(url="http://127.0.0.1:9/mcp", connect_seconds=5.0), "connect"),
    ],
)
async def test_a_server_that_is_down_costs_the_turn_its_tools_and_the_user_is_told(
    server: McpServer, reason: str
) -> None:
    servers = McpServers({"down": server})
    row = AgentRow(id="helper", name="Helper", provider="rehearsal", settings={"mcp": ["down"]})
    try:
        agent = build_agent(row, servers=servers)
        await servers.report()
        events = await events_of(agent, prompt_of("calculate 6*7"))
        said = next(event.text for event in events if isinstance(event, Status))
        assert said.startswith("MCP server down is not available, so its tools are missing: ")
        assert reason in said
        assert "6*7 is 42." in text_of(events)
    finally:
        await servers.close()


@pytest.mark.req("A-02")
@pytest.mark.parametrize(
    ("name", "server", "said"),
    [
        ("a__b", McpServer(command=("x",)), "`mcp.a__b` must be named with"),
        ("a", McpServer(), "`mcp.a` must have either `command` or `url`, got neither"),
        ("a", McpServer(command=("x",), url="http://a"), "got both"),
        ("a", McpServer(url="ftp://a"), "`mcp.a.url` must begin with http:// or https://"),
        ("a", McpServer(url="http://a", env={"A": "B"}), "`mcp.a.env` can be used only with `command`"),
        ("a", McpServer(command=("x",), headers={"A": "B"}), "`mcp.a.headers` can be used only with `url`"),
        ("a", McpServer(command=("x",), env={"TOKEN": "s3cret value"}), "`mcp.a.env.TOKEN` must be the name of an env"),
        ("a", McpServer(command=("x",), env={"TOKEN": "ghp_" + "a1" * 18}), "`mcp.a.env.TOKEN` must be the name"),
        ("a", McpServer(url="http://a", headers={"X": "Bearer abc"}), "`mcp.a.headers.X` must be the name of an env"),
        ("a", McpServer(command=("x", "--key", "sk-proj-abcdefghijklmnop1234")), "`mcp.a` contains a secret"),
    ],
)
def test_invalid_settings_and_literal_secrets_are_refused(name: str, server: McpServer, said: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        McpServers({name: server})
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "ghp_" not in str(caught.value)


async def test_an_agent_that_names_an_unknown_server_or_is_a_tenants_is_refused() -> None:
    row = AgentRow(id="helper", name="Helper", provider="rehearsal", settings={"mcp": ["gone"]})
    with pytest.raises(SettingsInvalid, match="agent 'helper': `mcp`: there is no MCP server 'gone': the settings"):
        build_agent(row, servers=McpServers({"b": BAD}))
    with pytest.raises(SettingsInvalid, match="is reserved for the operator"):
        build_agent(row, trusted=False)


async def test_secrets_reach_the_server_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "from outside")
    async with connected(bad=msgspec.structs.replace(BAD, env={"SECRET": "MY_SECRET"})) as (_, source):
        assert await call(source, "bad__echo", text="it is") == "it is from outside"


@pytest.mark.parametrize("name", ["a b", "x" * 100, "ünïcode", "a.b/c"])
def test_names_are_what_providers_accept(name: str) -> None:
    spelled = full_name("server", name)
    assert len(spelled) <= 64
    assert spelled.isascii()
    assert full_name("server", f"{name}!") != spelled or full_name("server", f"{name}!", [spelled]) != spelled


def settings_of(model: StubModel, server: McpServer = BAD, **agent: Any) -> Settings:
    helper = AgentSettings("openai", "stub", mcp=("bad",), settings=model.settings(**agent))
    return Settings(database=":memory:", agent="helper", agents={"helper": helper}, mcp={"bad": server})


@pytest.mark.req("A-02")
async def test_http_and_the_library_run_the_tools_of_a_server() -> None:
    echo = [("bad__echo", {"text": "Porto"})]
    with stub_model(echo, "Done.", echo, "Done again.") as model:
        async with threadline.open(settings=settings_of(model)) as tl:
            await tl.mcp_servers.report()
            assert (await (await tl.as_user("ada").create_thread()).ask("go")).text == "Done."
            assert model.results == ["Porto"]
            async with serving(tl) as client:
                body = {"id": "key", "message": {"role": "user", "parts": [{"type": "text", "text": "go"}]}}
                assert streamed_text(client.chunks(await client.http.post(CHAT, json=body))) == "Done again."


@pytest.mark.req("A-02")
async def test_a_tool_on_the_approve_list_waits_for_a_person_whatever_tools_say() -> None:
    server = msgspec.structs.replace(BAD, approve=("ech*",))
    with stub_model([("bad__approve_all", {})], [("bad__echo", {"text": "x"})], "Done.") as model:
        async with threadline.open(settings=settings_of(model, server)) as tl:
            await tl.mcp_servers.report()
            thread = await tl.as_user("ada").create_thread()
            await thread.ask("go", approver=threadline.Defer())
            (pending,) = await thread.pending()
            assert (pending.name, "approved everything" in model.results[0]) == ("bad__echo", True)
            assert len(model.requests) == 2
            assert (await thread.respond({pending.id: False})).text == "Done."
            assert model.results[-1].startswith("denied")


@pytest.mark.req("A-02")
@pytest.mark.parametrize("calls", [[("nothing", {})], [("bad__echo", '{"text": ')]])
async def test_a_model_that_calls_tools_wrongly_again_and_again_is_stopped_and_the_user_is_told(calls: Any) -> None:
    with stub_model(calls) as model:
        async with threadline.open(settings=settings_of(model, limits={"rounds": 100})) as tl:
            await tl.mcp_servers.report()
            thread = await tl.as_user("ada").create_thread()
            with pytest.raises(threadline.AgentFailed, match="unknown tools or sent invalid input 12 times in a"):
                await thread.ask("go")
        assert len(model.requests) == 12


@pytest.mark.req("A-02")
def test_the_terminal_uses_lists_and_checks_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("THREADLINE_DATABASE", "THREADLINE_SETTINGS", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    program = Path(sys.executable).with_name("threadline")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    with stub_model([("bad__echo", {"text": "Porto"})], "Done.") as model:
        toml = model.toml('mcp = ["bad"]')
        command = json.dumps([sys.executable, MISBEHAVING])
        (tmp_path / "threadline.toml").write_text(f'{toml}\n[mcp.bad]\ncommand = {command}\napprove = ["die"]\n')
        said = run("chat", "-p", "go")
        assert (said.returncode, "Done." in said.stdout, model.results) == (0, True, ["Porto"]), said.stderr
    listed = json.loads(run("mcp-servers", "list", "--json").stdout)["servers"]
    assert [(each["name"], each["state"], len(each["tools"])) for each in listed] == [("bad", "ready", 10)]
    tested = run("mcp-servers", "test", "bad")
    assert "tool bad__die (asks for approval)" in tested.stdout
    assert run("mcp-servers", "test", "gone").returncode == 3
    assert run("doctor").returncode == 0
    text = (tmp_path / "threadline.toml").read_text().replace(MISBEHAVING, "/no/such/file.py")
    (tmp_path / "threadline.toml").write_text(text)
    broken = run("mcp-servers", "test")
    assert (broken.returncode, broken.stdout.startswith("bad: failed: it ended with exit code 2")) == (1, True)
    assert "error: MCP server bad failed" in run("doctor").stdout
