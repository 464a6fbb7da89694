"""Migrations as values: how files are read, and what is planned for which journal."""

from __future__ import annotations

import pytest

from threadline.core.errors import SchemaMismatch
from threadline.stores.migrations import Applied, Migration, load_migrations, migration_from, plan

KNOWN = tuple(
    migration_from(f"{number:03}_add_column.sql", f"-- oldest compatible: {oldest}\nSELECT {number};\n")
    for number, oldest in ((1, 1), (2, 1), (3, 3))
)


def applied(migrations: tuple[Migration, ...]) -> list[Applied]:
    return [Applied(m.number, m.name, m.checksum, m.oldest_compatible) for m in migrations]


@pytest.mark.parametrize("package", ["threadline.stores.sqlite", "threadline.stores.postgres"])
def test_each_stores_migrations_are_numbered_without_a_gap(package: str) -> None:
    found = load_migrations(package)
    assert [migration.number for migration in found] == list(range(1, len(found) + 1))
    assert all(1 <= migration.oldest_compatible <= migration.number for migration in found)


@pytest.mark.parametrize("done", range(4))
def test_the_plan_is_what_is_left(done: int) -> None:
    planned = plan(KNOWN, applied(KNOWN[:done]))
    assert (planned.current, planned.target, planned.steps) == (done, 3, KNOWN[done:])


def test_line_endings_do_not_make_another_migration() -> None:
    text = "-- oldest compatible: 1\nSELECT 1;\n"
    unix, windows = (migration_from("001_a_b.sql", given) for given in (text, text.replace("\n", "\r\n")))
    assert unix.checksum == windows.checksum
    assert unix.checksum != migration_from("001_a_b.sql", text + " ").checksum


@pytest.mark.parametrize("name", ["1_create_all.sql", "0001_create_all.sql", "001_create.sql", "001-create-all.sql"])
def test_a_migration_is_named_after_what_it_does(name: str) -> None:
    with pytest.raises(ValueError, match="NNN_verb_noun"):
        migration_from(name, "-- oldest compatible: 1\n")


def test_a_migration_names_the_oldest_compatible_version() -> None:
    with pytest.raises(ValueError, match="oldest compatible"):
        migration_from("001_create_all.sql", "SELECT 1;")


def test_an_older_program_may_use_a_newer_database_that_says_so() -> None:
    planned = plan(KNOWN[:1], applied(KNOWN[:2]))
    assert (planned.current, planned.target, planned.steps) == (2, 2, ())


def test_an_older_program_is_refused_by_a_database_that_has_moved_on() -> None:
    with pytest.raises(SchemaMismatch, match="knows 2"):
        plan(KNOWN[:2], applied(KNOWN))


def test_a_database_with_another_history_is_refused() -> None:
    journal = applied(KNOWN[:2])
    journal[0] = journal[0]._replace(checksum="another")
    with pytest.raises(SchemaMismatch, match="add_column"):
        plan(KNOWN, journal)


def test_a_journal_with_a_gap_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="gap"):
        plan(KNOWN, applied(KNOWN[1:2]))
