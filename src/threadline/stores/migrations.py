"""Migrations as plain values: the known ones, those a database has had, and the plan for the rest.

A migration is a file `NNN_verb_noun.sql`, numbered from 001 without a gap and never changed after a release: the
database stores its checksum and is rejected if the text differs. The line `-- oldest compatible: N` names the oldest
schema version a program must know to use the database afterwards. This module touches no database: each store reads its
own journal, computes a `Plan` and carries it out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import NamedTuple, TypeAlias

from threadline.core.errors import SchemaMismatch

_FILE = re.compile(r"(\d{3})_([a-z]+(?:_[a-z]+)+)\.sql")
_COMPATIBLE = re.compile(r"^-- oldest compatible: (\d+)$", re.MULTILINE)


class Migration(NamedTuple):
    number: int
    name: str
    sql: str
    checksum: str
    oldest_compatible: int


class Applied(NamedTuple):
    """A row of the migration journal in a database."""

    number: int
    name: str
    checksum: str
    oldest_compatible: int


class Plan(NamedTuple):
    """From version `current` to version `target` by these steps, and the files of functions to apply after them."""

    current: int
    target: int
    steps: tuple[Migration, ...]
    functions: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    """Statements that put back owners, row security, policies and grants of the tables that exist."""
    notes: tuple[str, ...] = ()
    """What an administrator has to do for something that is optional."""


Progress: TypeAlias = Callable[[Migration, int, int], None]
"""Called before each step with the step, the number of completed steps and the number of all steps."""


def load_migrations(package: str, folder: str = "migrations") -> tuple[Migration, ...]:
    found = [
        migration_from(entry.name, entry.read_text(encoding="utf-8"))
        for entry in files(package).joinpath(folder).iterdir()
        if entry.name.endswith(".sql")
    ]
    found.sort()
    for expected, migration in enumerate(found, start=1):
        if migration.number != expected:
            raise ValueError(f"{package}/{folder} has migration {migration.number} where {expected} should be")
    return tuple(found)


def migration_from(filename: str, sql: str) -> Migration:
    named = _FILE.fullmatch(filename)
    if named is None:
        raise ValueError(f"{filename!r} is not named NNN_verb_noun.sql")
    sql = sql.replace("\r\n", "\n")
    compatible = _COMPATIBLE.search(sql)
    if compatible is None:
        raise ValueError(f"{filename} has no line '-- oldest compatible: N'")
    number = int(named[1])
    checksum = hashlib.sha256(sql.encode()).hexdigest()
    return Migration(number, named[2], sql, checksum, int(compatible[1]))


def plan(known: Sequence[Migration], applied: Sequence[Applied]) -> Plan:
    """What is left to do. SchemaMismatch if the database is too new for this program, or had another history."""
    journal = sorted(applied)
    current = journal[-1].number if journal else 0
    if [row.number for row in journal] != list(range(1, current + 1)):
        raise SchemaMismatch("the database's journal of migrations has a gap: restore it from a backup")
    newest = len(known)
    oldest = journal[-1].oldest_compatible if journal else 0
    if oldest > newest:
        raise SchemaMismatch(
            f"the database has schema version {current} and needs a program that knows version {oldest}; "
            f"this one knows {newest}: install a newer threadline"
        )
    for migration, row in zip(known, journal, strict=False):
        if migration.checksum != row.checksum:
            raise SchemaMismatch(
                f"migration {row.number} ({row.name}) of this database is not the one this program has: "
                "it was made by another build; copy its threads into a new database"
            )
    return Plan(current, max(current, newest), tuple(known[current:]))
