"""The runner behind `python -m bench`: runs the cases in their order, says how each went, and writes the result.

An interrupted run resumes with the missing cases as long as no code changed. A complete run at full
size becomes a file in `bench/results/`; a part of one does only with `--publish`, and the table then says what it
lacks. `--quick` is for those who work on the code.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import signal
import subprocess
import sys

from bench import machine, table
from bench.arena import running_server
from bench.budgets import MEASURES
from bench.catalogue import CASES, Case
from bench.places import BACKENDS, ROOT, Backend
from bench.results import RESULTS, CaseResult, Progress, Result, verdict, write

CASE_TIMEOUT = 900


def main() -> int:
    # On SIGTERM, exit normally so that the PostgreSQL server is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = _options()
    if options.list:
        for case in CASES:
            print(f"{case.name:12} {_first_line(case.measure.__doc__)}")
        return 0
    if options.table:
        table.update_pages()
        return 0
    chosen = [
        (case, backend)
        for case in CASES
        for backend in case.backends
        if options.only is None or case.name in options.only
        if options.backend in (None, backend)
    ]
    results = _run(chosen, quick=options.quick, fresh=options.fresh)
    if options.quick or (len(chosen) < sum(len(case.backends) for case in CASES) and not options.publish):
        return 0
    if len(results) == len(chosen):
        _publish(results)
    return 0 if len(results) == len(chosen) else 1


def _run(chosen: list[tuple[Case, Backend]], *, quick: bool, fresh: bool) -> list[CaseResult]:
    progress = Progress(quick=quick)
    results: list[CaseResult] = []
    with contextlib.ExitStack() as stack:
        if any(backend == "postgres" for _, backend in chosen):
            stack.enter_context(running_server())
        for case, backend in chosen:
            result = None if fresh else progress.done(case.name, backend)
            result = result or _run_case(case, backend, progress, quick=quick)
            if result is not None:
                _show(result)
                results.append(result)
    return results


def _run_case(case: Case, backend: Backend, progress: Progress, *, quick: bool) -> CaseResult | None:
    output = progress.path(case.name, backend)
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "bench.catalogue", case.name, backend, "quick" if quick else "full", str(output)]
    try:
        subprocess.run(command, check=True, timeout=CASE_TIMEOUT, cwd=ROOT)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as exc:
        print(f"{case.name} on {backend} failed: {exc}")
        return None
    return progress.done(case.name, backend)


def _publish(results: list[CaseResult]) -> None:
    date = dt.datetime.now(dt.UTC).date().isoformat()
    measured = {result.case for result in results}
    missing = [case.name for case in CASES if case.name not in measured]
    result = Result(
        date=date, host=machine.host(), versions=machine.versions(), quick=False, cases=results, missing=missing
    )
    write(result, RESULTS / f"{date}-{machine.kind()}.json")
    table.update_pages()


def _show(result: CaseResult) -> None:
    print(f"\n{result.case} on {result.backend}, {result.seconds} s")
    budgets = {work.name: work.budget(result.backend) for work in MEASURES}
    for row in result.rows:
        budget = budgets.get(row.work)
        met = verdict(row, budget)
        print("  " + table.format_row(row, budget, met))
    for line in result.noise:
        print(f"  noisy: {line}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=_first_line(__doc__))
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, for a first look")
    parser.add_argument("--only", type=lambda names: set(names.split(",")), help="cases, separated by commas")
    parser.add_argument("--backend", choices=BACKENDS, help="one database instead of both")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there already")
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--publish", action="store_true", help="with --only: write the result of these cases alone")
    parser.add_argument(
        "--table",
        action="store_true",
        help="write the tables of README.md and docs/benchmarks.md from the newest result, and end",
    )
    return parser.parse_args()


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
