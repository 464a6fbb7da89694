"""Tools that the settings name as `module:name`: what a model is offered, and what is an error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import threadline
from tests.agents.agent_calls import events_of, text_of
from tests.agents.stub_model import stub_model
from tests.service.running_service import CHAT, Client, serving, streamed_text
from threadline import settings as settings_
from threadline.agents.registry import build_agent
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import SettingsInvalid
from threadline.core.events import ToolCall, ToolResult
from threadline.core.model_texts import TitleSettings
from threadline.core.parts import ToolPart
from threadline.settings import AgentSettings, Settings
from threadline.testing.agents import prompt_of

NO_TITLES = TitleSettings(by_model=False)
TOOLS = '''
"""Facts about cities."""

from threadline import tool
from threadline.agents.loop import LoopAgent

def population(city: str) -> int:
    """How many people live in a city."""
    return {"Lisbon": 545_000}.get(city, 0)

@tool(name="area", needs_approval=True)
def area_of(city: str) -> int:
    """How large a city is, in square kilometres."""
    return 100

def broken(*cities): ...

class Atlas: ...

number = 7
'''
ASK = "How many people live in Lisbon?"
POPULATION = [("population", {"city": "Lisbon"})]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module of tools."""
    (tmp_path / "cities.py").write_text(TOOLS)
    (tmp_path / "faulty.py").write_text("1 / 0\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "needy.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("THREADLINE_DATABASE", "THREADLINE_SETTINGS", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    for name in ("calling", "cities", "faulty", "leaving", "needy"):
        sys.modules.pop(name, None)


@pytest.fixture
def importable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(folder)
    return folder


def row(provider: str, **settings: Any) -> AgentRow:
    return AgentRow(id="helper", name="Helper", provider=provider, model="stub", settings=settings)


def chat(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`threadline chat`, started as its users start it: not with `python -m`, which has the folder on its path."""
    program = Path(sys.executable).with_name("threadline")
    return subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.req("A-01")
def test_the_terminal_runs_the_tools_beside_its_settings(folder: Path) -> None:
    with stub_model(POPULATION, "545,000.") as model:
        (folder / "threadline.toml").write_text(model.toml('tools = ["cities:population"]'))
        said = chat(folder, "chat", "-p", ASK)
        assert (said.returncode, "545,000." in said.stdout) == (0, True), said.stderr
        assert (model.offered, model.results) == (["population"], ["545000"])
        offered = model.requests[0]["tools"][0]["function"]
    assert offered["description"] == "How many people live in a city."
    assert offered["parameters"]["properties"] == {"city": {"type": "string"}}


@pytest.mark.req("A-01")
def test_a_named_settings_file_finds_modules_beside_it_and_in_the_working_folder(folder: Path) -> None:
    elsewhere = folder / "etc"
    elsewhere.mkdir()
    (elsewhere / "beside.py").write_text("def here() -> str:\n    return 'beside'\n")
    with stub_model([("here", {}), *POPULATION], "Done.") as model:
        file = elsewhere / "threadline.toml"
        file.write_text(model.toml('tools = ["beside:here", "cities:population"]'))
        said = chat(folder, "chat", "--settings", str(file), "-p", ASK)
        assert (said.returncode, model.results) == (0, ["beside", "545000"]), said.stderr


@pytest.mark.req("A-01")
def test_the_users_own_settings_do_not_put_the_working_folder_on_the_path(folder: Path) -> None:
    """That file holds in every folder, also in one with someone else's code."""
    config = folder / "home" / ".config" / "threadline"
    config.mkdir(parents=True)
    with stub_model(POPULATION, "Done.") as model:
        (config / "threadline.toml").write_text(model.toml('tools = ["cities:population"]'))
        refused = chat(folder, "chat", "-p", ASK)
        assert "tool 'cities:population': no module 'cities'" in refused.stderr
        (folder / "cities.py").rename(config / "cities.py")
        said = chat(folder, "chat", "-p", ASK)
        assert (said.returncode, model.results) == (0, ["545000"]), said.stderr


@pytest.mark.req("A-01")
def test_a_module_of_the_folder_takes_the_place_of_no_installed_one(folder: Path) -> None:
    (folder / "msgspec.py").write_text("raise SystemExit('hijacked')\n")
    (folder / "json.py").write_text("raise SystemExit('hijacked')\n")
    with stub_model("Hello.") as model:
        (folder / "threadline.toml").write_text(model.toml('tools = ["cities:population"]'))
        said = chat(folder, "chat", "-p", "hi")
        assert (said.returncode, said.stdout.strip()) == (0, "Hello."), said.stderr


@pytest.mark.req("A-01")
async def test_http_and_the_library_run_the_same_tools(importable: Path) -> None:
    with stub_model(POPULATION, "545,000.", POPULATION, "Again 545,000.") as model:
        agent = AgentSettings("openai", "stub", tools=("cities:population",), settings=model.settings())
        settings = Settings(database=":memory:", agent="helper", agents={"helper": agent}, titles=NO_TITLES)
        async with threadline.open(settings=settings) as tl:
            reply = await (await tl.as_user("ada").create_thread()).ask(ASK)
            assert reply.text == "545,000."
            async with serving(tl) as client:
                assert await _ask_over_http(client) == "Again 545,000."
        assert model.results == ["545000"]


async def _ask_over_http(client: Client) -> str:
    body = {"id": "key", "message": {"role": "user", "parts": [{"type": "text", "text": ASK}]}}
    return streamed_text(client.chunks(await client.http.post(CHAT, json=body)))


async def test_tools_of_the_process_are_offered_beside_those_of_the_settings(importable: Path) -> None:
    @threadline.tool
    def clock() -> str:
        return "noon"

    with stub_model([("clock", {})], "Noon.") as model:
        agent = AgentSettings("openai", "stub", tools=("cities:population",), settings=model.settings())
        settings = Settings(database=":memory:", agent="helper", agents={"helper": agent}, titles=NO_TITLES)
        async with threadline.open(settings=settings, tools=[clock]) as tl:
            await (await tl.as_user("ada").create_thread()).ask("What time is it?")
        assert (model.offered, model.results) == (["clock", "population"], ["noon"])


async def test_the_rehearsal_agent_uses_tools_of_the_settings(importable: Path) -> None:
    agent = build_agent(row("rehearsal", tools=["cities:population"]))
    events = await events_of(agent, prompt_of('use population with {"city": "Lisbon"}'))
    assert [event.output for event in events if isinstance(event, ToolResult)] == [545_000]
    assert "The tool population answered: 545000." in text_of(events)


async def test_an_agent_object_gets_the_tools_of_its_settings(importable: Path) -> None:
    (importable / "agent_of_mine.py").write_text(
        "from threadline.agents.loop import LoopAgent\nfrom threadline.testing.agents import ScriptedModel\n"
        "from threadline import events\nagent = LoopAgent(ScriptedModel("
        "(events.ToolCall('c1', 'population', {'city': 'Lisbon'}), events.Finish('tool-calls')),"
        "(events.TextDelta('Done.'), events.Finish())))\n"
    )
    agent = build_agent(row("function", function="agent_of_mine:agent", tools=["cities:population"]))
    events = await events_of(agent, prompt_of(ASK))
    assert ToolCall("c1", "population", {"city": "Lisbon"}) in events
    assert ToolResult("c1", 545_000) in events


CALLING = """
async def count(city: str, services):
    yield "Let me see. "
    yield f"{await services.call_tool('population', city=city):,}"
    try:
        await services.call_tool("area", city=city)
    except Exception as exc:
        yield f" ({exc})"
"""


@pytest.mark.req("A-01")
async def test_a_function_calls_the_tools_of_its_settings_through_the_same_path(importable: Path) -> None:
    (importable / "calling.py").write_text(CALLING)
    settings = {"function": "calling:count"}
    agent = AgentSettings("function", tools=("cities:population", "cities:area_of"), settings=settings)
    opened = Settings(database=":memory:", agent="helper", agents={"helper": agent})
    async with threadline.open(settings=opened) as tl:
        thread = await tl.as_user("ada").create_thread()
        text = (await thread.ask("Lisbon", approver=threadline.Defer())).text
        assert "545,000" in text
        assert "(area was denied: it needs approval, and this agent cannot wait for it)" in text
        parts = [part for message in await thread.messages() for part in message.parts if isinstance(part, ToolPart)]
        assert [(part.name, part.state) for part in parts] == [
            ("population", "output-available"),
            ("area", "output-denied"),
        ]


WHERE = "agent 'helper': tool "


@pytest.mark.req("A-01")
@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["cities"], "'cities' must be 'module:name'"),
        (["towns:population"], "'towns:population': no module 'towns': put it beside threadline.toml, or install it"),
        (
            ["cities:populaton"],
            "'cities:populaton': module 'cities' has no 'populaton', did you mean 'population'?",
        ),
        (["cities:number"], "'cities:number' must be a function or a Tool, got a int"),
        (["cities:Atlas"], "'cities:Atlas' must be a function or a Tool, got a class"),
        (["cities:broken"], "'cities:broken': parameters of tool broken must have names, got '*cities'"),
        (["faulty:x"], "'faulty:x': module 'faulty' cannot be imported: ZeroDivisionError: division by zero"),
        (["leaving:x"], "'leaving:x': module 'leaving' cannot be imported: SystemExit: 3"),
        (
            ["needy:x"],
            "'needy:x': module 'needy' needs a module that is missing: No module named 'no_such_package'",
        ),
        (
            ["cities:population", "cities:population"],
            "'cities:population': the name 'population' is used by 'cities:population': tool names must be unique",
        ),
    ],
)
def test_an_error_names_the_agent_the_tool_and_the_fault(importable: Path, names: list[str], said: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        build_agent(row("openai", api_key="k", tools=names))
    assert str(caught.value) == WHERE + said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            row("rehearsal", tools=["threadline.agents.rehearsal:calculate"]),
            (
                "agent 'helper': tool 'threadline.agents.rehearsal:calculate': the name 'calculate' is used by the "
                "agent's own: tool names must be unique"
            ),
        ),
        (
            row("remote", url="http://a", tools=["cities:population"]),
            "agent 'helper': an agent behind HTTP runs its own tools: remove `tools`",
        ),
        (
            row("openai", api_key="k", tools="cities:population"),
            "agent 'helper': `tools` must be a list, each a string, got 'cities:population'",
        ),
        (
            row("openai", api_key="k", tools=["cities:area_of"], client_tools=[{"name": "area"}]),
            "agent 'helper': `client_tools`: the agent has a tool 'area' already",
        ),
    ],
)
def test_tools_that_an_agent_cannot_have_are_refused(importable: Path, wrong: AgentRow, said: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        build_agent(wrong)
    assert str(caught.value) == said


@pytest.mark.req("A-01")
@pytest.mark.parametrize("provider", ["openai", "rehearsal"])
def test_a_tenants_agent_may_not_name_python_code(importable: Path, provider: str) -> None:
    key = {"api_key": "k"} if provider == "openai" else {}
    with pytest.raises(SettingsInvalid, match="Python code as in `tools` is reserved for the operator"):
        build_agent(row(provider, tools=["faulty:x"], **key), trusted=False)


def test_tools_can_be_set_in_the_environment(folder: Path) -> None:
    environ = {"THREADLINE_AGENTS__HELPER__PROVIDER": "rehearsal", "THREADLINE_AGENTS__HELPER__TOOLS": "a:b, c:d"}
    assert settings_.load(environ=environ).agents["helper"].tools == ("a:b", "c:d")
