"""Writer processes are killed at random times: every acknowledged append is stored once, and a retry is safe.

A process is killed some milliseconds after its start or its first acknowledgement, so a kill can hit opening, writing,
committing or acknowledging. After each round the database is opened again and read, and appends without an
acknowledgement are sent again with their key. The times come from a fixed seed; what they hit depends on the machine.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.conftest import open_database
from tests.stores.writer import Job, Report, key_of, pair
from tests.stores.writer_processes import Writer, check_histories, check_history, writers
from threadline.clock import SystemClock
from threadline.core.errors import OutcomeUnknown, StoreUnavailable
from threadline.core.sealing import Limits
from threadline.core.threads import NewThread, Scope
from threadline.ports import Store, Transaction
from threadline.testing.postgres import PostgresServer, installations, shared_server

PROCESSES = 4
TASKS = 3
LONGEST = 0.06
CUTS = 60


async def reopened(database: str) -> Store:
    return await open_database(database, clock=SystemClock(), limits=Limits())


async def one_round(processes: list[Writer], database: str, tenant_id: str, chance: random.Random) -> int:
    """Each process's child lives and dies on a thread they share; how many appends were acknowledged."""
    store = await reopened(database)
    thread = await store.scoped(Scope(tenant_id, "writer")).create_thread(NewThread())
    await store.close()
    jobs = [
        Job(
            database,
            tenant_id,
            [thread.id],
            f"p{n}",
            tasks=TASKS,
            seconds=chance.uniform(0, LONGEST),
            from_first=chance.random() < 0.7,
        )
        for n in range(len(processes))
    ]
    lives = await asyncio.gather(*(process.run(job) for process, job in zip(processes, jobs, strict=True)))
    assert {life[-1].exit_code for life in lives} == {-9}
    store = await reopened(database)
    tx = store.scoped(Scope(tenant_id, "writer"))
    for life in lives:
        await check_histories(tx, life)
        await retry(tx, thread.id, life)
    await store.close()
    return sum(len(life) - 1 for life in lives)


async def retry(tx: Transaction, thread_id: str, life: list[Report]) -> None:
    """Sends again what was under way, and the last that was acknowledged: each stands there once."""
    numbers = [report.number for report in life if report.number is not None]
    newest = max(numbers, default=-1)
    again = range(max(newest - TASKS, 0), newest + TASKS + 1)
    for number in again:
        key = key_of(life[-1].name, number)
        answer = await tx.append(thread_id, pair(key), key=key)
        assert answer.replayed or number not in numbers
    assert {key_of(life[-1].name, number) for number in again} <= await check_history(tx, thread_id)


@pytest.mark.req("S1-08")
@pytest.mark.parametrize("database", ["file", "postgres"], indirect=True)
async def test_no_kill_loses_doubles_or_tears_a_message(database: str, tenant_id: str, slow: bool) -> None:
    rounds = 1_000 if slow else 28
    chance = random.Random("writers die at these instants")
    async with writers(PROCESSES) as processes:
        acknowledged = [await one_round(processes, database, tenant_id, chance) for _ in range(rounds)]
    assert sum(acknowledged) > rounds
    store = await reopened(database)
    assert await store.check() == []
    await store.close()


async def write_stubbornly(tx: Transaction, name: str, thread_id: str, count: int) -> list[Report]:
    """Appends as a careful client does: what may or may not have been done is sent again under its key."""
    done = []
    for number in range(count):
        key = key_of(name, number)
        taken = False
        while not taken:
            taken = await is_taken(tx, thread_id, key)
        done.append(Report(name, number, thread_id))
    return done


async def is_taken(tx: Transaction, thread_id: str, key: str) -> bool:
    try:
        await tx.append(thread_id, pair(key), key=key)
    except (StoreUnavailable, OutcomeUnknown):
        return False
    return True


async def terminate_backends(server: PostgresServer, dsn: str, until: asyncio.Future[Any]) -> int:
    """Cuts half of the application's connections, again and again; how many were cut in the end."""
    cut = 0
    admin = await asyncpg.connect(server.admin_dsn(dsn))
    try:
        while not until.done() and cut < CUTS:
            rows = await admin.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5"
            )
            cut += len(rows)
            await asyncio.sleep(0.01)
    finally:
        await admin.close()
    return cut


async def test_a_terminated_backend_loses_and_doubles_nothing(tenant_id: str) -> None:
    server = shared_server()
    async with server.database() as dsn:
        store = await reopened(dsn)
        tx = store.scoped(Scope(tenant_id, "writer"))
        threads = [await tx.create_thread(NewThread()) for _ in range(4)]
        writing = asyncio.gather(*(write_stubbornly(tx, f"w{n}", threads[n % 4].id, 60) for n in range(8)))
        cut = await terminate_backends(server, dsn, writing)
        await check_histories(tx, [report for done in await writing for report in done])
        assert cut > 10
        assert sum([len(await check_history(tx, thread.id)) for thread in threads]) == 8 * 60
        await store.close()


@pytest.mark.slow
async def test_a_crashed_server_keeps_what_it_acknowledged() -> None:
    """An immediate shutdown throws away everything that was not on disk."""
    with a_server_of_its_own() as server:
        dsn = await server.create_database()
        store = await reopened(dsn)
        tx = store.scoped(Scope("local", "writer"))
        thread = await tx.create_thread(NewThread())
        for crash in range(10):
            writing = asyncio.gather(*(write_until_cut(tx, f"c{crash}-{n}", thread.id) for n in range(8)))
            await asyncio.sleep(0.3)
            server.stop()
            reports = [report for done in await writing for report in done]
            server.ensure_started()
            await store.close()
            store = await reopened(dsn)
            tx = store.scoped(Scope("local", "writer"))
            await check_histories(tx, reports)
        await store.close()


@contextmanager
def a_server_of_its_own() -> Iterator[PostgresServer]:
    """One that syncs to disk, and may be stopped without disturbing other tests."""
    with tempfile.TemporaryDirectory(prefix="threadline-") as directory:
        server = PostgresServer(installations()["embedded"], Path(directory), durable=True)
        server.ensure_started()
        try:
            yield server
        finally:
            server.stop()


async def write_until_cut(tx: Transaction, name: str, thread_id: str) -> list[Report]:
    done: list[Report] = []
    try:
        while True:
            key = key_of(name, len(done))
            await tx.append(thread_id, pair(key), key=key)
            done.append(Report(name, len(done), thread_id))
    except (StoreUnavailable, OutcomeUnknown):
        return done
