"""Which thread, agent and model a chat continues with: folders, parts of ids, the list to choose from, completion."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.stub_model import StubModel, serve_model
from tests.cli.test_chat import Terminal
from tests.cli.test_chat import terminal as terminal
from threadline.cli.chat.thread_picker import Choice, matching, rows_of
from threadline.cli.output import cut, display_width
from threadline.core.threads import Thread


@pytest.fixture
def stub(home: Path) -> Iterator[StubModel]:
    with serve_model() as model:
        model.write_settings(home / "threadline.toml")
        yield model


@pytest.mark.req("T-04")
def test_model_and_agent_apply_to_a_thread_that_continues(run: Run, stub: StubModel) -> None:
    thread_id = run("chat", "-p", "one", "--json").json()["threadId"]
    assert run("chat", "--continue", "--model", "stub-large", "-p", "two").code == 0
    assert run("chat", "--resume", thread_id, "-p", "three").code == 0
    assert [request["model"] for request in stub.requests] == ["stub-small", "stub-large", "stub-large"]
    assert run("chat", "--continue", "--agent", "rehearsal", "-p", "four", "--json").json()["agentId"] == "rehearsal"
    assert run("chat", "--continue", "-p", "five", "--json").json()["agentId"] == "rehearsal"


@pytest.mark.req("T-04")
def test_agent_usage_edit_and_escaped_slashes(terminal: Terminal, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "edited: " | cat - "$1" > "$1.new" && mv "$1.new" "$1"\n')
    editor.chmod(0o755)
    with serve_model() as stub:
        stub.write_settings(tmp_path / "threadline.toml", "[prices.stub-small]", "input = 1.0", "output = 10.0")
        terminal.environment["EDITOR"] = str(editor)
        terminal.start()
        terminal.send("hello")
        terminal.expect("Hello from the stub.")
        terminal.send("/usage")
        terminal.expect("This chat: 1 turn, 1,000 input tokens, 20 output tokens, 0.0012 USD.")
        terminal.expect("This month: 1 turn")
        terminal.send("/edit my text")
        terminal.expect("Hello from the stub.")
        terminal.send("//etc is a folder")
        terminal.expect("Hello from the stub.")
        terminal.send("/usr/bin/foo: not found, why?")
        terminal.expect("Hello from the stub.")
        terminal.send("/etc is a folder")
        terminal.expect("Unknown command /etc.")
        terminal.expect("begin with //")
        terminal.send("/agent nothing")
        terminal.expect("no agent 'nothing' here: use rehearsal, stub")
        terminal.send("/agent")
        terminal.expect("rehearsal, stub (now)")
        terminal.send("/agent rehearsal")
        terminal.expect("Agent rehearsal answers from now on.")
        terminal.send("calculate 6*7")
        terminal.expect("6*7 is 42.")
        terminal.quit()
        assert stub.questions()[1:] == ["edited: my text", "/etc is a folder", "/usr/bin/foo: not found, why?"]


@pytest.mark.req("T-04")
def test_a_thread_whose_agent_is_gone_can_be_answered_by_another(terminal: Terminal, tmp_path: Path) -> None:
    with serve_model() as stub:
        stub.write_settings(tmp_path / "threadline.toml")
        terminal.start("-p", "hello")
        terminal.expect_exit(0)
    (tmp_path / "threadline.toml").unlink()
    terminal.start("--continue")
    terminal.expect("agent 'stub' is not configured here: /agent NAME asks another one (rehearsal)")
    terminal.send("/agent rehearsal")
    terminal.send("calculate 6*7")
    terminal.expect("6*7 is 42.")
    terminal.quit()


@pytest.mark.req("T-05")
def test_continue_prefers_the_working_directory(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "a").mkdir()
    (home / "b").mkdir()
    monkeypatch.chdir(home / "a")
    first = run("chat", "-p", "in a", "--json").json()["threadId"]
    monkeypatch.chdir(home / "b")
    elsewhere = run("chat", "--continue", "-p", "from b", "--json")
    assert "no thread of this folder: continuing the latest one, of ~/a" in elsewhere.err
    assert elsewhere.json()["threadId"] == first
    second = run("chat", "-p", "in b", "--json").json()["threadId"]
    assert run("chat", "--continue", "-p", "more", "--json").json()["threadId"] == second
    monkeypatch.chdir(home / "a")
    assert run("chat", "--continue", "-p", "more", "--json").json()["threadId"] == first
    assert "~/b" in run("threads", "list").out


@pytest.mark.req("T-05")
def test_ids_can_be_shortened_and_ambiguous_parts_are_named(run: Run) -> None:
    first = run("chat", "-p", "calculate 1+1", "--json").json()["threadId"]
    second = run("chat", "-p", "calculate 2+2", "--json").json()["threadId"]
    assert run("threads", "show", first[-6:]).out.startswith("calculate 1+1")
    assert run("chat", "--resume", second[-6:], "-p", "more", "--json").json()["threadId"] == second
    ambiguous = run("threads", "show", first[:4])
    assert ambiguous.code == 2
    assert first in ambiguous.err
    assert second in ambiguous.err
    assert run("threads", "show", first[-3:]).code == 3
    assert run("threads", "rename", first[-6:], "Sums").code == 0
    assert run("threads", "undo", first[-6:]).code == 0
    lines = run("threads", "timelines", first[-6:], "--json").json()
    other = next(line["id"] for line in lines["timelines"] if line["id"] != lines["current"])
    assert run("threads", "switch", first[-6:], other[-6:]).code == 0
    assert run("threads", "export", first[-6:]).code == 0
    assert run("threads", "delete", first[-6:]).code == 0
    assert run("threads", "restore", first[-6:]).code == 0


@pytest.mark.req("T-05")
def test_a_list_can_be_longer_than_a_page(run: Run, home: Path) -> None:
    import asyncio

    import threadline

    async def create() -> None:
        async with threadline.open("many.db") as tl:
            for number in range(120):
                await (await tl.as_user().create_thread(title=f"n{number}")).append("x")

    asyncio.run(create())
    listed = run("threads", "list", "--limit", "110", "--json", "--database", "many.db").json()
    assert len(listed["threads"]) == len({thread["id"] for thread in listed["threads"]}) == 110
    rest = run("threads", "list", "--cursor", listed["nextCursor"], "--json", "--database", "many.db").json()
    assert (len(rest["threads"]), rest["nextCursor"]) == (10, None)
    assert run("threads", "list", "--limit", "0").code == 2


@pytest.mark.req("T-05")
def test_the_list_to_choose_from_is_searched_by_typing(terminal: Terminal) -> None:
    for question in ("calculate 3*3", "calculate 4*4", "count the words in one two"):
        terminal.start("-p", question)
        terminal.expect_exit(0)
    terminal.start("--resume")
    terminal.expect("Type to search")
    terminal.child.send("calculate")
    terminal.expect("2 of 3")
    terminal.child.send("\x1b[B")
    terminal.child.send("\r")
    terminal.expect("Resuming calculate 3*3")
    terminal.quit()
    terminal.start("--resume")
    terminal.expect("Type to search")
    terminal.child.send("\x1b")
    terminal.expect("/help lists commands")
    terminal.quit()


def thread(title: str, folder: str | None = None, count: int = 2) -> Thread:
    now = dt.datetime(2026, 11, 16, 12, 0, tzinfo=dt.UTC)
    ids = {"id": f"01{title[:3]}", "owner_id": "o", "state_key": "k", "timeline_id": "t"}
    return Thread(
        **ids,
        title=title,
        title_by_person=False,
        agent_id=None,
        model=None,
        system_prompt=None,
        working_dir=folder,
        metadata={},
        message_count=count,
        token_count=0,
        created_at=now,
        updated_at=now,
        archived_at=None,
        deleted_at=None,
    )


LISTED = [
    thread("Lisbon in May", "/srv/travel"),
    thread("東京の週末の旅行計画と宿と食べ物と電車の時刻と天気について詳しく", "/srv/travel", 120),
    thread("Fix the parser\x1b[31m", "/srv/code/a/very/long/path/to/some/project"),
    thread("begun on the page"),
]


@pytest.mark.req("T-05")
@pytest.mark.parametrize("width", [40, 80, 200])
def test_rows_of_the_list_fit_the_width(width: int) -> None:
    rows = [text for _, text in rows_of(LISTED, Choice(position=1), width, "/srv/travel")]
    assert all(display_width(row) <= width for row in rows)
    assert rows[2].startswith("→ 東京")
    assert not any("\x1b" in row for row in rows)
    assert ("here" in rows[1]) == (width >= 60)


def test_every_word_must_be_in_title_folder_or_id() -> None:
    assert [each.title for each in matching(LISTED, "travel LISBON")] == ["Lisbon in May"]
    assert matching(LISTED, "nothing") == []
    assert cut("abcdef", 4) == "abc…"


@pytest.mark.req("T-05")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_and_completions(run: Run, shell: str, tmp_path: Path) -> None:
    assert "threadline" in run("completion", shell).out
    out = tmp_path / "completions"
    asked = {
        "_ARGCOMPLETE": "1",
        "COMP_LINE": "threadline thr",
        "COMP_POINT": "14",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
    }
    env = {**os.environ, **asked, "_ARGCOMPLETE_SHELL": shell, "IFS": "\n"}
    subprocess.run([sys.executable, "-m", "threadline"], env=env, check=False, capture_output=True)
    assert "threads" in out.read_text()


@pytest.mark.req("T-05")
def test_common_options_work_before_the_command(run: Run, home: Path) -> None:
    (home / "other.toml").write_text('database = "other.db"\n')
    assert run("--settings", "other.toml", "chat", "-p", "hello").code == 0
    assert (home / "other.db").exists()
    assert len(run("threads", "--settings", "other.toml", "--json", "list").json()["threads"]) == 1
    assert len(run("threads", "list", "--json", "--settings", "other.toml").json()["threads"]) == 1
