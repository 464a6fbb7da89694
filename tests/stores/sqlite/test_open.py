"""Opening files: new ones, older ones, newer ones, other people's, and what only looks like a database."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import apsw
import pytest

from tests.stores.sqlite.conftest import OpenSqlite
from threadline.core.errors import SchemaMismatch, StoreCorrupt, StoreReadOnly, StoreUnavailable
from threadline.core.threads import NewThread, Scope
from threadline.core.usage import UsageQuery
from threadline.stores.sqlite import migrate
from threadline.stores.sqlite.connection import connect, locate
from threadline.stores.sqlite.migrate import MIGRATIONS
from threadline.stores.sqlite.store import SqliteStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history

NEWEST = len(MIGRATIONS)

UNPRIVILEGED_OPEN = """
import asyncio, os, sys
from threadline.core.errors import ThreadlineError
from threadline.stores.sqlite.store import SqliteStore

async def main():
    try:
        await SqliteStore.open(sys.argv[1])
    except ThreadlineError as error:
        print(type(error).__name__)

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
asyncio.run(main())
"""

KILLED_IN_THE_SECOND_STEP = """
import os, sys, apsw
from threadline.stores.sqlite import migrate
from threadline.stores.sqlite.connection import connect, locate

first, second, *_ = migrate.MIGRATIONS
apsw.connection_hooks.append(lambda c: c.create_scalar_function("die", lambda: os.kill(os.getpid(), 9)))
migrate.apply(sys.argv[1], migrations=(first, second._replace(sql=second.sql + "SELECT die();")))
"""


def sql(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    """Runs a statement on a file that no store has open."""
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def contents(path: Path) -> bytes:
    return path.read_bytes()


def written(path: Path, junk: bytes) -> bytes:
    path.write_bytes(junk)
    return junk


def open_as_unprivileged_user(path: Path) -> str:
    """The error of opening a copy of the file where it cannot be written. Permissions do not stop root, so the copy is
    opened as an unprivileged user, in a folder that this user cannot enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(shutil.copy(path, folder))
        file.chmod(0o444)
        tried = subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED_OPEN, str(file)], capture_output=True, text=True, check=True
        )
    return tried.stdout.strip()


def version_one(path: Path) -> None:
    """A file as the first release made it, with a thread of two messages."""
    migrate.apply(path, migrations=MIGRATIONS[:1])
    sql(path, "INSERT INTO tenants (id, created_us) VALUES ('local', 1)")
    sql(path, "INSERT INTO users (tenant_id, id, created_us) VALUES ('local', 'local', 1)")
    sql(
        path,
        "BEGIN;"
        "INSERT INTO timelines (no, tenant_id, owner_id, id, thread_no, created_us, ancestors)"
        " VALUES (1, 'local', 'local', 'line', 1, 1, x'');"
        "INSERT INTO threads (no, tenant_id, id, owner_id, state_key, timeline_no, timeline_id, message_count,"
        " token_count, created_us, updated_us, title_by_person)"
        " VALUES (1, 'local', 'old', 'local', 'key', 1, 'line', 2, 0, 1, 1, 0);"
        "COMMIT",
    )
    for seq, text in enumerate(("hello", "hi")):
        parts = f'[{{"type":"text","text":"{text}"}}]'.encode()
        statement = "INSERT INTO messages (timeline_no, seq, role, created_us, id, parts) VALUES (1, ?, ?, 1, ?, ?)"
        sql(path, statement, seq, seq, f"m{seq}", parts)


def version_six(path: Path) -> None:
    """A file in which a thread has gone back twice and another branched off it."""
    version_one(path)
    migrate.apply(path, migrations=MIGRATIONS[:6])
    after_hello = (1 << 32).to_bytes(8, "little")
    for number, id, thread_no in ((2, "retry", 1), (3, "side", 2), (4, "again", 1)):
        values = (number, id, thread_no, after_hello)
        statement = (
            "INSERT INTO timelines (no, tenant_id, owner_id, id, thread_no, created_us, parent_id, parent_seq, base_no,"
            " base_seq, ancestors) VALUES (?, 'local', 'local', ?, ?, 1, 'line', 0, 1, 0, ?)"
        )
        sql(path, statement, *values)
    sql(
        path,
        "INSERT INTO threads (no, tenant_id, id, owner_id, state_key, timeline_no, timeline_id, message_count,"
        " token_count, created_us, updated_us, title_by_person)"
        " VALUES (2, 'local', 'branch', 'local', 'other key', 3, 'side', 1, 0, 1, 1, 0)",
    )
    sql(path, "UPDATE threads SET timeline_no = 4, timeline_id = 'again' WHERE no = 1")
    parts = b'[{"type":"text","text":"again"}]'
    statement = "INSERT INTO messages (timeline_no, seq, role, created_us, id, parts) VALUES (4, 1, 1, 1, 'm9', ?)"
    sql(path, statement, parts)


class TestANewFile:
    async def test_it_says_whose_it_is_and_which_version(self, path: Path) -> None:
        await (await SqliteStore.open(path)).close()
        assert sql(path, "PRAGMA application_id") == [(0x54484C4E,)]
        assert sql(path, "PRAGMA user_version") == [(NEWEST,)]
        assert sql(path, "PRAGMA journal_mode") == [("wal",)]
        journal = sql(path, "SELECT number, name, checksum, oldest_compatible FROM schema_migrations ORDER BY number")
        assert journal == [(m.number, m.name, m.checksum, m.oldest_compatible) for m in MIGRATIONS]

    @pytest.mark.req("S4-14")
    async def test_it_keeps_what_it_was_told_across_reopening(self, path: Path) -> None:
        store = await SqliteStore.open(path)
        thread = await create_thread_with(store.scoped(Scope()), "hello", "hi")
        await store.close()
        again = await SqliteStore.open(path)
        assert await again.scoped(Scope()).thread(thread.id) == thread
        assert await history(again.scoped(Scope()), thread.id) == ["hello", "hi"]
        await again.close()

    @pytest.mark.req("S4-14")
    async def test_memory_is_a_store_of_its_own_each_time(self) -> None:
        one, two = await SqliteStore.open(":memory:"), await SqliteStore.open(":memory:")
        await create_thread_with(one.scoped(Scope()), "hello")
        assert len((await one.scoped(Scope()).threads()).items) == 1
        assert (await two.scoped(Scope()).threads()).items == ()
        for store in (one, two):
            await store.close()

    def test_several_processes_may_make_it_at_once(self, path: Path) -> None:
        with multiprocessing.get_context("fork").Pool(4) as pool:
            plans = pool.map(migrate.apply, [str(path)] * 12, chunksize=1)
        assert all(plan.target == NEWEST for plan in plans)
        assert len(sql(path, "SELECT * FROM schema_migrations")) == NEWEST

    async def test_a_folder_that_is_not_there_is_no_place_for_it(self, tmp_path: Path) -> None:
        with pytest.raises(StoreUnavailable, match="folder"):
            await SqliteStore.open(tmp_path / "nowhere" / "threadline.db")
        with pytest.raises(StoreUnavailable):
            await SqliteStore.open(tmp_path)


class TestAConnection:
    @pytest.mark.parametrize("read_only", [False, True])
    def test_each_is_told_what_sqlite_keeps_for_each(self, path: Path, read_only: bool) -> None:
        migrate.apply(path)
        connection = connect(locate(path), read_only=read_only)
        told = {name: connection.pragma(name) for name in ("foreign_keys", "synchronous", "secure_delete")}
        assert told == {"foreign_keys": 1, "synchronous": 2, "secure_delete": 1}
        assert (connection.pragma("trusted_schema"), connection.pragma("temp_store")) == (0, 2)
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1)
        assert connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1)
        connection.close()

    @pytest.mark.req("S4-01")
    def test_a_message_without_a_timeline_is_refused(self, path: Path) -> None:
        migrate.apply(path)
        connection = connect(locate(path))
        with pytest.raises(apsw.ConstraintError, match="FOREIGN KEY"):
            connection.execute(
                "INSERT INTO messages (timeline_no, seq, role, created_us, id, parts) VALUES (7, 0, 0, 1, 'm', x'5b5d')"
            )
        connection.close()


class TestMigrating:
    async def test_a_file_of_version_one_is_brought_up_to_date(self, path: Path, open_sqlite: OpenSqlite) -> None:
        version_one(path)
        store = await open_sqlite()
        tx = store.scoped(Scope())
        assert await history(tx, "old") == ["hello", "hi"]
        assert [hit.message_id for hit in await tx.search("hello")] == ["m0"]
        await tx.append("old", exchange("more"))
        assert await tx.turns("old") == []
        assert (await store.statistics())["schema_version"] == NEWEST
        assert await store.check() == []

    async def test_threads_of_version_six_find_all_their_timelines(self, path: Path, open_sqlite: OpenSqlite) -> None:
        version_six(path)
        store = await open_sqlite()
        tx = store.scoped(Scope())
        assert [line.id for line in await tx.timelines("old")] == ["line", "retry", "again"]
        assert [line.id for line in await tx.timelines("branch")] == ["side"]
        assert await history(tx, "old") == ["hello", "again"]
        assert await history(tx, "branch") == ["hello"]
        await tx.switch("old", "retry")
        assert (await tx.move("old", 0, timeline_id="line")).message_count == 1
        assert len(await tx.timelines("old")) == 4
        assert await store.check() == []
        assert await tx.purge_thread("old")
        assert await history(tx, "branch") == ["hello"]
        assert await tx.purge_thread("branch")
        assert set((await tx.row_counts()).values()) <= {0, 1}
        assert await store.check() == []

    async def test_turns_of_version_seven_are_counted(self, path: Path, open_sqlite: OpenSqlite) -> None:
        version_six(path)
        migrate.apply(path, migrations=MIGRATIONS[:7])
        statement = (
            "INSERT INTO turns (tenant_id, id, owner_id, thread_no, surface, agent_id, status, usage, fence,"
            " stop_asked, created_us, finished_us)"
            " VALUES ('local', ?, 'local', 1, 'web', 'helper', 'executed', ?, 1, 0, 1, ?)"
        )
        for number, tokens in enumerate((10, 5, 10**30)):
            usage = f'{{"type":"usage","input_tokens":{tokens},"output_tokens":1}}'.encode()
            sql(path, statement, f"t{number}", usage, 86_400_000_000 * (number + 1) // 2)
        sql(path, statement, "running", None, None)
        tx = (await open_sqlite()).scoped(Scope())
        query = UsageQuery(by=("day", "agent", "model"), first_day=dt.date(1970, 1, 1), last_day=dt.date(2027, 1, 1))
        found = [(row.day, row.agent_id, row.model, row.turns, row.input_tokens) for row in await tx.usage(query)]
        assert found == [
            (dt.date(1970, 1, 1), "helper", None, 1, 10),
            (dt.date(1970, 1, 2), "helper", None, 2, 1_000_000_005),
        ]

    def test_a_plan_writes_nothing(self, path: Path) -> None:
        assert [step.number for step in migrate.plan(path).steps] == list(range(1, NEWEST + 1))
        assert not path.exists()
        version_one(path)
        before = contents(path)
        plan = migrate.plan(path)
        assert (plan.current, plan.target, plan.steps) == (1, NEWEST, MIGRATIONS[1:])
        assert contents(path) == before

    def test_each_step_is_announced(self, path: Path) -> None:
        told: list[tuple[str, int, int]] = []
        migrate.apply(path, progress=lambda step, done, of: told.append((step.name, done, of)))
        assert told == [(step.name, done, NEWEST) for done, step in enumerate(MIGRATIONS)]
        assert migrate.apply(path, progress=lambda *_: told.append(("again", 0, 0))).steps == ()
        assert len(told) == NEWEST

    def test_a_step_that_fails_leaves_the_file_as_it_was(self, path: Path) -> None:
        version_one(path)
        broken = MIGRATIONS[1]._replace(sql=MIGRATIONS[1].sql + "CREATE TABLE threads (no INTEGER);")
        with pytest.raises(Exception, match="threads"):
            migrate.apply(path, migrations=(MIGRATIONS[0], broken))
        assert sql(path, "PRAGMA user_version") == [(1,)]
        assert sql(path, "SELECT name FROM sqlite_schema WHERE name = 'turns'") == []
        assert migrate.apply(path).current == 1
        assert migrate.plan(path).steps == ()

    def test_a_step_that_leaves_a_row_without_what_it_refers_to_is_undone(self, path: Path) -> None:
        version_one(path)
        torn = MIGRATIONS[1]._replace(sql=MIGRATIONS[1].sql + "DELETE FROM timelines;")
        with pytest.raises(StoreCorrupt, match=r"migration 2 \(create_turns\).* 2 rows .* in messages: nothing"):
            migrate.apply(path, migrations=(MIGRATIONS[0], torn))
        assert sql(path, "PRAGMA user_version") == [(1,)]
        assert sql(path, "SELECT count(*) FROM timelines") == [(1,)]
        assert migrate.apply(path).target == NEWEST

    def test_a_process_killed_in_the_middle_is_taken_over(self, path: Path) -> None:
        version_one(path)
        killed = subprocess.run([sys.executable, "-c", KILLED_IN_THE_SECOND_STEP, str(path)], check=False)
        assert killed.returncode == -9
        assert [step.number for step in migrate.plan(path).steps] == list(range(2, NEWEST + 1))
        migrate.apply(path)
        assert migrate.plan(path).steps == ()
        assert sql(path, "PRAGMA integrity_check") == [("ok",)]


class TestOtherVersions:
    def newer(self, path: Path, oldest_compatible: int) -> None:
        migrate.apply(path)
        statement = "INSERT INTO schema_migrations VALUES (?, 'add_something', 'checksum', ?, 1)"
        sql(path, statement, NEWEST + 1, oldest_compatible)

    async def test_a_newer_file_is_refused_and_left_alone(self, path: Path) -> None:
        self.newer(path, oldest_compatible=NEWEST + 1)
        before = contents(path)
        with pytest.raises(SchemaMismatch, match="newer threadline"):
            await SqliteStore.open(path)
        with pytest.raises(SchemaMismatch):
            migrate.plan(path)
        assert contents(path) == before

    async def test_a_newer_file_that_this_version_may_use_is_used(self, path: Path) -> None:
        self.newer(path, oldest_compatible=NEWEST)
        store = await SqliteStore.open(path)
        assert await history(store.scoped(Scope()), (await create_thread_with(store.scoped(Scope()), "hello")).id) == [
            "hello"
        ]
        await store.close()

    async def test_a_file_with_another_history_is_refused(self, path: Path) -> None:
        migrate.apply(path)
        sql(path, "UPDATE schema_migrations SET checksum = 'another' WHERE number = 1")
        with pytest.raises(SchemaMismatch, match="another build"):
            await SqliteStore.open(path)

    async def test_a_file_to_be_read_only_must_be_up_to_date(self, path: Path) -> None:
        version_one(path)
        before = contents(path)
        with pytest.raises(SchemaMismatch, match="threadline migrate"):
            await SqliteStore.open(path, read_only=True)
        assert contents(path) == before


class TestFilesOfOthers:
    async def test_another_programs_database_is_not_touched(self, path: Path) -> None:
        sql(path, "CREATE TABLE cats (name TEXT)")
        before = contents(path)
        for read_only in (False, True):
            with pytest.raises(StoreCorrupt, match="not one of Threadline's"):
                await SqliteStore.open(path, read_only=read_only)
        assert contents(path) == before

    @pytest.mark.parametrize("size", [1, 99, 511, 512, 100_000])
    async def test_what_is_no_database_is_not_touched(self, path: Path, size: int) -> None:
        before = written(path, (b"meow " * size)[:size])
        with pytest.raises(StoreCorrupt, match="not a SQLite database"):
            await SqliteStore.open(path)
        assert contents(path) == before

    async def test_an_empty_file_is_a_new_one(self, path: Path) -> None:
        written(path, b"")
        store = await SqliteStore.open(path)
        await store.scoped(Scope()).create_thread(NewThread())
        await store.close()


class TestReadingOnly:
    async def test_a_store_opened_to_be_read_refuses_writes(self, path: Path, open_sqlite: OpenSqlite) -> None:
        writing = await open_sqlite()
        thread = await create_thread_with(writing.scoped(Scope()), "a zebra")
        await writing.index_pending()
        reading = await open_sqlite(read_only=True)
        tx = reading.scoped(Scope())
        assert await history(tx, thread.id) == ["a zebra"]
        assert len(await tx.search("zebra")) == 1
        for refused in (tx.append(thread.id, exchange("more")), tx.delete_thread(thread.id), reading.index_pending()):
            with pytest.raises(StoreReadOnly):
                await refused
        with pytest.raises(StoreReadOnly):
            await reading.transact(Scope(), lambda tx: tx.thread(thread.id))
        await writing.scoped(Scope()).append(thread.id, exchange("more"))
        assert await history(tx, thread.id) == ["a zebra", "more"]

    async def test_a_file_that_cannot_be_written_says_so(self, path: Path, open_sqlite: OpenSqlite) -> None:
        store = await open_sqlite()
        await create_thread_with(store.scoped(Scope()), "hello")
        await store.close()
        assert open_as_unprivileged_user(path) == "StoreReadOnly"
