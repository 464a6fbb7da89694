"""The writer: many waiting appends in one commit, each with the answer it deserves; and work driven without a loop."""

from __future__ import annotations

import asyncio
import contextvars
import datetime as dt
import gc
import threading
from pathlib import Path

import apsw
import pytest

from tests.stores.sqlite.conftest import OpenSqlite
from tests.stores.sqlite.disk import Disk
from threadline.core.errors import HeadMoved, InvalidInput, NotFound, StoreUnavailable
from threadline.core.threads import NewThread, Scope
from threadline.ports import Transaction
from threadline.stores.sqlite import writer
from threadline.stores.sqlite.store import SqliteStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history, texts


async def hold_writer(store: SqliteStore) -> tuple[threading.Event, asyncio.Task[None]]:
    """Keeps the writer's thread busy inside a transaction until the event is set."""
    begun, proceed = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def work(tx: Transaction) -> None:
        loop.call_soon_threadsafe(begun.set)
        proceed.wait(30)

    holding = asyncio.create_task(store.transact(Scope(), work))
    await begun.wait()
    return proceed, holding


class TestGroupCommit:
    async def test_appends_that_wait_share_a_sync(self, disk: Disk, open_sqlite: OpenSqlite) -> None:
        store = await open_sqlite()
        tx = store.scoped(Scope())
        threads = [await tx.create_thread(NewThread()) for _ in range(64)]
        proceed, holding = await hold_writer(store)
        appends = [asyncio.create_task(tx.append(thread.id, exchange("a", "b"))) for thread in threads]
        await asyncio.sleep(0)
        before = disk.syncs
        proceed.set()
        await asyncio.gather(holding, *appends)
        assert 1 <= disk.syncs - before <= 4
        assert [await history(tx, thread.id) for thread in threads] == [["a", "b"]] * 64

    async def test_appends_that_come_together_share_a_sync(self, disk: Disk, open_sqlite: OpenSqlite) -> None:
        store = await open_sqlite()
        tx = store.scoped(Scope())
        threads = [await tx.create_thread(NewThread()) for _ in range(64)]
        before = disk.syncs
        await asyncio.gather(*(tx.append(thread.id, exchange("a", "b")) for thread in threads))
        assert disk.syncs - before <= 32
        assert [await history(tx, thread.id) for thread in threads] == [["a", "b"]] * 64

    async def test_a_failing_write_does_not_fail_the_others(self, store: SqliteStore) -> None:
        tx = store.scoped(Scope())
        thread = await create_thread_with(tx, "a")
        proceed, holding = await hold_writer(store)

        async def fails_late(inner: Transaction) -> None:
            await inner.append(thread.id, exchange("never"))
            raise LookupError("late")

        waiting = [
            tx.append(thread.id, exchange("b")),
            tx.append(thread.id, exchange("never"), expected_count=77),
            store.transact(Scope(), fails_late),
            tx.append("nowhere", exchange("never")),
            tx.append(thread.id, exchange("c")),
        ]
        tasks = [asyncio.ensure_future(verb) for verb in waiting]
        await asyncio.sleep(0)
        proceed.set()
        await holding
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = [type(answer) for answer in answers]
        assert (kinds[1], kinds[2], kinds[3]) == (HeadMoved, LookupError, NotFound)
        assert await history(tx, thread.id) == ["a", "b", "c"]

    async def test_no_caller_is_answered_before_the_write_is_durable(self, disk: Disk, open_sqlite: OpenSqlite) -> None:
        store = await open_sqlite()
        tx = store.scoped(Scope())
        thread = await tx.create_thread(NewThread())
        for _ in range(5):
            before = disk.syncs
            await tx.append(thread.id, exchange("a", "b"))
            assert disk.syncs > before

    async def test_who_gave_up_waiting_is_not_served(self, store: SqliteStore) -> None:
        tx = store.scoped(Scope())
        thread = await create_thread_with(tx, "a")
        proceed, holding = await hold_writer(store)
        given_up = asyncio.create_task(tx.append(thread.id, exchange("never")))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        proceed.set()
        await holding
        await tx.append(thread.id, exchange("b"))
        assert await history(tx, thread.id) == ["a", "b"]

    async def test_a_started_write_completes_without_its_caller(self, store: SqliteStore) -> None:
        begun, proceed = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        thread = await create_thread_with(store.scoped(Scope()), "a")

        async def work(tx: Transaction) -> None:
            loop.call_soon_threadsafe(begun.set)
            proceed.wait(30)
            await tx.append(thread.id, exchange("b"))

        caller = asyncio.create_task(store.transact(Scope(), work))
        await begun.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        proceed.set()
        await store.scoped(Scope()).append(thread.id, exchange("c"))
        assert await history(store.scoped(Scope()), thread.id) == ["a", "b", "c"]

    async def test_a_loop_that_is_gone_does_not_stop_the_writer(self, store: SqliteStore) -> None:
        thread = await create_thread_with(store.scoped(Scope()), "a")

        async def leave_early() -> None:
            waiting = asyncio.ensure_future(store.scoped(Scope()).append(thread.id, exchange("b")))
            await asyncio.sleep(0)
            waiting.cancel()

        await asyncio.to_thread(asyncio.run, leave_early())
        assert (await store.scoped(Scope()).append(thread.id, exchange("c"))).message_count >= 2

    async def test_an_unclosed_store_ends_its_thread(self, open_sqlite: OpenSqlite) -> None:
        before = set(threading.enumerate())
        forgotten = await SqliteStore.open(":memory:")
        await create_thread_with(forgotten.scoped(Scope()), "a")
        (writer,) = (t for t in set(threading.enumerate()) - before if t.name == "threadline-writer")
        del forgotten
        gc.collect()
        await asyncio.to_thread(writer.join, 30)
        assert not writer.is_alive()

    async def test_a_closed_store_is_refused(self, store: SqliteStore) -> None:
        tx = store.scoped(Scope())
        await store.close()
        for verb in (tx.threads(), tx.create_thread(NewThread()), store.tenants(), store.check()):
            with pytest.raises(StoreUnavailable, match="closed"):
                await verb


class TestWritingAtOnce:
    async def test_a_caller_alone_wakes_no_thread(
        self, open_sqlite: OpenSqlite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer, "_QUICK_SYNC_SECONDS", 60.0)
        threads: list[threading.Thread] = []

        class Clock:
            def now(self) -> dt.datetime:
                threads.append(threading.current_thread())
                return dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

        store = await open_sqlite(clock=Clock())
        async with asyncio.timeout(30):
            # At first the thread may be busy with housekeeping.
            while threading.current_thread() not in threads:
                await create_thread_with(store.scoped(Scope()), "a")

    async def test_a_failure_at_once_leaves_nothing(self, store: SqliteStore) -> None:
        tx = store.scoped(Scope())
        thread = await create_thread_with(tx, "a")
        for _ in range(3):
            with pytest.raises(HeadMoved):
                await tx.append(thread.id, exchange("never"), expected_count=77)
        await tx.append(thread.id, exchange("b"))
        assert await history(tx, thread.id) == ["a", "b"]

    async def test_another_processs_write_does_not_block_the_loop(self, path: Path, open_sqlite: OpenSqlite) -> None:
        store = await open_sqlite()
        tx = store.scoped(Scope())
        thread = await create_thread_with(tx, "a")
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(tx.append(thread.id, exchange("b")))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        other.execute("COMMIT")
        other.close()
        assert (await asyncio.wait_for(waiting, 30)).message_count == 2


class TestTransacting:
    async def test_work_that_waits_for_something_else_is_refused(self, store: SqliteStore) -> None:
        async def sleeps(tx: Transaction) -> None:
            await tx.create_thread(NewThread())
            await asyncio.sleep(0)

        with pytest.raises(RuntimeError, match="only its own operations"):
            await store.transact(Scope(), sleeps)
        assert (await store.scoped(Scope()).threads()).items == ()

    async def test_its_verbs_end_with_it(self, store: SqliteStore) -> None:
        kept: list[Transaction] = []

        async def work(tx: Transaction) -> None:
            kept.append(tx)

        await store.transact(Scope(), work)
        with pytest.raises(RuntimeError, match="has ended"):
            await kept[0].threads()

    async def test_work_runs_in_its_callers_context(self, store: SqliteStore) -> None:
        request = contextvars.ContextVar("request", default="none")
        request.set("r-1")

        async def work(tx: Transaction) -> str:
            return request.get()

        assert await store.transact(Scope(), work) == "r-1"

    async def test_a_search_inside_finds_what_was_just_said(self, store: SqliteStore) -> None:
        async def work(tx: Transaction) -> list[str]:
            thread = await create_thread_with(tx, "a zebra")
            assert [hit.thread_id for hit in await tx.search("zebra")] == [thread.id]
            return texts(await tx.messages(thread.id))

        assert await store.transact(Scope(), work) == ["a zebra"]


class TestReading:
    async def test_a_long_thread_is_read_whole(self, store: SqliteStore) -> None:
        tx = store.scoped(Scope())
        thread = await tx.create_thread(NewThread())
        said = [f"message {n}" for n in range(2_500)]
        await tx.append(thread.id, exchange(*said))
        assert await history(tx, thread.id) == said

    async def test_a_reader_is_not_held_up_by_a_writer(self, store: SqliteStore) -> None:
        tx = store.scoped(Scope())
        thread = await create_thread_with(tx, *(f"m{n}" for n in range(1_500)))
        proceed, holding = await hold_writer(store)
        assert len(await tx.messages(thread.id)) == 1_500
        assert (await tx.threads()).items == (thread,)
        assert (await tx.row_counts())["messages"] == 1_500
        proceed.set()
        await holding

    async def test_numbers_and_texts_sqlite_cannot_hold_are_refused(self, store: SqliteStore) -> None:
        session = store.scoped(Scope())
        thread = await create_thread_with(session, "a")
        for call in (
            session.thread("\udc00"),
            session.search("\udc00"),
            session.outbox(limit=2**70),
            session.context("\ud800"),
            session.last_turns(thread.id, 1, before=2**70),
        ):
            with pytest.raises(InvalidInput):
                await call
