"""`threadline chat` in a real pseudo-terminal."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

import threadline
from tests.service.test_server import served
from threadline.cli.main import main
from threadline.client import connect
from threadline.settings import Settings

TIMEOUT = 30


class Terminal:
    """`threadline chat` in a pseudo-terminal. `send` types a line at the prompt, `expect` waits for output."""

    def __init__(self, home: Path) -> None:
        self.environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "TERM": "xterm",
            "LANG": "C.UTF-8",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            # A stub model answers what a test asks, and nothing else.
            "THREADLINE_TITLES__BY_MODEL": "false",
        }
        self.columns = 160
        self._home = home
        self._child: pexpect.spawn[str] | None = None
        self._log = io.StringIO()

    def start(self, *words: str) -> None:
        self.start_command("chat", *words)

    def start_command(self, *words: str) -> None:
        self._child = pexpect.spawn(
            sys.executable,
            ["-m", "threadline", *words],
            cwd=self._home,
            env=self.environment,
            encoding="utf-8",
            timeout=TIMEOUT,
            dimensions=(40, self.columns),
        )
        self._child.logfile_read = self._log = io.StringIO()

    @property
    def child(self) -> pexpect.spawn[str]:
        assert self._child is not None
        return self._child

    def send(self, text: str) -> None:
        self.wait_for_prompt()
        self.type(text)

    def type(self, text: str) -> None:
        self.child.send(text + "\r")

    def wait_for_prompt(self) -> None:
        # The line editor prints this when it starts to read; keys pressed earlier would be lost.
        self.child.expect_exact("\x1b[?2004h")

    def expect(self, words: str) -> None:
        self.child.expect_exact(words)

    def press(self, key: str) -> None:
        self.child.sendcontrol(key)

    def fill_disk(self) -> None:
        """From now on no file of the process can grow, as on a full disk."""
        resource.prlimit(self.child.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def free_disk(self) -> None:
        resource.prlimit(self.child.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def transcript(self) -> str:
        """Everything that was printed since the last start."""
        return self._log.getvalue()

    def quit(self) -> None:
        self.wait_for_prompt()
        self.press("d")
        self.expect_exit(0)

    def expect_exit(self, code: int) -> None:
        self.child.expect(pexpect.EOF)
        self.child.close()
        assert self.child.exitstatus == code

    def kill(self) -> None:
        self.child.kill(signal.SIGKILL)
        self.child.expect(pexpect.EOF)

    def run(self, *words: str) -> str:
        """The output of another command, in the same home."""
        command = [sys.executable, "-m", "threadline", *words]
        return subprocess.run(
            command, cwd=self._home, env=self.environment, capture_output=True, text=True, check=True
        ).stdout

    def close(self) -> None:
        if self._child is not None:
            self._child.close(force=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


@pytest.mark.req("S4-10", "S4-09", "SX-02")
def test_a_chat_can_be_quit_and_continued(terminal: Terminal) -> None:
    terminal.start()
    terminal.expect("/help lists commands")
    terminal.send("calculate 6*7")
    terminal.expect("6*7 is 42.")
    terminal.quit()
    terminal.start("--continue")
    terminal.expect("Resuming calculate 6*7")
    terminal.send("what did I say first?")
    terminal.expect("calculate 6*7")
    terminal.send("/quit")
    terminal.expect("threadline chat --resume")


@pytest.mark.req("S4-10")
def test_slash_commands_work_on_a_local_database(terminal: Terminal) -> None:
    terminal.start()
    terminal.expect("Threadline")
    terminal.send("/undo")
    terminal.expect("no chat yet: send a message first")
    terminal.send("calculate 1+1")
    terminal.expect("1+1 is 2.")
    terminal.send("/save one")
    terminal.expect("Saved as “one”. Load it with /load one.")
    terminal.send("calculate 2+2")
    terminal.expect("2+2 is 4.")
    terminal.send("/undo")
    terminal.expect("Removed your last message and its reply: 2 messages left.")
    terminal.send("/branch elsewhere")
    terminal.expect("Started a branch: elsewhere")
    terminal.send("/load one")
    terminal.expect("Loaded “one”: 2 messages.")
    terminal.send("/context I like tea.")
    terminal.expect("Pinned for rehearsal")
    terminal.send("/context")
    terminal.expect("I like tea.")
    terminal.send("/rename Sums")
    terminal.expect("Renamed to Sums")
    terminal.send("/threads")
    terminal.expect("Sums")
    terminal.send("/home")
    terminal.expect("You have no home chat yet. /home here makes it this chat.")
    terminal.send("/home here")
    terminal.expect("This is your home chat now: private chats on platforms continue it (2 messages).")
    terminal.send("/home")
    terminal.expect("This is your home chat: private chats on platforms continue it (2 messages).")
    terminal.send("/compact")
    terminal.expect("this chat is short enough")
    terminal.send("/export sums.md")
    terminal.expect("Exported to sums.md.")
    terminal.send("/lod")
    terminal.expect("Did you mean /load?")
    terminal.send("/chats")
    terminal.expect("Reply with a number, or 0 to cancel:")
    terminal.child.expect(r"1\. Sums \(2 messages, \d{4}-\d\d-\d\d \d\d:\d\d, [0-9a-z]{26}, here\)")
    terminal.expect("2. ")
    terminal.send("2")
    terminal.expect("Opened calculate 1+1")
    terminal.send("/context one\\")
    terminal.type("two")
    terminal.expect("Pinned for rehearsal")
    terminal.send("/undo now")
    terminal.expect("/undo takes no argument")
    terminal.send("/usr/bin is no command")
    terminal.expect("You said")
    terminal.send("/new")
    terminal.expect("Your next message starts a new chat.")
    terminal.send("/help")
    terminal.expect("remove your last message and its reply")
    terminal.quit()


@pytest.mark.req("S1-28")
def test_ctrl_c_stops_the_reply_and_saves_what_was_printed(terminal: Terminal) -> None:
    terminal.start()
    terminal.expect("Threadline")
    terminal.send("slow 30")
    terminal.expect("I am")
    terminal.press("c")
    terminal.expect("Stopped. The part above is saved.")
    assert "error" not in str(terminal.child.before)
    terminal.send("what did I say first?")
    terminal.expect("slow")
    terminal.quit()


@pytest.fixture
def other_terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A second terminal on the same database."""
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("place", ["local", "service"])
def test_a_message_waits_for_another_terminal_and_can_be_cancelled(
    terminal: Terminal, other_terminal: Terminal, place: str, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        words = ["--server", stack.enter_context(served(tmp_path / "served.db"))[0]] if place == "service" else []
        other_terminal.start(*words)
        other_terminal.send("slow 300")
        other_terminal.expect("I am")
        terminal.start(*words, "--continue")
        terminal.expect("Resuming slow 300")
        terminal.send("calculate 5*5")
        terminal.expect("This chat is busy")
        terminal.press("c")
        terminal.expect("Stopped. The part above is saved.")
        terminal.send("calculate 6*7")
        terminal.expect("This chat is busy")
        other_terminal.press("c")
        other_terminal.expect("Stopped. The part above is saved.")
        terminal.expect("6*7 is 42.")
        terminal.quit()


def test_a_question_can_have_several_lines(terminal: Terminal) -> None:
    terminal.start()
    terminal.expect("Threadline")
    terminal.send("count the words in: one\\")
    terminal.type("two three")
    terminal.expect("two three")
    terminal.quit()
    terminal.start("--continue")
    terminal.expect("count the words in: one")
    terminal.quit()


def test_a_pending_approval_is_asked_for_on_resume(terminal: Terminal, tmp_path: Path) -> None:
    database = str(tmp_path / "chats.sqlite3")
    thread_id = asyncio.run(create_waiting_thread(database))
    terminal.start("--database", database, "--resume", thread_id)
    terminal.expect("The agent wants to run stamp")
    terminal.type("y")
    terminal.expect("Here it is, stamped: hello [2cf24dba].")
    terminal.send("what did I say first?")
    terminal.expect("stamp hello")
    terminal.quit()


async def create_waiting_thread(database: str) -> str:
    """A thread whose last reply, on the web, waits for an approval."""
    async with threadline.open(settings=Settings(database=database)) as tl:
        thread = await tl.as_user().create_thread()
        await thread.ask("stamp hello", surface="web", approver=threadline.Defer())
        return thread.id


@pytest.mark.req("SX-02")
def test_a_chat_on_a_service_has_the_same_commands(terminal: Terminal, tmp_path: Path) -> None:
    with served(tmp_path / "served.db") as (url, _):
        terminal.start("--server", url)
        terminal.expect("/help lists commands")
        terminal.send("calculate 6*7")
        terminal.expect("6*7 is 42.")
        terminal.send("stamp hello")
        terminal.expect("The agent wants to run stamp")
        terminal.type("y")
        terminal.expect("Here it is, stamped: hello [2cf24dba].")
        terminal.send("slow 30")
        terminal.expect("I am")
        terminal.press("c")
        terminal.expect("Stopped. The part above is saved.")
        terminal.send("/save one")
        terminal.expect("Saved as “one”. Load it with /load one.")
        terminal.send("/undo")
        terminal.expect("4 messages left.")
        terminal.send("/branch elsewhere")
        terminal.expect("Started a branch: elsewhere")
        terminal.send("/load one")
        terminal.expect("Loaded “one”: 6 messages.")
        terminal.send("/rename Sums")
        terminal.expect("Renamed to Sums")
        terminal.send("/threads")
        terminal.expect("Sums")
        terminal.send("/context I like tea.")
        terminal.expect("Pinned for rehearsal")
        terminal.send("/model other")
        terminal.expect("Using model other from now on.")
        terminal.send("/export sums.md")
        terminal.expect("Exported to sums.md.")
        terminal.quit()
        terminal.start("--server", url, "--continue")
        terminal.expect("Resuming Sums")
        terminal.send("/quit")
        terminal.expect(f"threadline chat --server {url} --resume")


def test_one_question_to_a_service_prints_json_and_errors_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THREADLINE_TOKEN", "an-unused-token")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    with served(tmp_path / "served.db") as (url, _):
        assert main(["chat", "--server", url, "-p", "calculate 6*7", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert (result["status"], result["text"].endswith("6*7 is 42.")) == ("executed", True)
        assert main(["chat", "--server", url, "--resume", result["threadId"], "-p", "what did I say first?"]) == 0
        assert "calculate 6*7" in capsys.readouterr().out
        assert main(["chat", "--server", url, "--model", "x", "--system", "Be brief.", "-p", "Hi", "--json"]) == 0
        thread_id = json.loads(capsys.readouterr().out)["threadId"]
        assert main(["chat", "--server", url, "--resume", thread_id, "--model", "y", "-p", "Hi"]) == 0
        assert asyncio.run(read_fields(url, thread_id)) == ("y", "Be brief.")
        capsys.readouterr()
        assert main(["chat", "--server", url, "--database", "x", "-p", "Hi"]) == 2
        assert main(["chat", "--server", "somewhere", "-p", "Hi"]) == 2
        assert capsys.readouterr().err.count("\n") == 2


async def read_fields(url: str, thread_id: str) -> tuple[str | None, str | None]:
    async with connect(url) as client:
        thread = await client.thread(thread_id)
        return thread.model, thread.system_prompt


def test_a_pending_approval_of_a_service_is_asked_for_on_resume(terminal: Terminal, tmp_path: Path) -> None:
    database = tmp_path / "served.db"
    with served(database) as (url, _):
        asyncio.run(create_waiting_thread_on(url))
        terminal.start("--server", url, "--resume", "waiting")
        terminal.expect("The agent wants to run stamp")
        terminal.type("n")
        terminal.expect("did not allow")
        terminal.quit()


async def create_waiting_thread_on(url: str) -> None:
    async with connect(url) as client:
        thread = await client.create_thread(state_key="waiting")
        await thread.ask("stamp hello")
