"""`threadline retention`: policies and legal holds from the command line."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run


@pytest.mark.req("K-05")
def test_holds_and_policies_on_the_command_line(run: Run, thread_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "has no retention policy" in run("retention", "apply").out
    monkeypatch.setenv("THREADLINE_RETENTION__DELETED", "1")
    assert run("retention", "apply", "--dry-run").out == "Would purge 0 threads of tenant local (none)\n"
    held = run("retention", "hold", "--reason", "case 17", "--thread", thread_id, "--json").json()
    assert f"thread {thread_id}" in run("retention", "holds").out
    refused = run("purge", "user", "local", "--yes")
    assert (refused.code, "under a legal hold" in refused.err) == (4, True)
    assert run("retention", "release", held["id"]).code == 0
    assert run("retention", "release", held["id"]).code == 3
    assert run("purge", "user", "local", "--yes").code == 0


@pytest.mark.req("K-05")
def test_zero_days_need_a_confirmation_and_are_for_one_run(
    run: Run, thread_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run("retention", "apply", "--age", "0")
    assert (refused.code, "all threads (age) of tenant local, however new: add --yes" in refused.err) == (5, True)
    assert run("retention", "apply", "--age", "-1", "--yes").code == 2
    monkeypatch.setenv("THREADLINE_RETENTION__AGE", "0")
    assert "must be 1–36500" in run("retention", "apply").err
    monkeypatch.setenv("THREADLINE_RETENTION__AGE", "365")
    assert "Would purge 1 threads" in run("retention", "apply", "--age", "0", "--dry-run").out
    assert run("threads", "show", thread_id).code == 0
    purged = run("retention", "apply", "--age", "0", "--yes", "--json").json()
    assert (purged["policy"]["age"], purged["threads"]) == (0, {"age": 1})
    assert run("threads", "show", thread_id).code == 3
