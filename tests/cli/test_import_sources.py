"""`threadline threads import` of other programs' conversations, through the terminal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.importers.conftest import FILES, SAMPLES

pytestmark = pytest.mark.req("G-07")
PATIENCE_SECONDS = 120


def test_a_dry_run_counts_and_stores_nothing(run: Run) -> None:
    told = run("threads", "import", str(FILES["claude-code"]), "--dry-run")
    assert "Found in claude-code: 2 threads, 11 messages, 1 branch. Nothing was stored." in told.out
    assert "Kept as data: claude-code-brand-new: 1" in told.out
    assert "Left out: claude-code file-history-snapshot: 1" in told.out
    assert run("threads", "list", "--json").json()["threads"] == []


def test_a_repeated_import_says_that_nothing_is_new(run: Run) -> None:
    told = run("threads", "import", "--from", "chatgpt", str(FILES["chatgpt"]))
    assert "Imported from chatgpt: 9 new messages; threads: 1 created" in told.out
    again = run("threads", "import", str(FILES["chatgpt"]), "--json").json()
    assert (again["from"], again["messages"], again["threads"]) == ("chatgpt", 0, {"unchanged": 1})
    (found,) = run("threads", "search", "ribeira", "--json").json()["threads"]
    assert found["title"] == "Trip to Porto"
    assert run("threads", "timelines", found["threadId"]).out.count("\n") == 4
    assert run("threads", "list", "--where", "source=chatgpt", "--json").json()["threads"] == []


def test_the_folder_of_a_program_is_the_default(run: Run, home: Path) -> None:
    folder = home / ".codex" / "sessions" / "2026" / "05" / "01"
    folder.mkdir(parents=True)
    shutil.copy(FILES["codex"], folder)
    told = run("threads", "import", "--from", "codex")
    assert "threads: 1 created" in told.out
    assert "the system prompt of 1 thread is not used" in told.out
    (thread,) = run("threads", "list", "--json").json()["threads"]
    assert (thread["systemPrompt"], thread["metadata"]["importedSystemPrompt"]) == (None, "Obey.")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "nothing to import"),
        (["--from", "chatgpt"], "a file is missing"),
        (["--from", "chatgpt", "nowhere.json"], "nowhere.json must be a file or a folder"),
        (["--from", "codex", "--watch", "--dry-run", "."], "exclude each other"),
        (["--from", "codex", "--watch", str(FILES["codex"])], "must be given a folder"),
        (["--from", "openai", "--watch", "."], "must be used with claude-code or codex"),
        (["--dry-run", "own.jsonl"], "another program's"),
    ],
)
def test_what_cannot_be_done_is_said(run: Run, words: list[str], reason: str) -> None:
    told = run("threads", "import", *words)
    assert told.code == 2
    assert reason in told.err


def test_a_file_of_no_known_program_is_named_with_what_can_be_imported(run: Run, home: Path) -> None:
    for name, content in {"passwd": b"root:x:0:0:/root\n", "program": b"\x7fELF\x00\n", "empty": b""}.items():
        (home / name).write_bytes(content)
        told = run("threads", "import", name)
        assert told.code == 2
        assert f"{name} was not recognised (line 1: " in told.err
        assert "--from chatgpt|claude-code|codex|llm|uimessages|openai" in told.err
    (home / "folder").mkdir()
    assert "no conversations were found in the folder folder" in run("threads", "import", "folder").err
    assert run("threads", "list", "--json").json()["threads"] == []


def test_what_is_good_is_imported_and_the_fault_is_named(run: Run, home: Path) -> None:
    folder = home / "sessions"
    folder.mkdir()
    shutil.copy(FILES["claude-code"], folder / "b.jsonl")
    (folder / "a.jsonl").write_text('{"uuid": "a", "parentUuid": null}\n{broken\n', encoding="utf-8")
    told = run("threads", "import", "--from", "claude-code", str(folder))
    assert told.code == 2
    assert "threads: 2 created" in told.out
    assert f"Refused: {folder / 'a.jsonl'}: line 2 must be JSON" in told.out


def _many(path: Path, conversations: int) -> None:
    (one, *_) = json.loads((SAMPLES / "conversations.json").read_text(encoding="utf-8"))
    many = [{**one, "conversation_id": f"c{n}", "title": f"Trip {n}"} for n in range(conversations)]
    path.write_text(json.dumps(many), encoding="utf-8")


def _start(home: Path, *words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "HOME": str(home)}
    command = [sys.executable, "-m", "threadline", "threads", "import", *words, "--database", "t.db"]
    return subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _threads(run: Run) -> list[dict[str, Any]]:
    found = run("threads", "list", "--database", "t.db", "--limit", "1000", "--json", "--archived")
    return list(found.json()["threads"]) if found.code == 0 and found.out else []


def test_an_import_that_was_killed_is_repeated_and_nothing_is_doubled(run: Run, home: Path) -> None:
    _many(home / "conversations.json", 150)
    run("threads", "list", "--database", "t.db")
    process = _start(home, "conversations.json")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _threads(run) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = _threads(run)
    assert left
    assert {thread["messageCount"] for thread in left} == {6}
    assert run("threads", "import", "conversations.json", "--database", "t.db").code == 0
    titles = sorted(thread["title"] for thread in _threads(run))
    assert titles == sorted(f"Trip {n}" for n in range(150))


def _wait_for_import(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    while line := process.stdout.readline():
        if b"Imported from claude-code" in line:
            return
    pytest.fail(f"the import ended with status {process.wait()}")


def test_watched_sessions_arrive_while_they_are_written(run: Run, home: Path) -> None:
    folder = home / ".claude" / "projects" / "-home-ada"
    folder.mkdir(parents=True)
    lines = FILES["claude-code"].read_text(encoding="utf-8").splitlines(keepends=True)
    run("threads", "list", "--database", "t.db")
    process = _start(home, "--from", "claude-code", "--watch", "--every", "0.1")
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith(b"Watching ")
        session = folder / "session.jsonl"
        session.write_text("".join(lines[:14]), encoding="utf-8")
        _wait_for_import(process)
        session.write_text("".join(lines), encoding="utf-8")
        _wait_for_import(process)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
    found = run("threads", "list", "--database", "t.db", "--json").json()["threads"]
    assert "Trip to Lisbon" in [thread["title"] for thread in found]
