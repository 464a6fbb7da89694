"""Faults of the machine: a full disk, a disk that does not answer, damage, locks of others, a fork."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest

from tests.stores.sqlite.conftest import OpenSqlite
from tests.stores.sqlite.disk import Disk
from threadline.core.errors import (
    OutcomeUnknown,
    StoreBusy,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    ThreadlineError,
)
from threadline.core.threads import NewThread, Scope
from threadline.ports import Transaction
from threadline.stores.sqlite.store import SqliteStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history

HOLDS_THE_LOCK = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


@contextmanager
def locked_by_another(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the write lock until its input ends."""
    command = [sys.executable, "-c", HOLDS_THE_LOCK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield other


def let_go(other: subprocess.Popen[str]) -> None:
    assert other.stdin is not None
    other.stdin.close()


class FailingStatement:
    """The next statement that begins with `beginning` fails, on any connection opened while this is in use."""

    def __init__(self) -> None:
        self.beginning: str | None = None
        self.rolls_back = False
        self.failed = 0

    def attach(self, connection: apsw.Connection) -> None:
        connection.set_exec_trace(self._trace)

    def _trace(self, cursor: apsw.Cursor, sql: str, values: object) -> bool:
        if self.beginning is not None and sql.startswith(self.beginning):
            self.beginning, self.failed = None, self.failed + 1
            if self.rolls_back:
                cursor.connection.execute("ROLLBACK")
            raise apsw.IOError("disk I/O error")
        return True


@pytest.fixture
def failing() -> Iterator[FailingStatement]:
    """Comes before the stores whose statements are to fail."""
    failing = FailingStatement()
    apsw.connection_hooks.append(failing.attach)
    yield failing
    apsw.connection_hooks.remove(failing.attach)


class TestAStatementThatFails:
    """Found by the simulation: the writer's thread ended with the error, and every later write waited for ever."""

    @pytest.mark.parametrize("beginning", ['pragma "data_version"', 'pragma "page_count"', "SELECT", "COMMIT"])
    async def test_the_writer_lives_on(
        self, beginning: str, failing: FailingStatement, open_sqlite: OpenSqlite
    ) -> None:
        store = await open_sqlite()
        tx = store.scoped(Scope())
        purged, kept = await create_thread_with(tx, "purged"), await create_thread_with(tx, "kept")

        async def work(tx: Transaction) -> None:
            await tx.purge_thread(purged.id)

        failing.beginning = beginning
        async with asyncio.timeout(30):
            await asyncio.gather(store.transact(Scope(), work), return_exceptions=True)
            assert failing.failed == 1
            await asyncio.gather(*(tx.append(kept.id, exchange(f"a{n}", f"b{n}")) for n in range(8)))
        assert len(await history(tx, kept.id)) == 17

    async def test_nothing_is_stored_after_an_error_that_ended_the_transaction(
        self, failing: FailingStatement, open_sqlite: OpenSqlite
    ) -> None:
        """SQLite may roll a transaction back with an error: what followed would be committed statement by statement."""
        store = await open_sqlite()
        tx = store.scoped(Scope())
        thread = await create_thread_with(tx, "before")

        async def work(tx: Transaction) -> None:
            with suppress(StoreFailed):
                await tx.append(thread.id, exchange("lost", "lost"))
            await tx.create_thread(NewThread(title="must not be stored"))

        failing.beginning, failing.rolls_back = "INSERT INTO messages", True
        with pytest.raises(StoreFailed):
            await store.transact(Scope(), work)
        assert failing.failed == 1
        assert [each.id for each in (await tx.threads()).items] == [thread.id]

    async def test_a_read_that_fails_at_its_end_does_not_keep_an_old_state(
        self, failing: FailingStatement, open_sqlite: OpenSqlite
    ) -> None:
        tx = (await open_sqlite()).scoped(Scope())
        thread = await create_thread_with(tx, "before")
        failing.beginning = "COMMIT"
        with suppress(StoreFailed):
            await tx.active_turns(thread.id)
        failing.beginning = None
        await tx.append(thread.id, exchange("after", "after"))
        assert await history(tx, thread.id) == ["before", "after", "after"]


class TestAFullDisk:
    async def test_an_append_says_so_and_leaves_nothing(self, disk: Disk, open_sqlite: OpenSqlite) -> None:
        tx = (await open_sqlite()).scoped(Scope())
        thread = await create_thread_with(tx, "before")
        disk.is_full = True
        with pytest.raises(StoreFull, match="free some"):
            await tx.append(thread.id, exchange("lost", "lost"), key="k1")
        assert await history(tx, thread.id) == ["before"]
        assert await tx.thread(thread.id) == thread
        disk.is_full = False
        again = await tx.append(thread.id, exchange("kept", "kept"), key="k1")
        assert (again.replayed, again.message_count) == (False, 3)

    async def test_everyone_who_waited_is_told(self, disk: Disk, open_sqlite: OpenSqlite) -> None:
        tx = (await open_sqlite()).scoped(Scope())
        thread = await tx.create_thread(NewThread())
        disk.is_full = True
        tries = [tx.append(thread.id, exchange(f"m{n}"), key=f"k{n}") for n in range(20)]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreFull}
        disk.is_full = False
        await asyncio.gather(*(tx.append(thread.id, exchange(f"m{n}"), key=f"k{n}") for n in range(20)))
        assert sorted(await history(tx, thread.id)) == sorted(f"m{n}" for n in range(20))

    async def test_work_that_swallows_it_is_not_kept(self, disk: Disk, open_sqlite: OpenSqlite) -> None:
        store = await open_sqlite()
        thread = await create_thread_with(store.scoped(Scope()), "before")

        async def work(tx: Transaction) -> str:
            # More than SQLite's cache holds, so that it must write before the commit.
            big = exchange(*("x" * 100_000 for _ in range(40)))
            disk.is_full = True
            with pytest.raises(StoreFull):
                await tx.append(thread.id, big)
            return "as if nothing had happened"

        with pytest.raises(StoreFull):
            await store.transact(Scope(), work)
        disk.is_full = False
        assert await history(store.scoped(Scope()), thread.id) == ["before"]
        assert await store.check() == []

    async def test_a_purge_on_a_full_disk_removes_nothing_or_all(self, disk: Disk, open_sqlite: OpenSqlite) -> None:
        tx = (await open_sqlite()).scoped(Scope())
        thread = await create_thread_with(tx, "before")
        disk.is_full = True
        with pytest.raises(StoreFull):
            await tx.purge_thread(thread.id)
        disk.is_full = False
        assert await history(tx, thread.id) == ["before"]
        assert await tx.purge_thread(thread.id)


class TestADiskThatDoesNotAnswer:
    async def test_a_commit_that_may_stand_can_be_repeated(self, disk: Disk, open_sqlite: OpenSqlite) -> None:
        store = await open_sqlite()
        tx = store.scoped(Scope())
        thread = await tx.create_thread(NewThread())
        disk.syncs_fail = True
        with pytest.raises(OutcomeUnknown, match="same key"):
            await tx.append(thread.id, exchange("a", "b"), key="k1")
        disk.syncs_fail = False
        await tx.append(thread.id, exchange("a", "b"), key="k1")
        assert await history(tx, thread.id) == ["a", "b"]
        assert await store.check() == []


def damage(path: Path) -> None:
    """Overwrites everything after the first pages, which hold the schema."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size * 2 // 3)
        file.write(os.urandom(size // 3))


class TestADamagedFile:
    async def damaged(self, path: Path, open_sqlite: OpenSqlite) -> tuple[SqliteStore, str]:
        store = await open_sqlite()
        thread = await create_thread_with(store.scoped(Scope()), *("word " * 500 for _ in range(200)))
        await store.close()
        damage(path)
        return await open_sqlite(), thread.id

    async def test_reading_what_is_gone_says_so(self, path: Path, open_sqlite: OpenSqlite) -> None:
        store, thread_id = await self.damaged(path, open_sqlite)
        with pytest.raises(StoreCorrupt, match="backup"):
            await store.scoped(Scope()).messages(thread_id)

    async def test_a_doctor_finds_it(self, path: Path, open_sqlite: OpenSqlite) -> None:
        store, _ = await self.damaged(path, open_sqlite)
        findings = await store.check()
        assert findings
        assert {finding.level for finding in findings} == {"error"}
        assert all("backup" in finding.remedy for finding in findings)


class TestAnothersLock:
    @pytest.mark.req("S4-14")
    async def test_an_append_waits_for_it(self, path: Path, open_sqlite: OpenSqlite) -> None:
        store = await open_sqlite()
        tx = store.scoped(Scope())
        thread = await create_thread_with(tx, "a")
        with locked_by_another(path) as other:
            appending = asyncio.create_task(tx.append(thread.id, exchange("b")))
            # Reads never wait for a writer of any process.
            assert await history(tx, thread.id) == ["a"]
            assert not appending.done()
            let_go(other)
            await appending
        assert await history(tx, thread.id) == ["a", "b"]

    async def test_a_lock_that_is_never_let_go_is_an_error_for_all_who_wait(
        self, path: Path, open_sqlite: OpenSqlite
    ) -> None:
        tx = (await open_sqlite(lock_seconds=0.2)).scoped(Scope())
        thread = await create_thread_with(tx, "a")
        with locked_by_another(path) as other:
            tries = [tx.append(thread.id, exchange("b"), key="k1") for _ in range(5)]
            answers = await asyncio.gather(*tries, return_exceptions=True)
            assert {type(answer) for answer in answers} == {StoreBusy}
            let_go(other)
        assert (await tx.append(thread.id, exchange("b"), key="k1")).message_count == 2


def use_after_fork(store: SqliteStore, answers: multiprocessing.connection.Connection) -> None:
    async def use() -> list[str]:
        tx = store.scoped(Scope())
        said = []
        for verb in (tx.threads(), tx.create_thread(NewThread()), store.transact(Scope(), lambda tx: tx.threads())):
            try:
                await verb
                said.append("answered")
            except ThreadlineError as error:
                said.append(f"{type(error).__name__}: {'forked' in str(error)}")
        await store.close()
        return said

    answers.send(asyncio.run(use()))


class TestAFork:
    async def test_a_forked_child_is_refused_and_the_parent_continues(self, open_sqlite: OpenSqlite) -> None:
        store = await open_sqlite()
        tx = store.scoped(Scope())
        thread = await create_thread_with(tx, "a")
        fork = multiprocessing.get_context("fork")
        ours, theirs = fork.Pipe()
        child = fork.Process(target=use_after_fork, args=(store, theirs))
        child.start()
        assert await asyncio.to_thread(ours.recv) == ["StoreUnavailable: True"] * 3
        await asyncio.to_thread(child.join)
        assert child.exitcode == 0
        await tx.append(thread.id, exchange("b"))
        assert await history(tx, thread.id) == ["a", "b"]
        assert await store.check() == []
