"""The tools for the files of a folder: what they do, and that nothing leads out of the folder."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from threadline.agents.tool_execution import ToolFailed
from threadline.agents.workspace import MOST_BYTES, Workspace
from threadline.agents.workspace_tools import preview, workspace_tools


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "project"
    (inside / "src").mkdir(parents=True)
    (inside / "src/main.py").write_text("def add(a, b):\n    return a - b\n")
    (inside / "notes.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret.txt").write_text("outside")
    return inside


async def call(folder: Path, name: str, **given: Any) -> Any:
    (tool,) = (each for each in workspace_tools(Workspace(folder)) if each.name == name)
    return await tool.run(tool.check(given))


@pytest.mark.req("A-03")
async def test_files_are_read_listed_written_and_edited(folder: Path) -> None:
    assert await call(folder, "read_file", path="notes.txt", first_line=2, lines=1) == "2\ttwo\n[1 more lines]"
    assert await call(folder, "list_files") == "notes.txt\nsrc/"
    assert "edited src/main.py" in await call(folder, "edit_file", path="src/main.py", old="a - b", new="a + b")
    assert (folder / "src/main.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert (
        await call(folder, "write_file", path="new/deep/file.txt", text="x\ny\n")
        == "wrote 2 lines to new/deep/file.txt"
    )
    assert (folder / "new/deep/file.txt").read_text() == "x\ny\n"
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    await call(folder, "write_file", path="run.sh", text="#!/bin/sh\necho\n")
    assert (folder / "run.sh").stat().st_mode & 0o777 == 0o755
    assert ".tmp" not in await call(folder, "list_files")


@pytest.mark.req("A-03")
@pytest.mark.parametrize("with_ripgrep", [True, False])
async def test_search_finds_lines(folder: Path, with_ripgrep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if with_ripgrep and shutil.which("rg") is None:
        fake = folder.parent / "rg"
        fake.write_text('#!/bin/sh\nfor last; do :; done\nexec grep -rnE "def add" "$last"\n')
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder.parent}:{os.environ['PATH']}")
    elif not with_ripgrep:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    assert await call(folder, "search_files", pattern=r"def add") == "src/main.py:1:def add(a, b):"
    if not with_ripgrep:
        assert await call(folder, "search_files", pattern="two", glob="*.py") == "[nothing found]"
        with pytest.raises(ToolFailed, match="not a regular expression"):
            await call(folder, "search_files", pattern="(")


@pytest.mark.req("A-03")
@pytest.mark.parametrize(
    "path", ["../secret.txt", "/etc/passwd", "src/../../secret.txt", "link", "folder/secret.txt", ""]
)
@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file", "list_files", "search_files"])
async def test_nothing_leads_out_of_the_folder(folder: Path, name: str, path: str) -> None:
    (folder / "link").symlink_to(folder.parent / "secret.txt")
    (folder / "folder").symlink_to(folder.parent)
    more = {"write_file": {"text": "x"}, "edit_file": {"old": "outside", "new": "x"}, "search_files": {"pattern": "."}}
    with pytest.raises(ToolFailed, match=r"outside the folder|must name a file"):
        await call(folder, name, path=path, **more.get(name, {}))
    assert (folder.parent / "secret.txt").read_text() == "outside"


@pytest.mark.req("A-03")
async def test_links_inside_the_folder_are_resolved(folder: Path) -> None:
    (folder / "inner").symlink_to("src")
    assert "return" in await call(folder, "read_file", path="inner/main.py")
    assert "return" in await call(folder, "read_file", path=str(folder / "src/main.py"))


@pytest.mark.req("A-03")
async def test_a_folder_that_becomes_a_link_is_not_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check and the opening race with a process that replaces the folder."""
    workspace = Workspace(folder)
    checked = workspace.relative

    def replace_after_check(path: str) -> str:
        relative = checked(path)
        if not (folder / "src").is_symlink():
            (folder / "src").rename(folder / "moved")
            (folder / "src").symlink_to(folder.parent)
        return relative

    monkeypatch.setattr(workspace, "relative", replace_after_check)
    with pytest.raises(ToolFailed):
        workspace.read_bytes("src/main.py")
    with pytest.raises(ToolFailed):
        workspace.write_text("src/secret.txt", "stolen")
    assert (folder.parent / "secret.txt").read_text() == "outside"


@pytest.mark.req("A-03")
async def test_devices_pipes_and_sockets_are_refused_without_waiting(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(folder / "sock"))
        for name in ("pipe", "sock"):
            with pytest.raises(ToolFailed):
                await call(folder, "read_file", path=name)
            with pytest.raises(ToolFailed):
                await call(folder, "write_file", path=name, text="x")
    with pytest.raises(ToolFailed, match="is a folder"):
        await call(folder, "read_file", path="src")


@pytest.mark.req("A-03")
async def test_huge_binary_and_invalid_files(folder: Path) -> None:
    with (folder / "huge").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(ToolFailed, match="at most"):
        await call(folder, "read_file", path="huge")
    (folder / "image.png").write_bytes(b"\x89PNG\x00\x00")
    with pytest.raises(ToolFailed, match="must be a text file, got a binary one of 6 bytes"):
        await call(folder, "read_file", path="image.png")
    (folder / "latin").write_bytes(b"caf\xe9\n")
    assert await call(folder, "read_file", path="latin") == "1\tcaf�"
    with pytest.raises(ToolFailed, match="not UTF-8 text"):
        await call(folder, "edit_file", path="latin", old="caf", new="x")
    assert (folder / "latin").read_bytes() == b"caf\xe9\n"
    with pytest.raises(ToolFailed, match="found 0 times"):
        await call(folder, "edit_file", path="notes.txt", old="nine", new="x")


@pytest.mark.req("A-03")
async def test_a_command_is_bounded_in_time_and_output(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    assert await call(folder, "run_command", command="pwd; exit 3") == f"{folder}\n[exit code 3]"
    assert "hidden" not in await call(folder, "run_command", command="env; cat")
    assert (
        await call(folder, "run_command", command=r"printf '\033[31mred\033[0m\033]0;title\007'")
        == "red\n[exit code 0]"
    )
    flooded = await call(folder, "run_command", command="yes flood | head -c 5000000")
    assert len(flooded) < 40_000
    assert "bytes left out" in flooded
    began = time.monotonic()
    with pytest.raises(ToolFailed, match="took longer than 1 s"):
        await call(folder, "run_command", command="echo begun; sleep 300 & sleep 300", seconds=1)
    assert time.monotonic() - began < 20


@pytest.mark.req("A-03")
def test_a_change_is_shown_and_refused_if_the_file_changed_since(folder: Path) -> None:
    workspace = Workspace(folder)
    diff = preview(workspace, "edit_file", {"path": "src/main.py", "old": "a - b", "new": "a + b"})
    assert diff is not None
    assert "-    return a - b\n+    return a + b" in diff
    (folder / "src/main.py").write_text("changed\n")
    with pytest.raises(ToolFailed, match="has changed since"):
        workspace.write_text("src/main.py", "x")
    assert (folder / "src/main.py").read_text() == "changed\n"
    new = preview(workspace, "write_file", {"path": "a.txt", "text": "one\n"})
    assert new is not None
    assert "--- /dev/null" in new
