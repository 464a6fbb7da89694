"""The service or the terminal is killed in every phase of a tool call: no tool that is not repeatable runs twice, the
next prompt says what ran, and the service continues the reply.

The tools write a line for each run. A model server that outlives the processes says what the model was told.
"""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

import threadline
from tests.cli.stub_model import Call, StubModel, serve_model
from tests.messaging.test_kills import reachable
from tests.ports import free_port
from tests.service.phase_process import PHASES, Phase, start
from tests.service.processes import SECONDS
from threadline.core.parts import ToolPart

TILL = '''
import os, pathlib, signal
from threadline import tool

def _ring(what: str) -> str:
    with pathlib.Path("till.log").open("a") as file:
        file.write(f"{what}\\n")
    if os.environ.get("DIES_IN_THE_TOOL"):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"done {what}"

@tool
async def once(sum: int) -> str:
    """Pays. Not repeatable."""
    return _ring(str(sum))

@tool(repeatable=True)
async def again(sum: int) -> str:
    """Looks a price up. Repeatable."""
    return _ring(str(sum))
'''
UNKNOWN = "it is not known whether it took effect"
DONE = "done 5"


def cases(*, also_again: tuple[Phase, ...] = ()) -> pytest.MarkDecorator:
    """Each phase with each tool. The tool that may run again is slow, but for the phases named here."""
    slow = [pytest.param(phase, "again", marks=pytest.mark.slow) for phase in PHASES if phase not in also_again]
    return pytest.mark.parametrize(
        ("phase", "tool"), [*((phase, "once") for phase in PHASES), *((phase, "again") for phase in also_again), *slow]
    )


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubModel]:
    with serve_model() as model:
        settings = tmp_path / "threadline.toml"
        model.write_settings(settings)
        settings.write_text(
            settings.read_text().replace("[agents.stub]", '[agents.stub]\ntools = ["till:once", "till:again"]')
        )
        (tmp_path / "till.py").write_text(TILL)
        yield model


def runs(home: Path) -> int:
    file = home / "till.log"
    return len(file.read_text().splitlines()) if file.exists() else 0


def check_prompt(stub: StubModel) -> None:
    """Every call in the last prompt has one result, as providers demand."""
    messages = stub.requests[-1]["messages"]
    calls = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    assert calls == [message["tool_call_id"] for message in messages if message["role"] == "tool"]


class Service:
    """The same service, life after life: its folder, database and address stay."""

    def __init__(self, home: Path, database: str) -> None:
        self._home = home
        self._port = free_port()
        self._words = ("serve", "--port", str(self._port), "--database", database, "--workers", "1")
        self._process: Any = None

    def start(self, phase: Phase | None = None) -> None:
        self._process = start(self._home, *self._words, phase=phase)
        asyncio.run(asyncio.wait_for(reachable(self._port), SECONDS))

    def ask(self) -> str:
        body = json.dumps({"id": "key", "message": {"role": "user", "content": "go"}}).encode()
        headers = {"content-type": "application/json", "idempotency-key": "k1"}
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/api/v1/ai/chat", body, headers)
        with urllib.request.urlopen(request, timeout=SECONDS) as stream:
            return str(stream.read().decode())

    def has_died(self) -> bool:
        self._process.join(SECONDS)
        return bool(self._process.exitcode == -signal.SIGKILL)

    def stop(self) -> None:
        self._process.terminate()
        self._process.join(SECONDS)


async def stored(database: str) -> list[tuple[str, str, list[ToolPart]]]:
    async with threadline.open(database) as tl:
        thread = await tl.as_user().open_thread("key")
        return [
            (message.role, message.text, [part for part in message.parts if isinstance(part, ToolPart)])
            for message in await thread.messages()
        ]


def kill_and_retry(home: Path, stub: StubModel, database: str, phase: Phase, tool: str) -> None:
    call: list[str | Call] = [Call(tool, {"sum": 5})]
    # What was asked for before its intent was stored is asked for again: the model knows nothing of it.
    stub.replies = [call, *([call] if phase == "before the intent" else []), ["All done."]]
    service = Service(home, database)
    service.start(phase)
    with pytest.raises((OSError, HTTPException)):
        service.ask()
    assert service.has_died()
    service.start()
    try:
        streamed = service.ask()
    finally:
        service.stop()
    assert "All done." in streamed
    is_unknown = tool == "once" and phase in ("after the intent", "during the call", "before the result")
    has_run = phase in ("during the call", "before the result")
    expected = {"after the intent": 0}.get(phase, 1) if tool == "once" else 1 + has_run
    assert runs(home) == expected
    check_prompt(stub)
    (result,) = stub.results()
    assert (UNKNOWN if is_unknown else DONE) in result
    (asked, reply) = asyncio.run(stored(database))
    assert asked[:2] == ("user", "go")
    assert reply[:2] == ("assistant", "All done.")
    assert [part.state for part in reply[2]] == ["output-error" if is_unknown else "output-available"]


@pytest.mark.req("A-01", "S1-13", "S1-16")
@cases(also_again=("after the intent", "during the call"))
def test_a_service_killed_in_a_call_ends_the_reply_and_repeats_no_effect(
    tmp_path: Path, stub: StubModel, phase: Phase, tool: str
) -> None:
    kill_and_retry(tmp_path, stub, str(tmp_path / "t.db"), phase, tool)


@pytest.mark.slow
@pytest.mark.req("A-01", "S1-13", "S1-16")
@cases()
def test_the_same_on_postgresql(tmp_path: Path, stub: StubModel, phase: Phase, tool: str) -> None:
    from threadline.testing.postgres import shared_server

    kill_and_retry(tmp_path, stub, asyncio.run(shared_server().create_database()), phase, tool)


@pytest.mark.req("A-01", "T-06")
@cases()
def test_a_terminal_killed_in_a_call_runs_nothing_again_and_tells_the_next_prompt(
    tmp_path: Path, stub: StubModel, phase: Phase, tool: str
) -> None:
    stub.replies = [[Call(tool, {"sum": 5})], ["Hello again."]]
    killed = start(tmp_path, "chat", "-p", "go", phase=phase)
    killed.join(SECONDS)
    assert killed.exitcode == -signal.SIGKILL, (tmp_path / "log").read_text()
    next_one = start(tmp_path, "chat", "--continue", "-p", "hello")
    next_one.join(SECONDS)
    assert next_one.exitcode == 0, (tmp_path / "log").read_text()
    assert runs(tmp_path) == (phase not in ("before the intent", "after the intent"))
    check_prompt(stub)
    said = " ".join(stub.results())
    has_result = phase in ("after the result", "before the finish")
    assert (DONE in said) is has_result
    assert (UNKNOWN in said) is (not has_result and phase != "before the intent")
