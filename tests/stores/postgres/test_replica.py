"""Reads on a streaming replica, made by pg_basebackup: which go there, and what happens while it is behind or away."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

import threadline
from threadline.core.errors import SettingsInvalid
from threadline.core.threads import Scope
from threadline.databases import open_store
from threadline.settings import Settings, load
from threadline.stores.postgres import replica as replica_module
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.postgres import PostgresServer, installations

pytestmark = pytest.mark.req("K-03")
WAIT_SECONDS = 60.0


class Pair:
    """A primary and its standby, of the same database."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer, dsn: str) -> None:
        self.primary, self.standby, self.dsn = primary, standby, dsn
        self.replica_dsn = dsn.replace(str(primary.directory), str(standby.directory))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[threadline.Threadline]:
        settings = Settings(database=self.dsn, database_replica=self.replica_dsn)
        async with threadline.open(settings=settings) as opened:
            yield opened

    async def ask_standby(self, query: str) -> object:
        connection = await asyncpg.connect(self.standby.admin_dsn(self.dsn))
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    async def called(self, name: str) -> int:
        """How often a function of the schema was called on the standby. The server counts that, and shows what a
        session counted when the session ends."""
        counted = f"SELECT coalesce(sum(calls), 0)::int FROM pg_stat_user_functions WHERE funcname = '{name}'"
        found = await self.ask_standby(counted)
        assert isinstance(found, int)
        return found

    async def on_standby(self, holds: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not await self.ask_standby(f"SELECT {holds}"):  # noqa: ASYNC110 - nothing to await
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Durable, as in production: a replica gets only what its primary has flushed."""
    primary = PostgresServer(installations()["embedded"], Path(tempfile.mkdtemp(prefix="tl-")), durable=True)
    primary.ensure_started()
    standby = primary.start_standby(Path(tempfile.mkdtemp(prefix="tl-")))
    yield primary, standby
    standby.discard()
    primary.discard()


@pytest.fixture
async def pair(servers: tuple[PostgresServer, PostgresServer], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """On a busy machine a commit may be replayed late; these tests wait for it."""
    monkeypatch.setattr(replica_module, "_WAIT_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(replica_module, "_ANSWER_SECONDS", WAIT_SECONDS)
    primary, standby = servers
    standby.ensure_started()
    async with primary.database() as dsn:
        pair = Pair(primary, standby, dsn)
        connection = await asyncpg.connect(primary.admin_dsn(dsn))
        try:
            database = await connection.fetchval("SELECT current_database()")
            await connection.execute(f"ALTER DATABASE {database} SET track_functions = 'all'")
            position = await connection.fetchval("SELECT pg_current_wal_flush_lsn()::text")
        finally:
            await connection.close()
        admin = await asyncpg.connect(standby.admin_dsn())
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                replayed = f"SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn"
                while not await admin.fetchval(replayed):  # noqa: ASYNC110 - nothing to await
                    await asyncio.sleep(0.02)
        finally:
            await admin.close()
        yield pair


async def read_everything(opened: threadline.Threadline, thread_id: str) -> None:
    me = opened.as_user("ada", role="admin")
    thread = await me.thread(thread_id)
    assert [each.id for each in (await me.threads()).items] == [thread_id]
    assert {hit.thread_id for hit in await me.search("zebra")} == {thread_id}
    assert len(await thread.messages()) == 60
    assert len([piece async for piece in thread.export()]) > 0
    await me.usage()
    assert [each.id for each in (await me.all_threads()).items] == [thread_id]


async def test_large_reads_go_to_the_replica_and_see_what_was_just_written(pair: Pair) -> None:
    async with pair.opened() as opened:
        me = opened.as_user("ada")
        thread = await me.create_thread(title="Animals")
        await thread.append(*[f"zebra {number}" for number in range(60)])
        await read_everything(opened, thread.id)
        for number in range(100):
            await thread.update(title=f"Title {number}")
            assert (await me.threads()).items[0].title == f"Title {number}"
    await pair.on_standby("count(*) = 0 FROM pg_stat_activity WHERE usename = 'threadline_login'")
    assert await pair.called("list_threads") == 101
    for name in ("search_messages", "read_messages", "sum_usage", "list_tenant_threads"):
        assert await pair.called(name) > 0, name
    for name in ("append", "find_thread"):
        assert await pair.called(name) == 0, name


async def test_what_another_process_wrote_is_seen(pair: Pair) -> None:
    """Each round, one store writes and the other reads, as two workers of a service do."""
    async with pair.opened() as one, pair.opened() as other:
        thread = await one.as_user("ada").create_thread()
        for number in range(50):
            await thread.update(title=f"Title {number}")
            assert (await other.as_user("ada").threads()).items[0].title == f"Title {number}"


async def test_a_replica_that_is_behind_is_not_read(
    pair: Pair, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "_WAIT_SECONDS", 0.1)
    async with pair.opened() as opened:
        me = opened.as_user("ada")
        thread = await me.create_thread(title="Before")
        await me.threads()
        await pair.ask_standby("SELECT pg_wal_replay_pause()")
        try:
            await pair.on_standby("pg_get_wal_replay_pause_state() = 'paused'")
            for number in range(5):
                await thread.update(title=f"After {number}")
                assert [each.title for each in (await me.threads()).items] == [f"After {number}"]
        finally:
            await pair.ask_standby("SELECT pg_wal_replay_resume()")
        assert "replica not used, reads go to the primary: behind" in caplog.text
        await until_used_again(opened, caplog)


async def until_used_again(opened: threadline.Threadline, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "threadline.replica")
    async with asyncio.timeout(WAIT_SECONDS):
        while "replica used again" not in caplog.text:
            await opened.as_user("ada").threads()
            await asyncio.sleep(0.05)


async def test_a_replica_that_is_away_costs_no_read(
    pair: Pair, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sooner than in production: it is about to be back.
    monkeypatch.setattr(replica_module, "_AWAY_SECONDS", 0.5)
    async with pair.opened() as opened:
        me = opened.as_user("ada")
        thread = await me.create_thread(title="Before")
        assert len((await me.threads()).items) == 1
        await asyncio.to_thread(pair.standby.stop)
        for number in range(5):
            await thread.update(title=f"After {number}")
            assert [each.title for each in (await me.threads()).items] == [f"After {number}"]
        assert "replica not used, reads go to the primary: away" in caplog.text
        await asyncio.to_thread(pair.standby.ensure_started)
        await until_used_again(opened, caplog)


async def test_a_replica_may_be_away_when_a_store_is_opened(pair: Pair) -> None:
    nowhere = pair.replica_dsn.replace(str(pair.standby.directory), "/nonexistent")
    store = await PostgresStore.open(pair.dsn, replica_dsn=nowhere)
    try:
        assert (await store.scoped(Scope("local", "ada")).threads()).items == ()
    finally:
        await store.close()


async def test_a_server_that_is_no_standby_of_this_one_is_not_read(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """The primary itself, or after a failover the former replica."""
    store = await PostgresStore.open(pair.dsn, replica_dsn=pair.dsn)
    try:
        assert (await store.scoped(Scope("local", "ada")).threads()).items == ()
    finally:
        await store.close()
    assert "is no standby of this database's" in caplog.text


async def test_a_read_that_is_cancelled_leaves_the_replica_usable(pair: Pair) -> None:
    async with pair.opened() as opened:
        me = opened.as_user("ada")
        await me.create_thread(title="Here")
        for _ in range(20):
            reading = asyncio.create_task(me.threads())
            await asyncio.sleep(0.001)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert len((await me.threads()).items) == 1


async def test_a_replica_belongs_to_the_database_that_is_named_with_it(tmp_path: Path) -> None:
    file = tmp_path / "threadline.toml"
    file.write_text('database = "postgresql://a/x"\ndatabase_replica = "postgresql://b/x"\n')
    assert load(file, environ={}).database_replica == "postgresql://b/x"
    assert load(file, environ={}, overrides={"database": "postgresql://c/x"}).database_replica == ""
    assert load(file, environ={"THREADLINE_DATABASE": "postgresql://c/x"}).database_replica == ""
    both = {"THREADLINE_DATABASE": "postgresql://c/x", "THREADLINE_DATABASE_REPLICA": "postgresql://d/x"}
    assert load(file, environ=both).database_replica == "postgresql://d/x"
    with pytest.raises(SettingsInvalid, match="got a SQLite file"):
        await open_store(Settings(database=str(tmp_path / "a.db"), database_replica="postgresql://b/x"))
