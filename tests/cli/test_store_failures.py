"""A chat whose database fails, at the start or later, keeps the conversation and says that it is not saved."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_chat import Terminal
from tests.cli.test_chat import terminal as terminal
from threadline.cli.chat import backend

PLAIN_USER = 65_534
NOT_SAVED = 7


def damage(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(200)
        file.write(b"\xff" * (size - 200))


def write_newer_schema(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (newest,) = connection.execute("SELECT max(number) FROM schema_migrations").fetchone()
        row = (newest + 1, "add later", "x", newest + 1, 0)
        connection.execute("INSERT INTO schema_migrations VALUES (?, ?, ?, ?, ?)", row)
        connection.commit()


def write_text(path: Path) -> None:
    path.write_text("This is a text, and it is longer than any header of a database could be. " * 20)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.fixture
def database(run: Run, home: Path) -> Path:
    """A database with one thread."""
    run("context", "set", "I live in Porto.", "--database", "chats.db")
    assert run("chat", "-p", "calculate 6*7", "--database", "chats.db").code == 0
    # Searching once brings the index up to date.
    assert run("threads", "search", "calculate", "--database", "chats.db").code == 0
    return home / "chats.db"


@pytest.mark.req("T-03", "S4-08")
@pytest.mark.parametrize("spoil", [damage, write_newer_schema, write_text, replace_by_folder])
def test_a_chat_starts_without_a_usable_database_and_says_so(
    run: Run, database: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(database)
    before = database.read_bytes() if database.is_file() else b""
    asked = run("chat", "--continue", "-p", "calculate 5*5", "--database", "chats.db", "--json")
    assert asked.code == NOT_SAVED
    answer = asked.json()
    assert answer["text"].endswith("5*5 is 25.")
    assert (answer["saved"], answer["threadId"], answer["status"]) == (False, None, "executed")
    assert "warning: this chat is not being saved" in asked.err
    assert "Traceback" not in asked.err
    assert database.is_dir() or database.read_bytes() == before


@pytest.mark.req("T-03")
def test_a_chat_starts_where_no_folder_can_be_created(run: Run, home: Path) -> None:
    (home / "file").write_text("")
    asked = run("chat", "--database", "file/below/chats.db", stdin="calculate 6*7\nwhat did I say first?\n")
    assert asked.code == NOT_SAVED
    assert "not being saved" in asked.out
    assert "calculate 6*7" in asked.out.split("6*7 is 42.")[1]
    assert "warning: 4 messages of this chat could not be saved" in asked.out
    assert run("threads", "list", "--database", "file/below/chats.db").code == 6


@pytest.mark.req("T-03")
def test_a_locked_database_is_waited_for_briefly_and_saved_to_once_it_is_free(
    run: Run, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_LOCK_SECONDS", 0.2)
    with locked(database):
        asked = run("chat", "-p", "calculate 5*5", "--database", "chats.db", "--json")
        assert (asked.code, asked.json()["saved"]) == (NOT_SAVED, False)
        assert "locked by another process" in asked.err
    assert run("chat", "--continue", "-p", "calculate 5*5", "--database", "chats.db").code == 0


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA locking_mode = EXCLUSIVE")
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE held (x)")
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def locked(database: Path) -> Iterator[None]:
    """Another process holds the file: within one process locks do not exclude each other."""
    command = [sys.executable, "-c", LOCK, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.stdin.close()


@pytest.fixture
def disk(home: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = home / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)


@pytest.mark.req("T-03")
def test_one_question_on_a_full_disk_prints_its_own_answer_with_the_history_kept(run: Run, disk: Path) -> None:
    database = str(disk / "chats.db")
    run("context", "set", "I live in Porto.", "--database", database)
    first = run("chat", "-p", "my word is Bern", "--database", database, "--json").json()
    assert first["saved"] is True
    fill(disk)
    asked = run("chat", "--continue", "-p", "calculate 1+1", "--database", database, "--json")
    assert asked.code == NOT_SAVED
    answer = asked.json()
    assert answer["text"].endswith("1+1 is 2.")
    assert (answer["saved"], answer["threadId"]) == (False, first["threadId"])
    assert "no space left" in asked.err
    assert "Traceback" not in asked.err
    again = run("chat", "--continue", "-p", "what did I say first?", "--database", database)
    assert (again.code, "my word is Bern" in again.out) == (NOT_SAVED, True)
    assert "warning" not in again.out
    pinned = run("chat", "--continue", "-p", "what do you know about me?", "--database", database)
    assert "Porto" in pinned.out
    assert run("threads", "list", "--database", database).code == 0
    (disk / "filler").unlink()
    saved = run("chat", "--continue", "-p", "calculate 2+2", "--database", database, "--json")
    assert (saved.code, saved.json()["saved"]) == (0, True)


@pytest.mark.req("T-03", "S4-08")
def test_a_chat_whose_disk_fills_keeps_its_history_and_saves_it_once_there_is_space(terminal: Terminal) -> None:
    terminal.start()
    terminal.expect("Threadline")
    terminal.send("/context I live in Porto.")
    terminal.expect("Pinned for rehearsal")
    terminal.send("calculate 5*5")
    terminal.expect("5*5 is 25.")
    terminal.wait_for_prompt()
    terminal.fill_disk()
    terminal.type("calculate 7*7")
    terminal.expect("warning: this chat is not being saved")
    terminal.expect("7*7 is 49.")
    terminal.send("what did I say first?")
    terminal.expect("The first thing you said was")
    terminal.expect("calculate 5*5")
    terminal.send("what do you know about me?")
    terminal.expect("Porto")
    terminal.send("/export copy.md")
    terminal.wait_for_prompt()
    terminal.free_disk()
    terminal.type("how many turns?")
    terminal.expect("The database works again: this chat is saved, with 6 messages that it did not have.")
    terminal.expect("5")
    assert "Traceback" not in terminal.transcript()
    terminal.quit()
    terminal.start("--continue")
    terminal.expect("10 messages")
    terminal.send("what did I say first?")
    terminal.expect("calculate 5*5")
    terminal.quit()


@pytest.mark.req("T-03")
def test_a_reply_that_could_not_be_stored_is_printed_once_and_saved_later(terminal: Terminal) -> None:
    """The disk fills while the agent is writing: its turn is stored without its end."""
    terminal.start()
    terminal.expect("Threadline")
    terminal.send("slow 30")
    terminal.expect("I am")
    terminal.fill_disk()
    terminal.expect("warning: this chat is not being saved")
    terminal.wait_for_prompt()
    terminal.free_disk()
    terminal.type("what did I say first?")
    terminal.expect("The database works again")
    terminal.expect("slow 30")
    terminal.quit()
    terminal.start("--continue")
    terminal.expect("4 messages")
    terminal.quit()


@pytest.mark.req("T-03")
def test_leaving_a_chat_that_is_not_saved_says_what_is_saved(terminal: Terminal) -> None:
    terminal.start()
    terminal.expect("Threadline")
    terminal.send("calculate 5*5")
    terminal.expect("5*5 is 25.")
    terminal.wait_for_prompt()
    terminal.fill_disk()
    terminal.type("calculate 7*7")
    terminal.expect("7*7 is 49.")
    terminal.wait_for_prompt()
    terminal.press("d")
    terminal.expect("Resume with: threadline chat --resume")
    terminal.expect("warning: 2 messages of this chat could not be saved")
    terminal.expect_exit(NOT_SAVED)
    assert "Traceback" not in terminal.transcript()


@contextlib.contextmanager
def as_plain_user() -> Iterator[None]:
    """Root may write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(PLAIN_USER)
    try:
        yield
    finally:
        os.seteuid(0)


def make_file_read_only(path: Path) -> None:
    path.chmod(0o444)


def make_folder_read_only(path: Path) -> None:
    path.chmod(0o666)
    path.parent.chmod(0o555)


@pytest.fixture
def private(tmp_path: Path) -> Iterator[None]:
    """Restores the rights of the test's folders, and lets other users enter them."""
    opened = [folder for folder in tmp_path.parents if folder.stat().st_mode & 0o005 != 0o005 and folder != Path("/")]
    modes = {folder: folder.stat().st_mode for folder in (*opened, tmp_path)}
    for folder in modes:
        folder.chmod(0o755)
    yield
    for folder, mode in modes.items():
        folder.chmod(mode)


@pytest.mark.req("T-03")
@pytest.mark.parametrize("restrict", [make_file_read_only, make_folder_read_only])
def test_a_database_without_write_permission_can_be_listed_shown_searched_and_exported(
    run: Run, database: Path, private: None, restrict: Callable[[Path], None]
) -> None:
    restrict(database)
    with as_plain_user():
        check_readable(run, "chats.db")


@pytest.mark.req("T-03")
def test_a_database_on_a_read_only_file_system_can_be_read(run: Run, disk: Path) -> None:
    database = str(disk / "chats.db")
    run("chat", "-p", "calculate 6*7", "--database", database)
    run("threads", "search", "calculate", "--database", database)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    check_readable(run, database)


@pytest.mark.req("T-03")
def test_an_agent_of_the_database_answers_in_memory(run: Run, disk: Path) -> None:
    database = str(disk / "chats.db")
    run("agents", "add", "porter", "--provider", "rehearsal", "--database", database)
    first = run(
        "chat", "--agent", "porter", "--model", "small", "-p", "my word is Bern", "--database", database, "--json"
    )
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    asked = run("chat", "--continue", "--database", database, stdin="what did I say first?\n/model\n")
    assert asked.code == NOT_SAVED
    assert "my word is Bern" in asked.out
    assert "Agent porter, model small." in asked.out
    assert first.json()["threadId"] in asked.out
    assert "warning: 2 messages of this chat could not be saved" in asked.out


def check_readable(run: Run, database: str) -> None:
    (thread,) = run("threads", "list", "--database", database, "--json").json()["threads"]
    assert "6*7 is 42." in run("threads", "show", thread["id"], "--database", database).out
    assert run("threads", "search", "calculate", "--database", database, "--json").json()["threads"]
    assert "6*7 is 42." in run("threads", "export", "--all", "--database", database).out
    refused = run("threads", "rename", thread["id"], "Other", "--database", database)
    assert (refused.code, refused.err.count("\n")) == (6, 1)
    asked = run("chat", "--continue", "-p", "what did I say first?", "--database", database, "--json")
    assert asked.code == NOT_SAVED
    assert "calculate 6*7" in asked.json()["text"]


def test_a_log_that_cannot_be_read_without_writing_is_named(run: Run, database: Path, private: None) -> None:
    """A process that was killed leaves a write-ahead log; without it the file alone may be inconsistent."""
    database.with_name("chats.db-wal").write_bytes(b"x" * 100)
    make_folder_read_only(database)
    with as_plain_user():
        result = run("threads", "list", "--database", "chats.db")
    assert result.code == 6
    assert "copy" in result.err


def test_the_lines_typed_are_kept_in_memory_where_the_history_file_cannot_be_written(terminal: Terminal) -> None:
    terminal.start()
    terminal.expect("Threadline")
    terminal.wait_for_prompt()
    terminal.fill_disk()
    terminal.type("/help")
    terminal.expect("Ctrl-D quits.")
    terminal.send("/nonsense")
    terminal.expect("/help")
    assert "Traceback" not in terminal.transcript()
