"""The noise guard notices a busy machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import machine

STAT = "cpu  100 20 30 9000 50 5 5 40 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"


def test_busy_time_counts_everything_but_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    (tmp_path / "stat").write_text(STAT)
    assert machine.busy_seconds(tmp_path / "stat") == pytest.approx(2.0)


def test_a_machine_that_keeps_no_count_is_taken_as_quiet(tmp_path: Path) -> None:
    assert machine.busy_seconds(tmp_path / "nothing") == 0.0


def test_busy_neighbours_and_an_uneven_clock_are_both_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "foreign_share", lambda *, seconds: 0.8)
    monkeypatch.setattr(machine, "spin_spread", lambda: 1.6)
    assert len(machine.noise()) == 2


def test_a_quiet_moment_has_nothing_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "foreign_share", lambda *, seconds: 0.01)
    monkeypatch.setattr(machine, "spin_spread", lambda: 1.05)
    assert machine.noise() == []


def test_the_versions_name_every_peer_even_one_that_is_missing() -> None:
    found = machine.versions()
    assert {"python", "sqlite (apsw)", "asyncpg", "openai-agents", "google-adk", "agno", "langgraph"} <= set(found)
