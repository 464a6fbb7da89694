"""What a run found: rows, cases and the whole result, how they are judged, and the files that keep them.

A full run ends in `bench/results/<date>-<kind of host>.json`. During it, each finished case is stored in the
workspace under a fingerprint of the code, so that an interrupted run resumes and changed code starts again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bench.budgets import OURS, Budget, Measure
from bench.measure import Samples
from bench.places import ROOT, WORKSPACE, Backend

RESULTS = ROOT / "bench" / "results"


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One contender at one piece of work. Times are in milliseconds; `value` is the median where there are several."""

    work: str
    contender: str
    unit: str
    value: float
    at: str = ""
    best: float | None = None
    p99: float | None = None
    samples: int = 1
    ratio: float | None = None
    best_ratio: float | None = None
    against: str | None = None


class CaseResult(msgspec.Struct, frozen=True):
    case: str
    backend: Backend
    rows: list[Row]
    seconds: float
    noise: list[str]


class Result(msgspec.Struct, frozen=True):
    date: str
    host: dict[str, str]
    versions: dict[str, str]
    quick: bool
    cases: list[CaseResult]
    missing: list[str] = []
    """Cases that this run left out."""

    def rows(self, work: Measure, backend: Backend) -> list[Row]:
        return [row for case in self.cases if case.backend == backend for row in case.rows if row.work == work.name]


def timing(
    work: Measure, contender: str, samples: Samples, *, at: str = "", against: tuple[str, Samples] | None = None
) -> Row:
    return Row(
        work=work.name,
        contender=contender,
        unit="ms",
        value=samples.median * 1e3,
        at=at,
        best=samples.best * 1e3,
        p99=samples.p99 * 1e3,
        samples=len(samples),
        ratio=None if against is None else samples.ratio_to(against[1]),
        best_ratio=None if against is None else samples.best / against[1].best,
        against=None if against is None else against[0],
    )


def timings(work: Measure, taken: Mapping[str, Samples], *, reference: str, at: str = "") -> list[Row]:
    """A row for each contender, each against the reference."""
    against = (reference, taken[reference])
    return [timing(work, name, samples, at=at, against=against) for name, samples in taken.items()]


def throughput(work: Measure, turns: int, taken: Mapping[str, Samples], *, reference: str) -> list[Row]:
    """The same for samples that each took the time of `turns` turns: more is better, so ratios turn round."""
    return [
        Row(
            work=work.name,
            contender=name,
            unit="turns/s",
            value=turns / samples.median,
            best=turns / samples.best,
            samples=len(samples),
            ratio=taken[reference].ratio_to(samples),
            best_ratio=taken[reference].best / samples.best,
            against=reference,
        )
        for name, samples in taken.items()
    ]


def verdict(row: Row, budget: Budget | None) -> bool | None:
    """Whether the row keeps the budget; None where there is nothing to keep."""
    if budget is None or row.contender != OURS:
        return None
    return budget.met_by(row.ratio, row.value)


def newest() -> Result | None:
    paths = sorted(RESULTS.glob("*.json"))
    return read(paths[-1]) if paths else None


def read(path: Path) -> Result:
    return msgspec.json.decode(path.read_bytes(), type=Result)


def write(result: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


class Progress:
    """The cases of this run that are done."""

    def __init__(self, *, quick: bool) -> None:
        self.directory = WORKSPACE / "progress" / f"{'quick' if quick else 'full'}-{code_fingerprint()}"
        self.directory.mkdir(parents=True, exist_ok=True)

    def path(self, case: str, backend: Backend) -> Path:
        return self.directory / f"{case}-{backend}.json"

    def done(self, case: str, backend: Backend) -> CaseResult | None:
        path = self.path(case, backend)
        return msgspec.json.decode(path.read_bytes(), type=CaseResult) if path.exists() else None

    def keep(self, result: CaseResult) -> None:
        self.path(result.case, result.backend).write_bytes(msgspec.json.encode(result))

    def forget(self) -> None:
        for path in self.directory.glob("*.json"):
            path.unlink()


def code_fingerprint() -> str:
    """Changes with every change of Threadline or of the bench."""
    found = hashlib.sha256()
    for folder in ("src/threadline", "bench"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".sql", ".txt"}:
                found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]
