"""The commands of the terminal, with right and wrong arguments."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import threadline
from tests.cli.conftest import Run
from threadline.cli import admin
from threadline.core.errors import StoreFailed
from threadline.core.messages import NewMessage


def test_help_names_every_command(run: Run) -> None:
    printed = run("--help")
    assert printed.code == 0
    for command in (
        "chat",
        "threads",
        "context",
        "agents",
        "migrate",
        "copy",
        "backup",
        "restore",
        "compact",
        "doctor",
        "bridge",
        "purge",
    ):
        assert command in printed.out


def test_an_empty_list_names_the_command_to_start_with(run: Run) -> None:
    assert "threadline chat" in run("threads", "list").out


@pytest.mark.req("S4-10")
def test_a_question_from_a_pipe_is_answered_and_stored(run: Run) -> None:
    asked = run("chat", "-p", stdin="calculate 6*7\n")
    assert asked.code == 0
    assert "6*7 is 42." in asked.out
    listed = run("threads", "list", "--json").json()
    assert [thread["title"] for thread in listed["threads"]] == ["calculate 6*7"]
    assert listed["threads"][0]["messageCount"] == 2


def test_other_users_of_the_machine_cannot_read_what_was_said(run: Run, home: Path) -> None:
    run("chat", "-p", "hello")
    folder = home / ".local/share/threadline"
    assert (folder / "threadline.sqlite3").exists()
    assert folder.stat().st_mode & 0o077 == 0
    shared = home / "shared"
    shared.mkdir(mode=0o755)
    run("chat", "--database", str(shared / "t.db"), "-p", "hello")
    assert shared.stat().st_mode & 0o777 == 0o755, "a folder that was there keeps its mode"


@pytest.mark.req("S4-09", "S4-10")
def test_resume_continues_a_thread_and_continue_the_latest_one(run: Run, thread_id: str) -> None:
    again = run("chat", "--resume", thread_id, "-p", "how many turns?", "--json").json()
    assert again["threadId"] == thread_id
    assert run("chat", "--continue", "-p", "hello", "--json").json()["threadId"] == thread_id
    assert run("threads", "list", "--json").json()["threads"][0]["messageCount"] == 8


@pytest.mark.req("S4-09")
def test_resuming_an_unknown_thread_warns_and_starts_a_new_one(run: Run, thread_id: str) -> None:
    asked = run("chat", "--resume", "nothing", "-p", "hello")
    assert asked.code == 0
    assert "no thread nothing" in asked.err
    assert len(run("threads", "list", "--json").json()["threads"]) == 2


@pytest.mark.req("S4-10", "S4-11")
def test_a_fork_does_not_change_its_source(run: Run, thread_id: str) -> None:
    fork = run("chat", "--resume", thread_id, "--fork", "-p", "only here", "--json").json()["threadId"]
    assert fork != thread_id
    assert "only here" not in run("threads", "show", thread_id).out
    assert run("threads", "delete", thread_id, "--purge").code == 0
    printed = run("threads", "show", fork).out
    assert "calculate 6*7" in printed
    assert "only here" in printed


@pytest.mark.req("S4-10")
def test_threads_can_be_branched_saved_loaded_undone_and_switched(run: Run, thread_id: str) -> None:
    branched = run("threads", "branch", thread_id, "--at", "1", "--title", "Fork", "--json").json()
    assert (branched["title"], branched["messageCount"]) == ("Fork", 2)
    assert run("threads", "save", thread_id, "here", "--json").json()["name"] == "here"
    assert "here" in run("threads", "saves").out
    undone = run("threads", "undo", thread_id, "--json").json()
    assert undone["messageCount"] == 2
    lines = run("threads", "timelines", thread_id, "--json").json()
    assert len(lines["timelines"]) == 2
    assert run("threads", "switch", thread_id, lines["timelines"][0]["id"], "--json").json()["messageCount"] == 4
    assert run("threads", "load", branched["id"], "here", "--json").json()["messageCount"] == 4
    assert run("threads", "rename", thread_id, "Answers", "--json").json()["title"] == "Answers"
    assert thread_id in run("threads", "search", "answers", "--passages", "0").out


def test_search_finds_messages_by_word(run: Run, thread_id: str) -> None:
    (found,) = run("threads", "search", "calculate", "--json").json()["threads"]
    assert found["threadId"] == thread_id
    assert found["hitCount"] == len(found["hits"])
    assert "calculate" in found["hits"][0]["snippet"]
    assert "calculate" in run("threads", "search", "calculat").out
    assert run("threads", "search", "calculate", "--until", "2001-01-01").out == "Nothing found.\n"
    assert run("threads", "search", "elephant").out == "Nothing found.\n"


def test_a_deleted_thread_can_be_restored(run: Run, thread_id: str) -> None:
    assert thread_id in run("threads", "delete", thread_id).out
    assert run("threads", "show", thread_id).code == 3
    assert thread_id in run("threads", "list", "--deleted").out
    assert run("threads", "restore", thread_id).code == 0
    assert run("threads", "show", thread_id).code == 0


@pytest.mark.req("S4-12")
def test_empty_threads_are_pruned(run: Run, thread_id: str) -> None:
    run("threads", "branch", thread_id, "--at", "-1")
    assert run("threads", "prune", "--json").json() == {"removed": 1}
    assert run("threads", "prune", "--older-than", "soon").code == 2


def test_exported_threads_can_be_imported_again(run: Run, thread_id: str, home: Path) -> None:
    assert run("threads", "export", thread_id, "-o", "out.jsonl").code == 0
    before = json.loads(run("threads", "show", thread_id, "--json").out)
    again = run("threads", "import", "out.jsonl", "--json").json()
    assert (again["unchanged"], again["created"]) == (1, 0)
    assert "already here" in run("threads", "import", "out.jsonl").out
    assert json.loads(run("threads", "show", thread_id, "--json").out) == before
    elsewhere = run("threads", "import", "out.jsonl", "--database", "other.db", "--json").json()["threads"][0]
    assert {**elsewhere, "timelineId": again["threads"][0]["timelineId"]} == again["threads"][0]
    assert run("threads", "export", thread_id, "--database", "other.db").out == (home / "out.jsonl").read_text()
    assert "# calculate 6*7" in run("threads", "export", thread_id, "--format", "markdown").out


def test_a_broken_import_changes_nothing(run: Run, thread_id: str, home: Path) -> None:
    run("threads", "export", "--all", "-o", "out.jsonl")
    lines = (home / "out.jsonl").read_bytes().splitlines(keepends=True)
    (home / "bad.jsonl").write_bytes(b"".join([*lines, *lines[:2], b'{"message":1}\n']))
    broken = run("threads", "import", "bad.jsonl")
    assert broken.code == 2
    assert f"line {len(lines) + 3}" in broken.err
    assert len(run("threads", "list", "--json").json()["threads"]) == 1


def test_system_texts_are_imported_only_by_the_operators_own_option(run: Run, home: Path) -> None:
    run("chat", "-p", "hello", "--system", "Speak like a pirate.")
    run("threads", "export", "--all", "-o", "out.jsonl")
    imported = run("threads", "import", "out.jsonl", "--database", "other.db", "--json")
    assert imported.json()["threads"][0]["systemPrompt"] is None
    assert "--keep-system" in imported.err
    kept = run("threads", "import", "out.jsonl", "--keep-system", "--database", "kept.db", "--json")
    assert (kept.json()["threads"][0]["systemPrompt"], kept.err) == ("Speak like a pirate.", "")


@pytest.mark.parametrize(
    ("status", "mark"), [("interrupted", "interrupted"), ("stopped", "stopped"), ("dispatch_failed", "failed")]
)
def test_a_reply_that_is_not_complete_is_marked_everywhere(run: Run, home: Path, status: str, mark: str) -> None:
    thread_id = asyncio.run(create_thread_with_status("chats.db", status))
    words = ("--database", "chats.db")
    assert f"Half a reply ({mark})" in run("threads", "list", *words).out
    assert run("threads", "list", "--json", *words).json()["threads"][0]["incomplete"] == mark
    assert f"· {mark}\nOnce upon" in run("threads", "show", thread_id, *words).out
    exported = run("threads", "export", thread_id, "--format", "markdown", *words).out
    assert f" UTC ({mark})\n\nOnce upon" in exported
    assert exported.count(f"({mark})") == 1
    as_json = run("threads", "export", thread_id, "--format", "json", *words).json()
    assert [message.get("metadata") for message in as_json["messages"]] == [None, {"status": status}]
    assert f"Once upon\n({mark})\n" in run("chat", "--resume", thread_id, *words).out


async def create_thread_with_status(database: str, status: str) -> str:
    async with threadline.open(database) as tl:
        thread = await tl.as_user().create_thread(title="Half a reply")
        reply = NewMessage("assistant", (threadline.TextPart("Once upon"),), metadata={"status": status})
        await thread.append("Tell me a story", reply)
        return thread.id


def test_a_markdown_export_contains_no_control_characters(run: Run) -> None:
    hostile = "\x1b]52;c;ZXZpbA==\x07 \x9b31m a\rb\ttab"
    run("chat", "-p", hostile)
    (thread,) = run("threads", "list", "--json").json()["threads"]
    exported = run("threads", "export", thread["id"], "--format", "markdown").out
    assert "\\x1b]52;c;ZXZpbA==\\x07 \\x9b31m a\\x0db\ttab" in exported
    assert not any(character in exported for character in "\x1b\x07\x9b\r")
    assert run("threads", "export", thread["id"], "--format", "markdown", "-o", "out.md").code == 0
    assert Path("out.md").read_text() == exported


@pytest.mark.req("S0-16")
def test_a_pinned_context_is_part_of_every_prompt(run: Run) -> None:
    assert run("context", "show").code == 3
    assert run("context", "set", "I live in Porto.").code == 0
    assert run("context", "show").out == "I live in Porto.\n"
    assert "Porto" in run("chat", "-p", "what do you know about me?").out
    assert run("context", "clear").out == "Cleared\n"
    assert run("context", "clear").out == "Nothing was pinned\n"
    assert run("context", "set", "-", stdin="  \n").code == 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["threads", "show", "nothing"], 3, "thread 'nothing' not found"),
        (["threads", "show", "é"], 3, "thread 'é' not found"),
        (["threads", "list", "--limit", "0"], 2, "must be 1–100000, got 0"),
        (["threads", "list", "--cursor", "x"], 2, "cursor"),
        (["threads", "search", " "], 2, "at least one word"),
        (["threads", "export"], 2, "nothing to export"),
        (["threads", "import", "missing.jsonl"], 2, "cannot read missing.jsonl"),
        (["chat", "--fork", "-p", "x"], 2, "--fork needs --resume or --continue"),
        (["chat", "-p", "  "], 2, "no question"),
        (["chat", "--json"], 2, "--json needs -p"),
        (["threads", "list", "--database", "mysql://ada:secret@x"], 2, "threadline: mysql:// is no database"),
        (["threads", "list", "--database", "postgresql://ada:secret@host:port/x"], 2, "postgresql://USER:PASS"),
        (["threads", "list", "--database", "postgresql://ada:secret@127.0.0.1:70000/x"], 2, "cannot be parsed"),
        (["threads", "list", "--database", "postgresql://ada:[secret@127.0.0.1/x"], 2, "cannot be parsed"),
        (["threads", "list", "--settings", "none.toml"], 2, "no settings file"),
        (["threads", "list", "--tenant", "NOT A SLUG"], 2, "tenant id must match"),
        (["migrate", "--partitions", "4"], 2, "for PostgreSQL"),
        (["purge", "tenant", "local"], 5, "--yes"),
        (["backup", "x.db"], 3, "not found"),
        (["compact"], 3, "not found"),
        (["compact", "--database", "postgresql://nowhere/db"], 2, "VACUUM"),
        (["nonsense"], 2, "unknown command 'nonsense' (see threadline --help)"),
        (
            ["threads", "list", "--limit", "x"],
            2,
            "--limit must be a whole number, got 'x' (see ",
        ),
        (["threads", "list", "surplus"], 2, "unknown arguments: surplus (see threadline threads list --help)"),
        (["links"], 2, "unknown command 'links', did you mean 'link'? (see threadline --help)"),
        (["threads", "shwo"], 2, "unknown verb 'shwo', did you mean 'show'? (see threadline threads --help)"),
        (["threads", "export", "x", "--format", "xml"], 2, "--format must be one of jsonl, json, markdown, got 'xml'"),
        (["threads", "show"], 2, "missing thread (see threadline threads show --help)"),
        (["chat", "--agent"], 2, "--agent needs a value"),
        (["chat", "--continue", "--resume", "x"], 2, "--resume cannot be used with --continue"),
        (["chat", "--server", "http://", "-p", "x"], 2, "`url` must name a host"),
        (["agents", "add", "a", "--provider", "openai"], 2, "--set api_key=KEY"),
        (
            ["agents", "add", "a", "--provider", "openai", "--set", "api_kee=k"],
            2,
            "unknown setting `api_kee`, did you mean `api_key`?",
        ),
        (["agents", "add", "a", "--provider", "remote"], 2, "agent 'a': `url` is required"),
        (["agents", "remove", "rehearsal"], 2, "is shared by all tenants"),
        (["threads", "rename", "nothing", ""], 3, "thread 'nothing' not found"),
        (["serve", "--port", "99999"], 2, "--port must be 0–65535, got '99999'"),
        (["bridge", "--upstream", "nowhere"], 2, "got 'nowhere'"),
        (["chat", "--token", "x", "-p", "hello"], 2, "--token needs --server"),
        (["chat", "--agent", "missing", "-p", "hello"], 3, "agent 'missing' not found"),
        (["agents", "disable", "rehearsal"], 2, "is shared by all tenants"),
        (["channels", "connect", "telegram"], 2, "threadline channels credentials set telegram"),
    ],
)
def test_a_wrong_command_prints_one_line_and_exits_with_a_code(
    run: Run, words: list[str], code: int, message: str
) -> None:
    result = run(*words)
    assert result.code == code
    assert message in result.err
    assert result.err.startswith("threadline")
    assert result.err.count("\n") == 1
    assert "secret" not in result.err


@pytest.mark.parametrize(("words", "verb"), [([], "chat"), (["threads"], "search"), (["channels", "outbox"], "list")])
def test_a_command_without_its_verb_prints_the_verbs(run: Run, words: list[str], verb: str) -> None:
    result = run(*words)
    assert (result.code, result.out) == (2, "")
    assert f"\n    {verb} " in result.err


@pytest.mark.parametrize("words", [["chat", "--resume"], ["chat", "--resume", "-p", "hello"]])
def test_choosing_a_thread_without_a_terminal_is_one_line(run: Run, thread_id: str, words: list[str]) -> None:
    result = run(*words)
    assert (result.code, result.err) == (2, "threadline: no thread chosen: give its id after --resume\n")


@pytest.mark.parametrize("refused", ["x" * 2_000_000, "half a character: \ud800"])
def test_a_rejected_first_message_leaves_no_thread(run: Run, refused: str) -> None:
    assert run("chat", "-p", refused).code == 2
    assert run("threads", "list", "--json").json()["threads"] == []


def test_a_chat_works_in_a_deleted_working_directory(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run("chat", "-p", "calculate 6*7").code == 0


@pytest.mark.parametrize(
    ("output", "variables", "code", "error"),
    [
        ("/dev/full", {}, 1, "threadline: standard output: No space left on device\n"),
        ("/dev/null", {"PYTHONIOENCODING": "ascii"}, 0, ""),
    ],
)
def test_an_output_that_cannot_be_written_is_one_line(
    home: Path, output: str, variables: dict[str, str], code: int, error: str
) -> None:
    command = [sys.executable, "-m", "threadline", "chat", "-p", "“hello”"]
    with Path(output).open("w") as out:
        result = subprocess.run(
            command, stdout=out, stderr=subprocess.PIPE, text=True, env=os.environ | variables, timeout=30, check=False
        )
    assert (result.returncode, result.stderr) == (code, error)


def test_an_error_of_several_lines_keeps_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(args: argparse.Namespace) -> None:
        raise StoreFailed("run this:\nGRANT a TO b;\nGRANT c TO \x1bd;")

    monkeypatch.setattr(admin, "migrate", refuse)
    assert run("migrate").err == "threadline: run this:\nGRANT a TO b;\nGRANT c TO \\x1bd;\n"


def test_an_unknown_setting_is_named(run: Run, home: Path) -> None:
    (home / "threadline.toml").write_text('databse = "x.db"\n')
    result = run("threads", "list")
    assert (result.code, "databse" in result.err) == (2, True)


def test_the_doctor_finds_no_problem_in_a_good_database_and_names_those_of_a_bad_one(
    run: Run, thread_id: str, home: Path
) -> None:
    assert run("doctor").out.endswith("No problems found.\n")
    (home / "bad.db").write_bytes(b"this is no database, and far too long to be taken for an empty one" * 20)
    sick = run("doctor", "--database", "bad.db")
    assert sick.code == 1
    assert "error:" in sick.out
    assert "no database yet" in run("doctor", "--database", "new.db").out
    assert not (home / "new.db").exists()


def test_migrate_prints_its_steps(run: Run, home: Path) -> None:
    dry = run("migrate", "--dry-run", "--database", "new.db")
    assert "001 create threads" in dry.out
    assert not (home / "new.db").exists()
    assert "Migrated from version 0" in run("migrate", "--database", "new.db").out
    assert "Nothing to do" in run("migrate", "--database", "new.db").out


def test_a_database_can_be_copied(run: Run, thread_id: str, home: Path) -> None:
    database = str(home / ".local/share/threadline/threadline.sqlite3")
    copied = run("copy", database, "copy.db", "--json").json()["rows"]
    assert copied["messages"] == 4
    assert thread_id in run("threads", "list", "--database", "copy.db").out
    assert run("copy", database, database).code == 2


@pytest.mark.req("SX-03")
def test_purging_a_user_deletes_all_their_data(run: Run, thread_id: str) -> None:
    assert run("purge", "user", "missing", "--yes").code == 3
    assert run("purge", "user", "local", "--yes").code == 0
    assert run("threads", "list", "--json").json()["threads"] == []
    assert run("threads", "search", "calculate").out == "Nothing found.\n"


def test_a_thread_is_invisible_to_other_users_and_tenants(run: Run, thread_id: str) -> None:
    assert run("threads", "show", thread_id, "--user", "eve").code == 3
    assert run("threads", "show", thread_id, "--tenant", "elsewhere").code == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(run: Run) -> None:
    assert "cannot" in run("threads", "list", "--database", "/proc/none/x.db").err
