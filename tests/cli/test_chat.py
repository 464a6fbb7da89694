"""`threadline chat` at a real pseudo-terminal, as a person would use it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
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


class Person:
    """Someone at a terminal. `says` types a line, `sees` waits for words on the screen."""

    def __init__(self, home: Path) -> None:
        self._environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "TERM": "xterm",
            "LANG": "C.UTF-8",
            "PROMPT_TOOLKIT_NO_CPR": "1",
        }
        self._home = home
        self._child: pexpect.spawn[str] | None = None

    def starts(self, *words: str) -> None:
        self._child = pexpect.spawn(
            sys.executable,
            ["-m", "threadline", "chat", *words],
            cwd=self._home,
            env=self._environment,
            encoding="utf-8",
            timeout=TIMEOUT,
            dimensions=(40, 160),
        )

    @property
    def terminal(self) -> pexpect.spawn[str]:
        assert self._child is not None
        return self._child

    def says(self, text: str) -> None:
        self.waits_for_the_prompt()
        self.types(text)

    def types(self, text: str) -> None:
        self.terminal.send(text + "\r")

    def waits_for_the_prompt(self) -> None:
        # What the line editor sends when it begins to read; keys pressed before that are the terminal's.
        self.terminal.expect_exact("\x1b[?2004h")

    def sees(self, words: str) -> None:
        self.terminal.expect_exact(words)

    def presses(self, key: str) -> None:
        self.terminal.sendcontrol(key)

    def has_no_space_left(self) -> None:
        """No file of theirs can grow any more, as on a disk that is full."""
        resource.prlimit(self.terminal.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def leaves(self) -> None:
        self.waits_for_the_prompt()
        self.presses("d")
        self.terminal.expect(pexpect.EOF)
        self.terminal.close()
        assert self.terminal.exitstatus == 0

    def is_killed(self) -> None:
        self.terminal.kill(signal.SIGKILL)
        self.terminal.expect(pexpect.EOF)

    def is_pulled_away(self) -> None:
        if self._child is not None:
            self._child.close(force=True)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    someone = Person(tmp_path)
    yield someone
    someone.is_pulled_away()


@pytest.mark.req("S4-10", "S4-09", "SX-02")
def test_talk_leave_come_back_and_go_on(person: Person) -> None:
    person.starts()
    person.sees("/help lists commands")
    person.says("calculate 6*7")
    person.sees("6*7 is 42.")
    person.leaves()
    person.starts("--continue")
    person.sees("Going on with calculate 6*7")
    person.says("what did I say first?")
    person.sees("calculate 6*7")
    person.says("/quit")
    person.sees("threadline chat --resume")


@pytest.mark.req("S4-10")
def test_slash_commands(person: Person) -> None:
    person.starts()
    person.sees("Threadline")
    person.says("/undo")
    person.sees("there is nothing to undo")
    person.says("calculate 1+1")
    person.sees("1+1 is 2.")
    person.says("/save one")
    person.sees("Saved one")
    person.says("calculate 2+2")
    person.sees("2+2 is 4.")
    person.says("/undo")
    person.sees("2 messages now")
    person.says("/branch elsewhere")
    person.sees("You are on a branch now")
    person.says("/load one")
    person.sees("Loaded one: 2 messages")
    person.says("/context I like tea.")
    person.sees("Pinned for rehearsal")
    person.says("/context")
    person.sees("I like tea.")
    person.says("/rename Sums")
    person.sees("Renamed to Sums")
    person.says("/threads")
    person.sees("Sums")
    person.says("/compact")
    person.sees("short enough")
    person.says("/export sums.md")
    person.sees("Written to sums.md")
    person.says("/lod")
    person.sees("Did you mean /load?")
    person.says("/new")
    person.sees("A new thread begins")
    person.says("/help")
    person.sees("take back the last question")
    person.leaves()


@pytest.mark.req("S1-28")
def test_ctrl_c_stops_the_reply_and_keeps_what_was_shown(person: Person) -> None:
    person.starts()
    person.sees("Threadline")
    person.says("slow 30")
    person.sees("I am")
    person.presses("c")
    person.sees("Stopped. What was said is kept.")
    assert "error" not in str(person.terminal.before)
    person.says("what did I say first?")
    person.sees("slow")
    person.leaves()


@pytest.fixture
def friend(tmp_path: Path) -> Iterator[Person]:
    """Someone at another terminal, with the same database."""
    someone = Person(tmp_path)
    yield someone
    someone.is_pulled_away()


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_who_waits_for_another_terminal_is_told_and_may_give_up_or_go_on(
    person: Person, friend: Person, place: str, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        words = ["--server", stack.enter_context(served(tmp_path / "served.db"))[0]] if place == "elsewhere" else []
        friend.starts(*words)
        friend.says("slow 300")
        friend.sees("I am")
        person.starts(*words, "--continue")
        person.sees("Going on with slow 300")
        person.says("calculate 5*5")
        person.sees("This conversation is busy")
        person.presses("c")
        person.sees("Stopped. What was said is kept.")
        person.says("calculate 6*7")
        person.sees("This conversation is busy")
        friend.presses("c")
        friend.sees("Stopped. What was said is kept.")
        person.sees("6*7 is 42.")
        person.leaves()


@pytest.mark.req("S1-15")
def test_who_comes_after_a_terminal_that_was_killed_goes_on(person: Person, friend: Person, tmp_path: Path) -> None:
    (tmp_path / "threadline.toml").write_text("[service]\nlease_seconds = 3\n")
    friend.starts()
    friend.says("slow 300")
    friend.sees("I am")
    friend.is_killed()
    person.starts("--continue")
    person.sees("Going on with slow 300")
    person.says("calculate 6*7")
    person.sees("6*7 is 42.")
    person.leaves()


def test_a_list_to_choose_from(person: Person) -> None:
    person.starts("-p", "calculate 3*3")
    person.terminal.expect(pexpect.EOF)
    person.starts("--resume")
    person.sees("calculate 3*3")
    person.says("7")
    person.sees("a number from 1 to 1")
    person.says("1")
    person.sees("Going on with calculate 3*3")
    person.leaves()


def test_several_lines_are_one_question(person: Person) -> None:
    person.starts()
    person.sees("Threadline")
    person.says("count the words in: one\\")
    person.says("two three")
    person.sees("two three")
    person.leaves()
    person.starts("--continue")
    person.sees("count the words in: one")
    person.leaves()


@pytest.mark.req("S4-08")
def test_a_database_that_fails_does_not_stop_the_chat(person: Person) -> None:
    person.starts()
    person.sees("Threadline")
    person.says("calculate 5*5")
    person.sees("5*5 is 25.")
    person.waits_for_the_prompt()
    person.has_no_space_left()
    person.types("calculate 7*7")
    person.sees("warning: this is not being saved")
    person.sees("7*7 is 49.")
    person.says("what did I say first?")
    person.sees("calculate 7*7")
    person.leaves()


def test_an_approval_that_waits_is_asked_for_on_coming_back(person: Person, tmp_path: Path) -> None:
    database = str(tmp_path / "chats.sqlite3")
    thread_id = asyncio.run(leave_waiting(database))
    person.starts("--database", database, "--resume", thread_id)
    person.sees("The agent wants to run stamp")
    person.types("y")
    person.sees("Here it is, stamped: hello [2cf24dba].")
    person.says("what did I say first?")
    person.sees("stamp hello")
    person.leaves()


async def leave_waiting(database: str) -> str:
    """A thread that was left, on the web, with an approval still to be given."""
    async with threadline.open(settings=Settings(database=database)) as tl:
        thread = await tl.as_user().create_thread()
        await thread.ask("stamp hello", surface="web", approver=threadline.Defer())
        return thread.id


@pytest.mark.req("SX-02")
def test_a_chat_with_a_service_is_the_same_chat(person: Person, tmp_path: Path) -> None:
    with served(tmp_path / "served.db") as (url, _):
        person.starts("--server", url)
        person.sees("/help lists commands")
        person.says("calculate 6*7")
        person.sees("6*7 is 42.")
        person.says("stamp hello")
        person.sees("The agent wants to run stamp")
        person.types("y")
        person.sees("Here it is, stamped: hello [2cf24dba].")
        person.says("slow 30")
        person.sees("I am")
        person.presses("c")
        person.sees("Stopped. What was said is kept.")
        person.says("/save one")
        person.sees("Saved one")
        person.says("/undo")
        person.sees("4 messages now")
        person.says("/branch elsewhere")
        person.sees("You are on a branch now")
        person.says("/load one")
        person.sees("Loaded one: 6 messages")
        person.says("/rename Sums")
        person.sees("Renamed to Sums")
        person.says("/threads")
        person.sees("Sums")
        person.says("/context I like tea.")
        person.sees("Pinned for rehearsal")
        person.says("/model other")
        person.sees("the service decides which model answers")
        person.says("/export sums.md")
        person.sees("Written to sums.md")
        person.leaves()
        person.starts("--server", url, "--continue")
        person.sees("Going on with Sums")
        person.says("/quit")
        person.sees(f"threadline chat --server {url} --resume")


def test_a_service_is_asked_once_and_what_is_wrong_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THREADLINE_TOKEN", "a-token-that-nobody-asks-for")
    with served(tmp_path / "served.db") as (url, _):
        assert main(["chat", "--server", url, "-p", "calculate 6*7", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["status"], said["text"].endswith("6*7 is 42.")) == ("executed", True)
        assert main(["chat", "--server", url, "--resume", said["threadId"], "-p", "what did I say first?"]) == 0
        assert "calculate 6*7" in capsys.readouterr().out
        assert main(["chat", "--server", url, "--model", "x", "-p", "Hi"]) == 2
        assert main(["chat", "--server", "somewhere", "-p", "Hi"]) == 2
        assert capsys.readouterr().err.count("\n") == 2


def test_what_waits_with_a_service_is_asked_for_on_coming_back(person: Person, tmp_path: Path) -> None:
    database = tmp_path / "served.db"
    with served(database) as (url, _):
        asyncio.run(leave_waiting_at(url))
        person.starts("--server", url, "--resume", "waiting")
        person.sees("The agent wants to run stamp")
        person.types("n")
        person.sees("did not allow")
        person.leaves()


async def leave_waiting_at(url: str) -> None:
    async with connect(url) as client:
        await (await client.create_thread(state_key="waiting")).ask("stamp hello")
