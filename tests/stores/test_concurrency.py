"""Many writers at once, in one process and in several: nothing is lost, doubled, reordered, or refused as busy."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import OpenStore
from tests.stores.writer import Job, Report, key_of, pair
from tests.stores.writer_processes import check_histories, check_history, writers
from threadline.core.sealing import Limits
from threadline.core.threads import NewThread, Scope
from threadline.ports import Store, Transaction

WRITERS = 64
EACH = 8


@pytest.fixture
async def roomy(open_store: OpenStore) -> Store:
    return await open_store(limits=Limits())


@pytest.fixture
async def tx(roomy: Store, tenant_id: str) -> Transaction:
    return roomy.scoped(Scope(tenant_id, "writer"))


async def write(tx: Transaction, name: str, thread_id: str) -> list[Report]:
    """Appends in turn; what was acknowledged, in the order it was."""
    done = []
    for number in range(EACH):
        key = key_of(name, number)
        answer = await tx.append(thread_id, pair(key), key=key)
        assert not answer.replayed
        done.append(Report(name, number, thread_id))
    return done


@pytest.mark.req("S1-08")
async def test_64_writers_on_one_thread_lose_nothing(tx: Transaction) -> None:
    thread = await tx.create_thread(NewThread())
    reports = await asyncio.gather(*(write(tx, f"w{n}", thread.id) for n in range(WRITERS)))
    await check_histories(tx, [report for done in reports for report in done])
    assert len(await check_history(tx, thread.id)) == WRITERS * EACH
    for done in reports:
        keys = [key_of(report.name, report.number or 0) for report in done]
        ids = [message.id for message in await tx.messages(thread.id) if message.id.startswith(f"{done[0].name}-")]
        assert ids[::2] == [f"{key}-q" for key in keys]


@pytest.mark.req("S1-08")
async def test_64_writers_on_64_threads_lose_nothing(tx: Transaction) -> None:
    threads = await asyncio.gather(*(tx.create_thread(NewThread()) for _ in range(WRITERS)))
    reports = await asyncio.gather(*(write(tx, f"w{n}", thread.id) for n, thread in enumerate(threads)))
    await check_histories(tx, [report for done in reports for report in done])
    assert [len(await check_history(tx, thread.id)) for thread in threads] == [EACH] * WRITERS


async def test_readers_beside_writers_see_whole_histories(tx: Transaction) -> None:
    thread = await tx.create_thread(NewThread())
    writing = asyncio.gather(*(write(tx, f"w{n}", thread.id) for n in range(8)))
    seen = [0]
    while not writing.done():
        found = await tx.messages(thread.id)
        assert [message.seq for message in found] == list(range(len(found)))
        assert len(found) % 2 == 0
        assert len(found) >= seen[-1]
        seen.append(len(found))
        # A store may answer a small read without giving way, and the writers wait in the same loop.
        await asyncio.sleep(0)
    await writing
    assert len(await tx.messages(thread.id)) == 8 * EACH * 2


async def test_64_first_writers_make_one_thread(tx: Transaction) -> None:
    """As web pages do that open the same state key at once."""
    made = await asyncio.gather(
        *(tx.create_thread(NewThread(state_key="home")) for _ in range(WRITERS)), return_exceptions=True
    )
    assert sorted({type(answer).__name__ for answer in made}) == ["DuplicateId", "Thread"]
    assert len((await tx.threads()).items) == 1


@pytest.mark.req("S4-14")
@pytest.mark.parametrize("database", ["file", "postgres"], indirect=True)
async def test_four_processes_share_one_database(tx: Transaction, database: str, tenant_id: str) -> None:
    shared = await tx.create_thread(NewThread())
    own = [await tx.create_thread(NewThread()) for _ in range(4)]
    jobs = [
        Job(database, tenant_id, [shared.id, thread.id], f"p{n}", count=50, tasks=8) for n, thread in enumerate(own)
    ]
    async with writers(4) as processes:
        reports = await asyncio.gather(*(process.run(job) for process, job in zip(processes, jobs, strict=True)))
    assert [done[-1].exit_code for done in reports] == [0] * 4
    assert [len(done) - 1 for done in reports] == [50] * 4
    await check_histories(tx, [report for done in reports for report in done])
    assert len(await check_history(tx, shared.id)) == 100
