"""Checks of a database file, and backups of one that is in use.

A backup copies one consistent state page by page into a `.partial` file, which gets its final name after the sync: a
file under the final name is always complete. The copy runs in one long read transaction, which does not block writers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import apsw

from threadline.core.errors import InvalidInput
from threadline.ports import Finding
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.connection import Location, connect, translated
from threadline.stores.sqlite.migrate import MIGRATIONS, journal
from threadline.stores.sqlite.session import Database

_SQL = load_queries(__package__, "queries/maintenance.sql")


_SHOWN = 5
_FROM_BACKUP = "restore the file from a backup, or copy what can be read with `threadline copy`"


def find_faults(database: Database) -> list[Finding]:
    """Every fault, worst first. Empty means healthy."""
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
        what = f"the header has schema version {version}, the migration journal {len(applied)}"
        yield Finding("error", what, _FROM_BACKUP)
    if len(applied) < len(MIGRATIONS):
        yield Finding("error", f"the schema is version {len(applied)} of {len(MIGRATIONS)}", "run `threadline migrate`")


def _references(database: Database) -> Iterator[Finding]:
    broken = database.rows("PRAGMA foreign_key_check")
    if broken:
        tables = ", ".join(sorted({row[0] for row in broken}))
        yield Finding("error", f"{len(broken)} rows refer to rows that do not exist, in {tables}", _FROM_BACKUP)


def _counts(database: Database) -> Iterator[Finding]:
    for query, what in (
        ("find_wrong_counts", "threads have a wrong message count"),
        ("find_wrong_timelines", "threads point to a timeline of another thread"),
        ("find_gaps", "timelines have gaps"),
        ("find_stray_timelines", "timelines refer to a thread or a parent that does not exist"),
    ):
        wrong = database.rows(_SQL[query])
        if wrong:
            named = ", ".join(f"{tenant_id}/{id}" for tenant_id, id in wrong[:_SHOWN])
            yield Finding("error", f"{len(wrong)} {what}: {named}", _FROM_BACKUP)


Progress: TypeAlias = Callable[[int, int], None]
"""Called after each step with the number of copied pages and the number of all pages."""

_PAGES_AT_A_TIME = 1_000


def copy_database(source: Location, target: Location, progress: Progress | None = None) -> None:
    """InvalidInput if the target exists."""
    final = Path(target.name)
    if target.in_memory or final.exists():
        raise InvalidInput(f"{target.shown} cannot be a backup: choose a file that does not exist")
    partial = final.with_name(final.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        _copy_pages(source, target._replace(name=str(partial)), progress)
        _sync(partial)
        partial.rename(final)
    finally:
        partial.unlink(missing_ok=True)
    _sync(final.parent)


def _copy_pages(source: Location, target: Location, progress: Progress | None) -> None:
    reading = connect(source, read_only=True)
    try:
        writing = connect(target)
        try:
            with translated(target.shown):
                # The read transaction fixes one state; without it, each commit would make SQLite start the copy again.
                reading.execute("BEGIN")
                with writing.backup("main", reading, "main") as copying:
                    while not copying.done:
                        copying.step(_PAGES_AT_A_TIME)
                        if progress is not None:
                            progress(copying.page_count - copying.remaining, copying.page_count)
                reading.execute("COMMIT")
        finally:
            writing.close()
    finally:
        reading.close()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
