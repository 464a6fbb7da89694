"""Query plans: what must cost the same at any size reads by index, in order, without a sort."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import apsw
import apsw.ext
import pytest

from threadline.stores.sql import load_queries
from threadline.stores.sqlite import migrate
from threadline.stores.sqlite.connection import connect, locate
from threadline.stores.sqlite.search import register_ranking

PACKAGE = "threadline.stores.sqlite"
FILES = sorted(entry.name for entry in files(PACKAGE).joinpath("queries").iterdir())
WHOLE_TABLES = {
    "maintenance.sql": {
        "find_wrong_counts",
        "find_wrong_timelines",
        "find_gaps",
        "find_stray_timelines",
        "number_timelines",
        "number_threads",
        "number_turns",
    },
    "store.sql": {"list_tenants", "count_all_rows"},
    "purge.sql": {"count_rows"},
    "turns.sql": {"drop_chunks"},
    "search.sql": {"forget_titles"},
}
"""Queries whose business it is to look at everything. Chunks are kept for a while only, so there are never many."""
IN_ORDER = {
    "messages.sql": {"read_newest", "read_history_backwards"},
    "threads.sql": {"list_open_threads", "list_archived_threads", "list_deleted_threads"},
    "turns.sql": {"list_turns", "list_active_turns", "find_summary", "read_chunks"},
    "timelines.sql": {"list_timelines"},
    "queues.sql": {"find_due"},
    "search.sql": {"read_pending", "find_newest"},
}
PENDING = tuple(f"INDEX {name}" for name in ("threads_to_index", "turns_active", "outbox_pending"))
"""Partial indexes that hold only work which is left: titles to index, turns and deliveries that have not ended."""
LARGE = ("messages", "m", "threads", "t", "timelines", "l", "turns", "r", "turn_chunks", "c", "outbox", "append_keys")


@pytest.fixture
def connection(tmp_path: Path) -> apsw.Connection:
    location = locate(tmp_path / "plans.db")
    connection = connect(location)
    migrate.migrate(connection, location)
    register_ranking(connection)
    return connection


def plan_of(connection: apsw.Connection, query: str) -> list[str]:
    """The lines of SQLite's plan; parameters are left empty, since the plan does not depend on them."""
    values = (None,) * apsw.ext.query_info(connection, query).bindings_count
    return [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]


@pytest.mark.parametrize("file", FILES)
def test_no_query_walks_a_large_table(connection: apsw.Connection, file: str) -> None:
    for name, query in load_queries(PACKAGE, f"queries/{file}").items():
        plan = plan_of(connection, query)
        if name not in WHOLE_TABLES.get(file, ()):
            walked = [line for line in plan if line.startswith("SCAN") and line.split()[1] in LARGE]
            walked = [line for line in walked if not line.endswith(PENDING)]
            assert walked == [], f"{file}: {name}"


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, names in IN_ORDER.items() for name in sorted(names)])
def test_what_is_read_in_order_is_not_sorted(connection: apsw.Connection, file: str, name: str) -> None:
    plan = plan_of(connection, load_queries(PACKAGE, f"queries/{file}")[name])
    assert plan
    assert [line for line in plan if "TEMP B-TREE" in line] == []
