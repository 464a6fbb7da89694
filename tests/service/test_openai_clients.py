"""Clients that speak OpenAI's API, unmodified: OpenAI's npm client, the AI SDK's provider, the Agents SDK and `llm`."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.framework_packages import run_in_frameworks
from tests.npm_packages import NODE, install
from tests.service.conftest import SERVICE
from tests.service.running_service import Client, serving
from threadline.agents.function import as_agent
from threadline.bootstrap import open as open_threadline
from threadline.core.events import Event, ToolCall, Usage
from threadline.core.parts import ToolPart, plain_text
from threadline.core.prompts import Prompt
from threadline.settings import Settings

pytestmark = pytest.mark.req("G-04")
HERE = Path(__file__).parent


async def _reply(prompt: Prompt) -> AsyncGenerator[Event | str, None]:
    """Asks for the weather where the question is about rain, and says what it was told."""
    last = prompt.messages[-1]
    told = [part.output_value() for part in last.parts if isinstance(part, ToolPart) and part.is_answered]
    yield Usage(input_tokens=10, output_tokens=2)
    match plain_text(last.parts):
        case "Rain?" if last.role == "user":
            yield ToolCall(f"call-{len(prompt.messages)}", "weather", {"city": "Porto"})
        case "Where?":
            yield '{"name": "Porto"}'
        case _ if told:
            yield f"It is {told[0]}."
        case _:
            yield f"Hello, you. {len(prompt.messages)}"


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    settings = Settings(database=":memory:", agent="scripted", service=SERVICE)
    async with (
        open_threadline(settings=settings, agents={"scripted": as_agent(_reply)}) as opened,
        serving(opened) as running,
    ):
        yield running


async def _drive(client: Client, scene: str) -> dict[str, Any]:
    home = await asyncio.to_thread(install, HERE / "npm-openai", "openai")
    driver = shutil.copy(HERE / "npm-openai" / "drive.mjs", home)
    process = await asyncio.create_subprocess_exec(
        NODE, driver, client.url, scene, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    shown: dict[str, Any] = json.loads(out)
    return shown


async def _threads(client: Client) -> list[Any]:
    found: list[Any] = (await client.http.get("/api/v1/ai/threads")).json()["threads"]
    return found


async def test_the_npm_client_does_everything(client: Client) -> None:
    shown = await _drive(client, "client")
    numbers = shown.pop("numbers")
    assert numbers == list(range(len(numbers)))
    assert shown == {
        "text": "Hello, you. 1",
        "events": [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ],
        "polled": ["completed", "Hello, you. 1"],
        "resumed": list(range(3, 10)),
        "items": ["user", "user", "assistant"],
        "left": 2,
        "input": [["input_text", "input_image"]],
        "gone": "NotFoundError",
        "chat": "Hello, you. 1",
        "chunks": "Hello, you. 1",
    }


async def test_the_npm_client_parses_structured_outputs(client: Client) -> None:
    assert await _drive(client, "parse") == {"parsed": {"name": "Porto"}}


async def test_the_npm_client_runs_function_tools(client: Client) -> None:
    assert await _drive(client, "tools") == {"call": ["weather", '{"city":"Porto"}'], "told": "It is rain."}


async def test_the_ai_sdk_provider_continues_one_thread(client: Client) -> None:
    shown = await _drive(client, "provider")
    assert shown["first"] == "It is rain."
    assert (shown["steps"], shown["chat"]) == (2, "Hello, you. 1")
    assert shown["second"].startswith("Hello, you.")
    assert len(await _threads(client)) == 1


async def test_the_agents_sdk_runs_tools_and_keeps_its_session_in_a_conversation(client: Client) -> None:
    script = HERE.parent / "frameworks" / "drive_openai_agents.py"
    done = await asyncio.to_thread(run_in_frameworks, script, client.url)
    assert done.returncode == 0, done.stdout
    shown = json.loads(done.stdout)
    assert shown == {
        "chat": ["It is rain.", "It is rain."],
        "tool": "It is rain.",
        "continued": "Hello, you. 4",
        "streamed": "Hello, you. 2",
        "session": ["It is rain.", "Hello, you. 4"],
        "items": ["user", "function_call", "function_call_output", "assistant", "user", "assistant"],
        "popped": "assistant",
    }


# `llm` reads a prompt from standard input too, where that is not a terminal.
_LLM = """
import runpy, sys
sys.stdin = open("/dev/null")
runpy.run_module("llm", run_name="__main__")
"""


async def test_llm_asks_continues_and_runs_functions(client: Client, tmp_path: Path) -> None:
    models = [{"model_id": "ours", "model_name": "scripted", "api_base": f"{client.url}/v1", "supports_tools": True}]
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(models))

    async def llm(*words: str) -> str:
        variables = {"LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none"}
        done = await asyncio.to_thread(run_in_frameworks, "-c", _LLM, *words, variables=variables)
        assert done.returncode == 0, done.stdout
        return done.stdout.strip()

    assert await llm("-m", "ours", "Hi") == "Hello, you. 1"
    assert await llm("-c", "And now?") == "Hello, you. 3"
    assert await llm("-m", "ours", "--no-stream", "Hi") == "Hello, you. 1"
    weather = "def weather(city: str) -> str:\n    return 'rain'"
    assert await llm("-m", "ours", "--functions", weather, "Rain?") == "It is rain."
    # Chat completions leave nothing.
    assert await _threads(client) == []
