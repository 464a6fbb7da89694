"""A terminal that is killed with kill -9 in mid-reply: the thread continues at once, and the part is marked as one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.test_chat import Terminal
from tests.cli.test_chat import other_terminal as other_terminal
from tests.cli.test_chat import terminal as terminal
from tests.service.processes import eventually, is_streamed

DATABASE = ".local/share/threadline/threadline.sqlite3"


# A process that waits for the lease of a killed one waits longer than any test runs: the promised delay is that of not
# waiting for it.
HOUR = {"THREADLINE_SERVICE__LEASE_SECONDS": "3600"}


@pytest.fixture
def killed(other_terminal: Terminal, tmp_path: Path) -> None:
    """A terminal that was killed while it showed a reply."""
    other_terminal.environment |= HOUR
    other_terminal.start()
    other_terminal.send("calculate 6*7")
    other_terminal.expect("6*7 is 42.")
    other_terminal.send("slow 300")
    other_terminal.expect("I am")
    eventually(lambda: is_streamed(tmp_path / DATABASE, " am"))
    other_terminal.kill()


@pytest.mark.req("T-06", "S1-15", "S4-09")
@pytest.mark.usefixtures("killed")
def test_the_next_question_is_answered_at_once_and_the_log_keeps_its_order(terminal: Terminal) -> None:
    terminal.environment |= HOUR
    terminal.start("--continue")
    terminal.expect("Resuming calculate 6*7")
    terminal.expect("I am")
    terminal.expect("(interrupted)")
    terminal.wait_for_prompt()
    terminal.type("calculate 5*5")
    assert terminal.child.expect_exact(["5*5 is 25.", "This chat is busy"]) == 0
    terminal.quit()
    (thread,) = json.loads(terminal.run("threads", "list", "--json"))["threads"]
    assert ends_in(terminal.run("threads", "show", thread["id"])) == [
        *(["user"], ["assistant"]),
        *(["user"], ["assistant", "interrupted"]),
        *(["user"], ["assistant"]),
    ]
    exported = terminal.run("threads", "export", "--format", "markdown", thread["id"])
    assert exported.count("UTC (interrupted)") == 1
    assert 0 < exported.index("slow 300") < exported.index("(interrupted)") < exported.index("calculate 5*5")


@pytest.mark.req("T-06")
@pytest.mark.usefixtures("killed")
def test_whatever_reads_the_thread_first_shows_that_the_reply_was_interrupted(tmp_path: Path) -> None:
    """Each command gets its own copy of what the killed terminal left, so that none benefits from another."""

    def first(name: str, *words: str) -> str:
        home = tmp_path / name
        shutil.copytree(tmp_path / ".local", home / ".local")
        return Terminal(home).run(*words)

    assert "calculate 6*7 (interrupted)" in first("list", "threads", "list")
    (thread,) = json.loads(first("list-json", "threads", "list", "--json"))["threads"]
    assert thread["incomplete"] == "interrupted"
    assert ends_in(first("show", "threads", "show", thread["id"]))[-1] == ["assistant", "interrupted"]
    last = json.loads(first("show-json", "threads", "show", thread["id"], "--json"))["messages"][-1]
    assert last["metadata"]["status"] == "interrupted"
    assert "UTC (interrupted)" in first("markdown", "threads", "export", "--format", "markdown", thread["id"])
    answer = json.loads(first("print", "chat", "--continue", "-p", "calculate 5*5", "--json"))
    assert (answer["threadId"], answer["status"], answer["saved"]) == (thread["id"], "executed", True)


def ends_in(shown: str) -> list[list[str]]:
    """The role of each message and its mark, if it has one."""
    return [line.split(" · ")[1::2] for line in shown.splitlines() if line.startswith("── ")]
