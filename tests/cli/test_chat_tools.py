"""Built-in tools in `threadline chat`: asking, rules, diffs, and a terminal that is killed while a tool runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.stub_model import Call, StubModel, serve_model
from tests.cli.test_chat import Terminal
from tests.cli.test_chat import terminal as terminal
from tests.service.processes import eventually, is_streamed
from threadline.cli.chat.tool_rules import ToolRules
from threadline.core.events import ToolCall
from threadline.settings import load

APPEND = Call("run_command", {"command": "echo once >> log"})


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubModel]:
    with serve_model() as model:
        model.write_settings(tmp_path / "threadline.toml")
        yield model


@pytest.mark.req("A-03")
def test_a_chat_has_no_tools_unless_they_are_asked_for(run: Run, stub: StubModel) -> None:
    run("chat", "-p", "hello")
    assert "tools" not in stub.requests[-1]
    run("chat", "--tools", "-p", "hello")
    offered = {tool["function"]["name"] for tool in stub.requests[-1]["tools"]}
    assert offered == {"read_file", "list_files", "search_files", "write_file", "edit_file", "run_command"}
    assert run("chat", "--tools", "--server", "http://127.0.0.1:1", "-p", "x").code == 2


@pytest.mark.req("A-03")
def test_reading_needs_no_question_and_writing_does(run: Run, home: Path, stub: StubModel) -> None:
    (home / "notes.txt").write_text("remember the milk\n")
    stub.replies = [
        [
            Call("read_file", {"path": "notes.txt"}),
            Call("read_file", {"path": ".env"}),
            Call("write_file", {"path": "x", "text": "y"}),
        ],
        ["Done."],
    ]
    asked = run("chat", "--tools", "-p", "look", "--json")
    states = [(call["name"], call["state"]) for call in asked.json()["tools"]]
    assert states == [
        ("read_file", "output-available"),
        ("read_file", "output-denied"),
        ("write_file", "output-denied"),
    ]
    assert "remember the milk" in stub.results()[0]
    assert not (home / "x").exists()


@pytest.mark.req("A-03")
def test_a_change_is_shown_asked_for_and_remembered_for_the_folder(
    terminal: Terminal, tmp_path: Path, stub: StubModel
) -> None:
    (tmp_path / "main.py").write_text("def add(a, b):\n    return a - b\n")
    edit = Call("edit_file", {"path": "main.py", "old": "a - b", "new": "a + b"})
    back = Call("edit_file", {"path": "./main.py", "old": "a + b", "new": "a - b"})
    stub.replies = [[edit], ["Edited."], [back], ["Edited back."], [APPEND], ["No."], [APPEND], ["Ran."]]
    terminal.start("--tools")
    terminal.send("fix it")
    terminal.expect("return a - b")
    terminal.expect("return a + b")
    terminal.expect("The agent wants to make this change with edit_file")
    terminal.expect("always in this [f]older")
    assert "a - b" in (tmp_path / "main.py").read_text()
    terminal.type("f")
    terminal.expect("Allowed in this folder from now on: edit_file")
    terminal.expect("Edited.")
    assert "a + b" in (tmp_path / "main.py").read_text()
    rules = load(tmp_path / "threadline.toml", environ={}).workspace.allow
    assert rules == {str(tmp_path): ("edit_file",)}
    terminal.send("back")
    terminal.expect("+    return a - b")
    terminal.expect("Edited back.")
    terminal.send("run")
    terminal.expect("The agent wants to run run_command")
    terminal.expect("Allow?")
    terminal.press("c")
    terminal.expect("not allowed: the user said no")
    terminal.expect("No.")
    terminal.send("run")
    terminal.expect("Allow?")
    terminal.type("y")
    terminal.expect("Ran.")
    terminal.quit()
    assert (tmp_path / "log").read_text() == "once\n"


@pytest.mark.req("A-03")
@pytest.mark.parametrize("phase", ["asking", "running", "after"])
def test_a_killed_terminal_runs_no_tool_twice(terminal: Terminal, tmp_path: Path, stub: StubModel, phase: str) -> None:
    command = "echo once >> log; sleep 5" if phase == "running" else "echo once >> log"
    stub.replies = [[Call("run_command", {"command": command})], ["Hello again."]]
    stub.hold_after = 1 if phase == "after" else None
    terminal.start("--tools", *([] if phase == "asking" else ["--allow-tools"]))
    terminal.send("run it")
    if phase == "asking":
        terminal.expect("Allow?")
    else:
        eventually((tmp_path / "log").exists)
    # What was shown is stored a moment after it was printed.
    eventually(lambda: is_streamed(tmp_path / ".local/share/threadline/threadline.sqlite3", "run_command"))
    if phase == "after":
        eventually(lambda: len(stub.requests) == 2)
    terminal.kill()
    stub.release()
    terminal.start("--tools", "--continue")
    terminal.expect("run_command")
    terminal.expect("(interrupted)")
    terminal.send("hello")
    terminal.expect("Hello again.")
    terminal.quit()
    assert (tmp_path / "log").exists() == (phase != "asking")
    if phase != "asking":
        assert (tmp_path / "log").read_text() == "once\n"
    # Every call in the next prompt has one result, as providers demand.
    messages = stub.requests[-1]["messages"]
    calls = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    assert calls == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert json.loads(terminal.run("threads", "list", "--json"))["threads"][0]["messageCount"] == 4


PAY = """
import os, pathlib, signal

def pay(sum: int) -> str:
    \"\"\"Pays.\"\"\"
    pathlib.Path("paid").open("a").write(f"{sum}\\n")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.req("A-01", "T-06")
def test_a_terminal_killed_at_once_in_a_tool_tells_the_next_prompt_that_it_was_started(
    run: Run, home: Path, stub: StubModel
) -> None:
    """The tool kills its process within milliseconds of its intent: its call was not stored with the stream yet."""
    (home / "till.py").write_text(PAY)
    settings = home / "threadline.toml"
    settings.write_text(settings.read_text().replace("[agents.stub]", '[agents.stub]\ntools = ["till:pay"]'))
    stub.replies = [[Call("pay", {"sum": 5})], ["Hello again."]]
    env = {**os.environ, "HOME": str(home)}
    command = [sys.executable, "-m", "threadline", "chat", "-p"]
    killed = subprocess.run([*command, "pay 5"], cwd=home, env=env, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    asked = subprocess.run([*command, "hello", "--continue"], cwd=home, env=env, capture_output=True, check=False)
    assert asked.stdout == b"Hello again.\n", asked.stderr
    messages = stub.requests[-1]["messages"]
    (call,) = [call["function"] for message in messages for call in message.get("tool_calls") or ()]
    assert (call["name"], json.loads(call["arguments"])) == ("pay", {"sum": 5})
    assert "it is not known whether it took effect" in stub.results()[0]
    assert (home / "paid").read_text() == "5\n"


@pytest.mark.req("A-03")
@pytest.mark.parametrize(
    ("allow", "deny", "call", "decided"),
    [
        ((), (), ("read_file", {"path": "a.py"}), "allow"),
        ((), (), ("read_file", {"path": ".env"}), None),
        ((), (), ("read_file", {"path": "keys/id_rsa"}), None),
        (("read_file",), (), ("read_file", {"path": ".env"}), None),
        (("read_file .env",), (), ("read_file", {"path": ".env"}), "allow"),
        ((), ("read_file *.py",), ("read_file", {"path": "a.py"}), "deny"),
        (("write_file src/*",), (), ("write_file", {"path": "src/a.py", "text": ""}), "allow"),
        (("write_file src/*",), (), ("write_file", {"path": "a.py", "text": ""}), None),
        (("write_file",), ("write_file *.toml",), ("write_file", {"path": "threadline.toml", "text": ""}), "deny"),
        (("run_command make *",), (), ("run_command", {"command": "make test"}), "allow"),
        (("run_command make *",), (), ("run_command", {"command": "make test; rm -r ."}), None),
        (("run_command make *",), (), ("run_command", {"command": "make $(rm -r .)"}), None),
        (("run_command a; b",), (), ("run_command", {"command": "a; b"}), "allow"),
        ((), (), ("run_command", {"command": "ls"}), None),
        ((), (), ("other", None), None),
    ],
)
def test_rules(allow: tuple[str, ...], deny: tuple[str, ...], call: tuple[str, object], decided: str | None) -> None:
    assert ToolRules(allow, deny).decide(ToolCall("1", *call)) == decided


@pytest.mark.req("A-03")
def test_settings_can_give_tools_and_rules(run: Run, home: Path, stub: StubModel) -> None:
    stub.write_settings(
        home / "threadline.toml",
        "[workspace]",
        "tools = true",
        "[workspace.allow]",
        f'"{home}" = ["run_command echo *"]',
    )
    stub.replies = [[Call("run_command", {"command": "echo hi"}), Call("run_command", {"command": "ls"})], ["Done."]]
    states = [call["state"] for call in run("chat", "-p", "go", "--json").json()["tools"]]
    assert states == ["output-available", "output-denied"]
    assert run("chat", "--no-tools", "-p", "go").code == 0
    assert "tools" not in stub.requests[-1]
    assert os.environ.get("THREADLINE_SETTINGS") is None
