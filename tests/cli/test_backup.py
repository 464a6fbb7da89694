"""`threadline backup` and `restore`, as an operator runs them."""

from __future__ import annotations

import os
import resource
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

DATABASE = ".local/share/threadline/threadline.sqlite3"


@pytest.mark.req("K-01")
def test_a_backup_is_restored_into_a_new_database(run: Run, thread_id: str, home: Path) -> None:
    made = run("backup", "all.backup")
    assert made.code == 0, made.err
    assert "Backed up and verified" in made.out
    assert run("restore", "all.backup", "new.sqlite3", "--dry-run", "--json").json()["rows"]["messages"] == 4
    assert not (home / "new.sqlite3").exists()
    restored = run("restore", "all.backup", "new.sqlite3", "--json").json()
    assert restored["rows"]["messages"] == 4
    assert thread_id in run("threads", "list", "--database", "new.sqlite3").out
    assert "No problems found" in run("doctor", "--database", "new.sqlite3").out


@pytest.mark.req("K-01")
def test_a_key_encrypts_a_backup(run: Run, thread_id: str, home: Path) -> None:
    (home / "backup.key").write_text(run("vault", "key").out)
    assert run("backup", DATABASE, "all.backup", "--key-file", "backup.key").code == 0
    refused = run("restore", "all.backup", "new.sqlite3")
    assert (refused.code, "is encrypted" in refused.err) == (2, True)
    assert run("restore", "all.backup", "new.sqlite3", "--key-file", "backup.key").code == 0
    assert thread_id in run("threads", "list", "--database", "new.sqlite3").out
    (home / "wrong.key").write_text("not a key")
    assert "must be 32 bytes in base64" in run("backup", "other.backup", "--key-file", "wrong.key").err
    assert not (home / "other.backup").exists()


@pytest.mark.req("K-01")
def test_what_cannot_be_restored_is_refused_and_leaves_nothing(run: Run, thread_id: str, home: Path) -> None:
    assert run("backup", "all.backup").code == 0
    (home / "cut.backup").write_bytes((home / "all.backup").read_bytes()[:-40])
    (home / "text.txt").write_text("hello")
    for words, code, says in (
        (("restore", "cut.backup", "new.sqlite3"), 2, "cut.backup is not complete: its end is missing"),
        (("restore", "text.txt", "new.sqlite3"), 2, "text.txt is not a backup made by `threadline backup`"),
        (("restore", "missing", "new.sqlite3"), 2, "cannot read missing: No such file"),
        (("restore", "all.backup"), 4, "the database is not empty"),
        (("backup", "all.backup"), 2, "all.backup exists: choose a new name"),
        (("backup", "nowhere.sqlite3", "x.backup"), 3, "not found"),
        (("backup", "no/such/folder/x.backup"), 2, "cannot write no/such/folder/x.backup: No such file"),
        (("backup", "x.backup", "--key-file", "none"), 2, "cannot read the key in none: No such file"),
    ):
        refused = run(*words)
        assert (refused.code, says in refused.err) == (code, True), refused
    assert {path.name for path in home.iterdir() if path.is_file()} == {"all.backup", "cut.backup", "text.txt"}
    assert thread_id in run("threads", "list").out


@pytest.mark.req("K-01")
def test_a_full_disk_leaves_no_backup(run: Run, home: Path) -> None:
    run("chat", "-p", secrets.token_hex(200_000))
    limit = 64 * 1024
    done = subprocess.run(
        [sys.executable, "-m", "threadline", "backup", "all.backup"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=home,
        env=os.environ | {"HOME": str(home)},
        # The kernel refuses to let any file of this process grow further, as a full disk would.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode != 0
    assert "no space left for all.backup: make room" in done.stderr
    assert [path.name for path in home.iterdir() if "backup" in path.name] == []
    assert run("backup", "all.backup").code == 0
