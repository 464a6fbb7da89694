"""Migrations of a SQLite file.

Each step is one transaction that also writes the journal, so the next process continues after a process that was killed
in the middle. SQLite's write lock serialises processes: each reads the journal again before each step. A step that
leaves a dangling reference is rolled back. A file that is not a Threadline database is never written to.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import apsw

from threadline.core.errors import SchemaMismatch, StoreCorrupt, StoreFailed
from threadline.stores.migrations import Applied, Migration, Plan, Progress, load_migrations
from threadline.stores.migrations import plan as plan_steps
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.connection import (
    APPLICATION_ID,
    LOCK_SECONDS,
    PAGE_SIZE,
    Location,
    connect,
    locate,
    translated,
)
from threadline.stores.sqlite.session import Snapshot

MIGRATIONS = load_migrations(__package__)
_SQL = load_queries(__package__, "queries/migrate.sql")
_SMALLEST_DATABASE = 512


def plan(path: str | os.PathLike[str], *, migrations: Sequence[Migration] = MIGRATIONS) -> Plan:
    """What `apply` would do. Writes nothing, and does not create a missing file."""
    location = locate(path)
    if location.in_memory or not Path(location.name).exists():
        return plan_steps(migrations, ())
    connection = connect(location, read_only=True)
    try:
        with translated(location.shown):
            return plan_steps(migrations, journal(connection, location))
    finally:
        connection.close()


def apply(
    path: str | os.PathLike[str], *, progress: Progress | None = None, migrations: Sequence[Migration] = MIGRATIONS
) -> Plan:
    """Migrates the file to the newest version; returns what was done. Safe to repeat, and while other processes use
    the file."""
    location = locate(path)
    connection = connect(location)
    try:
        return migrate(connection, location, progress=progress, migrations=migrations)
    finally:
        connection.close()


def migrate(
    connection: apsw.Connection,
    location: Location,
    *,
    progress: Progress | None = None,
    migrations: Sequence[Migration] = MIGRATIONS,
) -> Plan:
    with translated(location.shown):
        todo = plan_steps(migrations, journal(connection, location))
        if not location.in_memory:
            _write_ahead(connection)
        for done, step in enumerate(todo.steps):
            if progress is not None:
                progress(step, done, len(todo.steps))
            _apply_step(connection, location, step)
    return todo


def require_current(connection: apsw.Connection, location: Location) -> None:
    """For a read-only file: SchemaMismatch if it needs a migration."""
    with translated(location.shown):
        todo = plan_steps(MIGRATIONS, journal(connection, location))
    if todo.steps:
        raise SchemaMismatch(
            f"{location.shown} has schema version {todo.current}, this program needs {todo.target}: "
            "run `threadline migrate`, or open it once for writing"
        )


def journal(connection: apsw.Connection, location: Location) -> tuple[Applied, ...]:
    """The applied migrations; () for a new file. StoreCorrupt if it is not a Threadline database."""
    if not location.in_memory:
        _reject_short_file(location)
    # One snapshot: between two reads another process may create the schema, and a file of its own would look foreign.
    with Snapshot(connection):
        application_id = connection.pragma("application_id")
        if application_id == APPLICATION_ID:
            return tuple(Applied(*row) for row in connection.execute(_SQL["read_journal"]))
        (entries,) = next(connection.execute(_SQL["count_schema"]))
    if application_id == 0 and entries == 0:
        return ()
    raise StoreCorrupt(f"{location.shown} is a SQLite database, but not one of Threadline's")


def _reject_short_file(location: Location) -> None:
    # SQLite treats a file too short for a header as an empty database, and would overwrite it.
    size = Path(location.name).stat().st_size
    if 0 < size < _SMALLEST_DATABASE:
        raise StoreCorrupt(f"{location.shown} is not a SQLite database")


def _write_ahead(connection: apsw.Connection) -> None:
    if connection.pragma("journal_mode") == "wal":
        return
    connection.pragma("page_size", PAGE_SIZE)
    mode = _switch_to_wal(connection)
    if mode != "wal":
        raise StoreFailed(f"SQLite cannot use a write-ahead log here (it uses {mode}): is this a network drive?")


def _switch_to_wal(connection: apsw.Connection) -> str:
    give_up = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return str(connection.pragma("journal_mode", "wal"))
        except apsw.BusyError:
            # SQLite does not call the busy handler here: two processes that create a file together must retry.
            if time.monotonic() > give_up:
                raise
            time.sleep(0.001)


def _apply_step(connection: apsw.Connection, location: Location, step: Migration) -> None:
    # A step that rebuilds a table drops it for a moment, with the rows that other tables refer to.
    connection.pragma("foreign_keys", False)
    try:
        _apply_in_transaction(connection, location, step)
    finally:
        connection.pragma("foreign_keys", True)


def _reject_dangling(connection: apsw.Connection, location: Location, step: Migration) -> None:
    """Foreign keys are off during a step, so dangling references are searched for before the commit."""
    dangling = connection.execute("PRAGMA foreign_key_check").fetchall()
    if dangling:
        tables = ", ".join(sorted({str(row[0]) for row in dangling}))
        raise StoreCorrupt(
            f"migration {step.number} ({step.name}) of {location.shown} would leave {len(dangling)} rows that refer to "
            f"missing rows, in {tables}: nothing was changed; restore the file from a backup and try again"
        )


def _apply_in_transaction(connection: apsw.Connection, location: Location, step: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if step.number > len(journal(connection, location)):
            connection.execute(_SQL["create_journal"])
            connection.execute(step.sql)
            _reject_dangling(connection, location, step)
            entry = (step.number, step.name, step.checksum, step.oldest_compatible, time.time_ns() // 1000)
            connection.execute(_SQL["write_journal"], entry)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", step.number)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
