"""What a doctor looks at in a SQLite file: its pages, its references, its schema, its counts."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from threadline.ports import Finding
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.migrate import MIGRATIONS, journal
from threadline.stores.sqlite.session import Database

_SQL = load_queries(__package__, "queries/check.sql")
_SHOWN = 5
_FROM_BACKUP = "restore the file from a backup, or copy what can be read with `threadline copy`"


def findings(database: Database) -> list[Finding]:
    """Everything that is wrong, worst first. Empty means healthy."""
    damage = list(_damage(database))
    if damage:
        return damage
    return [*_schema(database), *_references(database), *_counts(database)]


def _damage(database: Database) -> Iterator[Finding]:
    try:
        complaints = [text for (text,) in database.rows("PRAGMA integrity_check(10)")]
    except apsw.CorruptError as exc:
        complaints = [str(exc)]
    for complaint in complaints:
        if complaint != "ok":
            yield Finding("error", f"the file is damaged: {complaint}", _FROM_BACKUP)


def _schema(database: Database) -> Iterator[Finding]:
    applied = journal(database.connection, database.location)
    version = database.connection.pragma("user_version")
    if len(applied) != version:
        what = f"the file says it has schema version {version}, its journal {len(applied)}"
        yield Finding("error", what, _FROM_BACKUP)
    if len(applied) < len(MIGRATIONS):
        yield Finding("error", f"the schema is version {len(applied)} of {len(MIGRATIONS)}", "run `threadline migrate`")


def _references(database: Database) -> Iterator[Finding]:
    broken = database.rows("PRAGMA foreign_key_check")
    if broken:
        tables = ", ".join(sorted({row[0] for row in broken}))
        yield Finding("error", f"{len(broken)} rows refer to rows that are gone, in {tables}", _FROM_BACKUP)


def _counts(database: Database) -> Iterator[Finding]:
    for query, what in (
        ("find_wrong_counts", "threads miscount their messages"),
        ("find_wrong_timelines", "threads stand on a timeline that is not theirs"),
        ("find_gaps", "timelines have gaps"),
        ("find_stray_timelines", "timelines have lost their thread or what they stem from"),
    ):
        wrong = database.rows(_SQL[query])
        if wrong:
            named = ", ".join(f"{tenant_id}/{id}" for tenant_id, id in wrong[:_SHOWN])
            yield Finding("error", f"{len(wrong)} {what}: {named}", _FROM_BACKUP)
