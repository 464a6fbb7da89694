"""Agents from configuration rows: which adapter is chosen, what is refused, which extras are needed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agent_calls import events_of, text_of
from tests.agents.fault_server import answer, faulty
from tests.agents.mock_provider import MockProvider
from threadline.agents.registry import build_agent
from threadline.agents.tools import tool
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import SettingsInvalid
from threadline.core.events import ToolResult
from threadline.testing.agents import prompt_of

PROVIDERS = "anthropic, function, local, openai, rehearsal, remote"
SOURCE = Path(__file__).parents[2] / "src"


def row(provider: str, model: str | None = None, **settings: Any) -> AgentRow:
    return AgentRow(id="helper", name="Helper", provider=provider, model=model, settings=settings)


async def test_the_rehearsal_agent_needs_no_settings() -> None:
    assert "You said" in text_of(await events_of(build_agent(row("rehearsal")), prompt_of("hello")))


@pytest.mark.parametrize(("provider", "path"), [("openai", "/v1"), ("anthropic", "")])
async def test_a_provider_gets_the_configured_tools(provider: str, path: str, aimock: MockProvider) -> None:
    async def weather(city: str) -> str:
        if city == "Oz":
            raise LookupError("no such city")
        return "sunny"

    agent = build_agent(row(provider, "some-model", base_url=aimock.url + path), tools=[tool(weather)])
    events = await events_of(agent, prompt_of("weather?"))
    await agent.close()  # type: ignore[attr-defined]
    assert ToolResult("call_w1", "sunny") in events
    assert aimock.last_request()["model"] == "some-model"


async def test_a_remote_agent_gets_its_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELPER_TOKEN", "secret")
    async with faulty() as server:
        server.will(answer(200, b'{"content": "Hello."}'))
        agent = build_agent(row("remote", url=server.url, token_env="HELPER_TOKEN"))
        assert text_of(await events_of(agent, prompt_of("hi"))) == "Hello."
        assert server.requests[0].headers["authorization"] == "bearer secret"


async def test_a_function_is_imported_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "helpers_of_mine.py").write_text("async def echo(text: str):\n    yield text.upper()\n")
    monkeypatch.syspath_prepend(tmp_path)
    agent = build_agent(row("function", function="helpers_of_mine:echo"))
    assert text_of(await events_of(agent, prompt_of("hi"))) == "HI"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (row("oracle"), f"agent 'helper': `provider` must be one of {PROVIDERS}, got 'oracle'"),
        (
            row("openai", tempreature=1),
            (
                "agent 'helper': unknown setting `tempreature`: use models, tools, mcp, client_tools, "
                "api_key, api_key_env, base_url, silence_seconds, attempts, options, limits, with_usage, alternating"
            ),
        ),
        (row("openai", attempts="many"), "agent 'helper': `attempts` must be a whole number, got 'many'"),
        (
            row("openai", api_key="k", client_tools=[{"name": "a b"}]),
            "agent 'helper': `client_tools`: client tool name must match [A-Za-z0-9_-]{1,64}, got 'a b'",
        ),
        (row("remote"), "agent 'helper': `url` is required"),
        (
            row("remote", url="gopher://a"),
            "URL must start with http:// or https:// and be plain ASCII, got 'gopher://a'",
        ),
        (
            row("openai", api_key_env="NOT_SET_ANYWHERE"),
            "agent 'helper': environment variable NOT_SET_ANYWHERE is not set",
        ),
        (
            row("function", function="nowhere:at_all"),
            (
                "agent 'helper': `function` 'nowhere:at_all': no module 'nowhere': put it beside threadline.toml, "
                "or install it"
            ),
        ),
    ],
)
def test_an_invalid_row_is_an_error_that_names_the_fault(wrong: AgentRow, said: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        build_agent(wrong)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "greedy",
    [
        row("openai", base_url="http://127.0.0.1:8000/v1", api_key="k"),
        row("openai", api_key_env="PATH"),
        row("openai"),
        row("anthropic", base_url="http://10.0.0.1", api_key="k"),
        row("anthropic"),
        row("remote", url="https://a.example", token_env="PATH"),
        row("function", function="os:system"),
        row("local"),
    ],
)
def test_a_tenants_agent_may_not_use_the_operators_resources(greedy: AgentRow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the operator's")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the operator's")
    with pytest.raises(SettingsInvalid):
        build_agent(greedy, trusted=False)


async def test_a_tenants_remote_agent_may_not_reach_internal_addresses() -> None:
    async with faulty() as server:
        server.will(answer(200, b'{"content": "inside"}'))
        agent = build_agent(row("remote", url=server.url, attempts=1), trusted=False)
        with pytest.raises(Exception, match="must be public"):
            await events_of(agent, prompt_of("hi"))
        assert server.requests == []


@pytest.mark.parametrize(
    ("provider", "extra"), [("openai", "openai"), ("anthropic", "anthropic"), ("remote", "remote"), ("local", "local")]
)
def test_a_missing_extra_is_named(provider: str, extra: str, tmp_path: Path) -> None:
    """In a Python with only the base dependencies."""
    for name in ("msgspec", "apsw"):
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        (tmp_path / name).symlink_to(Path(found.origin).parent)
    ask = (
        "from threadline.agents.registry import build_agent\n"
        "from threadline.core.channels import Agent\n"
        "from threadline.core.errors import ExtraMissing\n"
        f"row = Agent(id='a', name='a', provider={provider!r}, settings={{'url': 'http://a'}})\n"
        "try:\n    build_agent(row)\nexcept ExtraMissing as exc:\n    print(exc)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{tmp_path}"}
    said = subprocess.run(
        [sys.executable, "-S", "-c", ask], capture_output=True, text=True, env=environment, check=True
    )
    assert f"pip install 'threadline[{extra}]'" in said.stdout
