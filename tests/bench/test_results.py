"""Budgets, ratios and the files between two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import results
from bench.budgets import OURS, Budget, Measure
from bench.crowds import count_wrong
from bench.measure import Samples
from bench.places import Backend
from bench.results import CaseResult, Progress, Result, Row, throughput, timings, verdict

WORK = Measure("some work", Budget("ratio", "≤", 1.4), Budget("ratio", "≥", 0.9))


def test_a_ratio_is_against_the_reference_and_times_are_milliseconds() -> None:
    taken = {"bare": Samples([[0.002], [0.002]]), OURS: Samples([[0.003], [0.003]])}
    bare, ours = timings(WORK, taken, reference="bare")
    assert (bare.ratio, ours.value, ours.against) == (1.0, 3.0, "bare")
    assert ours.ratio == pytest.approx(1.5)


def test_throughput_ratios_say_how_many_times_as_many() -> None:
    taken = {"bare": Samples([[2.0], [2.0]]), OURS: Samples([[0.5], [0.5]])}
    bare, ours = throughput(WORK, 100, taken, reference="bare")
    assert (bare.value, ours.value, ours.ratio) == (50.0, 200.0, 4.0)


@pytest.mark.parametrize(
    ("ratio", "backend", "met"),
    [(1.4, "sqlite", True), (1.41, "sqlite", False), (0.9, "postgres", True), (0.89, "postgres", False)],
)
def test_a_budget_is_kept_up_to_its_limit(ratio: float, backend: Backend, met: bool) -> None:
    assert verdict(Row(WORK.name, OURS, "ms", 1.0, ratio=ratio), WORK.budget(backend)) is met


def test_a_budget_judges_what_is_printed() -> None:
    assert verdict(Row(WORK.name, OURS, "ms", 1.0, ratio=1.4049), WORK.sqlite) is True


def test_only_threadline_is_judged() -> None:
    assert verdict(Row(WORK.name, "bare", "ms", 1.0, ratio=9.0), WORK.sqlite) is None


def test_a_budget_for_a_ratio_cannot_be_kept_by_a_row_without_a_reference() -> None:
    with pytest.raises(ValueError):
        verdict(Row(WORK.name, OURS, "ms", 1.0), WORK.sqlite)


def test_the_check_after_a_crowd_sees_what_is_lost_doubled_or_out_of_order() -> None:
    assert count_wrong(["a", "b"], [(0, "a"), (1, "b")]) == 0
    assert count_wrong(["a", "b"], [(0, "a")]) == 1
    assert count_wrong(["a"], [(0, "a"), (1, "a")]) == 1
    assert count_wrong(["a", "b"], [(0, "a"), (2, "b")]) == 1


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    row = Row(WORK.name, OURS, "ms", 1.25, ratio=1.1, against="bare")
    case = CaseResult("append", "sqlite", [row], 1.5, ["others used 0.40 of 2 processors"])
    result = Result("2026-11-15", {"kind": "k"}, {"python": "3.11"}, False, [case])
    results.write(result, tmp_path / "result.json")
    assert results.read(tmp_path / "result.json") == result
    assert result.rows(WORK, "sqlite") == [row]
    assert result.rows(WORK, "postgres") == []


def test_an_interrupted_run_remembers_what_was_done_until_the_code_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "WORKSPACE", tmp_path)
    case = CaseResult("append", "sqlite", [], 1.0, [])
    Progress(quick=True).keep(case)
    assert Progress(quick=True).done("append", "sqlite") == case
    assert Progress(quick=False).done("append", "sqlite") is None
    monkeypatch.setattr(results, "code_fingerprint", lambda: "another")
    assert Progress(quick=True).done("append", "sqlite") is None
