"""Lock files tell at once that a process of this machine has ended, however it ended; and nothing where they cannot."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from threadline.core.ids import new_id
from threadline.processes import LocalProcesses, runtime_folder, sqlite_folder

_PROGRAM = """
import sys, time
from pathlib import Path
from threadline.processes import LocalProcesses
print(LocalProcesses(Path(sys.argv[1])).worker, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sqlite_folder(tmp_path / "chats.db")


@pytest.fixture
def other(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that has taken its name."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


@pytest.mark.req("R-02")
def test_a_killed_process_is_known_at_once(folder: Path, other: tuple[subprocess.Popen[str], str]) -> None:
    process, worker = other
    mine = LocalProcesses(folder)
    assert (mine.is_running(worker), mine.is_running(mine.worker)) == (True, True)
    process.send_signal(signal.SIGSTOP)
    assert mine.is_running(worker) is True
    process.kill()
    process.wait()
    assert mine.is_running(worker) is False
    mine.close()
    assert LocalProcesses(folder).is_running(mine.worker) is None


def test_names_are_never_used_twice(folder: Path) -> None:
    made = [LocalProcesses(folder) for _ in range(5)]
    assert len({each.worker for each in made}) == 5
    assert str(os.getpid()) in made[0].worker
    for each in made:
        each.close()
    assert not folder.exists()


def test_nothing_is_known_of_other_machines_and_other_folders(folder: Path, tmp_path: Path) -> None:
    mine, elsewhere = LocalProcesses(folder), LocalProcesses(tmp_path / "other")
    boot, pid, _ = mine.worker.split("-")
    other_boot, never_seen = f"{'0' * len(boot)}-{pid}-{new_id()}", f"{boot}-{pid}-{new_id()}"
    for unknown in (elsewhere.worker, other_boot, never_seen, "dead", "../x"):
        assert mine.is_running(unknown) is None
    assert LocalProcesses(None).is_running(mine.worker) is None


def test_a_folder_that_cannot_be_used_leaves_it_to_the_leases(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    mine = LocalProcesses(blocked / "folder")
    assert mine.is_running(mine.worker) is None
    mine.close()


def test_a_private_folder_must_be_ones_own(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    mine = LocalProcesses(shared, is_private=True)
    assert mine.is_running(mine.worker) is None
    assert list(shared.iterdir()) == []
    shared.chmod(0o700)
    again = LocalProcesses(shared, is_private=True)
    assert again.is_running(again.worker) is True


def test_files_of_ended_processes_are_removed_later(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(folder)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        worker = process.stdout.readline().strip()
    # Long ago by its own time: what counts is when it was first found ended.
    os.utime(folder / worker, (0, 0))
    mine = LocalProcesses(folder)
    assert mine.is_running(worker) is False
    first = LocalProcesses(folder)
    assert first.worker
    assert mine.is_running(worker) is False
    hour_ago = time.time() - 3700
    os.utime(folder / worker, (hour_ago, hour_ago))
    second = LocalProcesses(folder)
    assert second.worker
    assert mine.is_running(worker) is None
    assert mine.is_running(second.worker) is mine.is_running(first.worker) is True


def _in_child(mine: LocalProcesses, telling: Connection, until: Connection) -> None:
    telling.send((mine.worker, mine.is_running(mine.worker)))
    until.recv()


def test_a_forked_child_has_its_own_name_and_does_not_keep_the_parents_lock(folder: Path) -> None:
    mine, watching = LocalProcesses(folder), LocalProcesses(folder)
    worker = mine.worker
    context = multiprocessing.get_context("fork")
    hearing, telling = context.Pipe()
    until, ending = context.Pipe()
    child = context.Process(target=_in_child, args=(mine, telling, until))
    child.start()
    try:
        name, is_running = hearing.recv()
        assert name != worker
        assert is_running is True
        assert watching.is_running(worker) is True
        mine.close()
        assert watching.is_running(worker) is None
        assert watching.is_running(name) is True
    finally:
        ending.send(None)
        child.join()
    assert watching.is_running(name) is False


def test_the_runtime_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_folder() == tmp_path / "threadline"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert str(os.getuid()) in runtime_folder().name
