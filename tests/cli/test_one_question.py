"""`threadline chat -p`: piped text, JSON results and JSON events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.stub_model import Call, StubModel, serve_model
from threadline.cli.chat import piped_text


@pytest.fixture
def stub(home: Path) -> Iterator[StubModel]:
    with serve_model() as model:
        model.write_settings(home / "threadline.toml")
        yield model


def ask(home: Path, *words: str, stdin: bytes | int) -> subprocess.CompletedProcess[bytes]:
    """`threadline chat` as a process of its own, with real pipes."""
    command = [sys.executable, "-m", "threadline", "chat", *words]
    given: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    env = {**os.environ, "HOME": str(home)}
    return subprocess.run(command, cwd=home, env=env, capture_output=True, check=False, **given)


@pytest.mark.req("T-02")
def test_piped_text_is_part_of_the_question(home: Path, stub: StubModel) -> None:
    asked = ask(home, "-p", "summarise this", stdin="FILE CONTENT\nzweite Zeile: ü\n".encode())
    assert (asked.returncode, asked.stdout) == (0, b"Hello from the stub.\n")
    assert stub.questions() == ["summarise this\n\nFILE CONTENT\nzweite Zeile: ü"]


@pytest.mark.req("T-02")
def test_a_question_needs_no_piped_text(home: Path, stub: StubModel) -> None:
    assert ask(home, "-p", "hello", stdin=subprocess.DEVNULL).returncode == 0
    assert ask(home, "-p", "hello", stdin=b"").returncode == 0
    assert ask(home, "-p", stdin=b"only piped\n").returncode == 0
    assert ask(home, "-p", "-", stdin=b"only piped\n").returncode == 0
    assert stub.questions() == ["hello", "hello", "only piped", "only piped"]


@pytest.mark.req("T-02")
@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "standard input must be text, got binary data"),
        (b"caf\xe9", "standard input must be UTF-8 text, got byte 0xe9 at offset 3"),
        (b"x" * 2_000_000, "message size in bytes must be at most 1048576"),
        (b"x" * (piped_text.MOST_BYTES + 1), "text on standard input in bytes must be at most 16777216"),
    ],
    ids=["binary", "latin-1", "too long for a message", "too long to read"],
)
def test_piped_data_that_cannot_be_sent_is_refused(home: Path, stub: StubModel, given: bytes, fault: str) -> None:
    asked = ask(home, "-p", "what is this?", stdin=given)
    assert (asked.returncode, asked.stdout) == (2, b"")
    assert fault in asked.stderr.decode()
    assert asked.stderr.count(b"\n") == 1
    assert stub.requests == []


@pytest.mark.req("T-02")
def test_a_silent_pipe_is_explained(home: Path, stub: StubModel) -> None:
    command = [sys.executable, "-m", "threadline", "chat", "-p", "hello"]
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, cwd=home, env={**os.environ, "HOME": str(home)}, **streams) as process:
        assert process.stderr is not None
        assert b"waiting for the text on standard input" in process.stderr.readline()
        out, _ = process.communicate(b"late text\n")
    assert out == b"Hello from the stub.\n"
    assert stub.questions() == ["hello\n\nlate text"]


@pytest.mark.req("T-02")
def test_json_has_reply_usage_tools_and_saved(run: Run, home: Path, stub: StubModel) -> None:
    stub.write_settings(home / "threadline.toml", "[prices.stub-small]", "input = 1.0", "output = 10.0", "[agents]")
    stub.replies = [["Let me see. ", Call("unknown", {"path": "x"})], ["There is ", "no such tool."]]
    result = run("chat", "-p", "use a tool", "--json").json()
    assert result["text"] == "Let me see. \n\nThere is no such tool."
    assert (result["status"], result["saved"], result["agentId"], result["model"]) == (
        "executed",
        True,
        "stub",
        "stub-small",
    )
    assert result["usage"] == {
        "inputTokens": 2_000,
        "outputTokens": 40,
        "cachedTokens": 0,
        "reasoningTokens": 0,
        "cost": pytest.approx(0.0024),
    }
    (call,) = result["tools"]
    assert (call["name"], call["input"], call["state"]) == ("unknown", {"path": "x"}, "output-error")
    assert "unknown tool" in call["error"]
    again = run("chat", "--continue", "-p", "and now?", "--json").json()
    assert (again["threadId"], again["text"], again["tools"]) == (result["threadId"], "There is no such tool.", [])


@pytest.mark.req("T-02")
def test_json_says_why_a_question_failed(run: Run) -> None:
    failed = run("chat", "-p", "fail", "--json")
    assert failed.code == 1
    assert failed.json()["status"] == "dispatch_failed"
    assert failed.json()["error"]
    refused = run("chat", "--agent", "missing", "-p", "hello", "--json")
    assert refused.code == 3
    assert refused.json() == {
        "status": "refused",
        "text": "",
        "saved": False,
        "error": "agent 'missing' not found",
        "code": "not_found",
    }


@pytest.mark.req("T-02")
def test_stream_json_prints_events_and_the_result(run: Run) -> None:
    asked = run("chat", "-p", "calculate 6*7", "--stream-json")
    lines = [json.loads(line) for line in asked.out.splitlines()]
    start, *events, result = lines
    assert start["type"] == "start"
    assert (result["type"], result["status"], result["saved"]) == ("result", "executed", True)
    assert (start["threadId"], start["turnId"]) == (result["threadId"], result["turnId"])
    call = next(event for event in events if event["type"] == "tool-call")
    assert (call["name"], call["input"]) == ("calculate", {"expression": "6*7"})
    done = next(event for event in events if event["type"] == "tool-result")
    assert (done["callId"], done["output"]) == (call["callId"], "42")
    said = "".join(event["text"] for event in events if event["type"] == "text-delta")
    assert said.split() == result["text"].replace("\n\n", "").split()
    assert events[-1] == {"type": "finish", "reason": "stop"}
    refused = run("chat", "--agent", "missing", "-p", "hello", "--stream-json")
    assert json.loads(refused.out)["type"] == "result"


@pytest.mark.req("T-02")
def test_a_tool_that_no_one_can_allow_is_not_refused_in_the_name_of_the_user(run: Run) -> None:
    asked = run("chat", "-p", "stamp hello", "--json")
    assert "stamp was not run: with -p nobody can be asked; --allow-tools allows it" in asked.err
    assert asked.json()["tools"][0]["state"] == "output-denied"


@pytest.mark.req("T-02")
@pytest.mark.parametrize("command", ["show", "export"])
def test_keys_are_spelled_as_over_http(run: Run, thread_id: str, command: str) -> None:
    words = ["--json"] if command == "show" else ["--format", "json"]
    shown = run("threads", command, thread_id, *words).json()
    (listed,) = run("threads", "list", "--json").json()["threads"]
    assert shown["messageCount"] == listed["messageCount"] == 4
    keys = {*shown, *listed}
    assert not [key for key in keys if "_" in key]
