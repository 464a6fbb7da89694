"""Batched appends: few transactions, one result for each append, and no delay by a thread that is locked."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import asyncpg
import pytest

from threadline.core.errors import HeadMoved, KeyReused, NotFound, OutcomeUnknown, StoreFailed
from threadline.core.threads import NewThread, Scope
from threadline.stores.postgres.append_batcher import (
    MAX_BATCH,
    MAX_IN_FLIGHT,
    AppendArgs,
    AppendBatcher,
    AppendResult,
    ScopedAppend,
)
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history


def append_to(thread_id: str, *, tenant_id: str = "a") -> ScopedAppend:
    args = AppendArgs(
        thread_id=thread_id,
        ids=["m"],
        roles="u",
        parts=[b"[]"],
        metadata=None,
        created_us=None,
        key=None,
        fingerprint=None,
        expected_count=None,
        max_count=9,
        turn_id=None,
        tokens=0,
        title=None,
    )
    return ScopedAppend(tenant_id, "alice", "threadline_app", 1, args)


class Row(NamedTuple):
    """A result row whose timeline has the name of the thread."""

    timeline_id: str
    first_seq: int = 0
    token_count: int = 0
    title: str | None = None

    def __getitem__(self, name: Any) -> Any:
        return getattr(self, name)


class FakeServer:
    """Answers each append with a row named after its thread, and records which came alone and which in a batch."""

    def __init__(self) -> None:
        self.alone: list[str] = []
        self.batches: list[list[str]] = []
        self.batch_error: Exception | None = None
        self.may_answer = asyncio.Event()

    async def append(self, statement: str, values: tuple[Any, ...], reads: bool) -> Any:
        self.alone.append(values[4].thread_id)
        await self.may_answer.wait()
        return [Row(values[4].thread_id)]

    async def append_batch(self, statement: str, values: tuple[Any, ...], reads: bool) -> Any:
        self.batches.append([args.thread_id for args in values[4]])
        if self.batch_error is not None:
            raise self.batch_error
        return [Row(args.thread_id) for args in values[4]]

    def batcher(self) -> AppendBatcher:
        return AppendBatcher(self.append, self.append_batch)


async def start(batcher: AppendBatcher, *appends: ScopedAppend) -> list[asyncio.Task[AppendResult | None]]:
    tasks = [asyncio.create_task(batcher.append(append)) for append in appends]
    await asyncio.sleep(0)
    return tasks


async def answers(tasks: list[asyncio.Task[AppendResult | None]]) -> list[str | None]:
    return [result and result.timeline_id for result in await asyncio.gather(*tasks)]


async def test_the_first_appends_are_sent_immediately_and_the_rest_in_a_batch() -> None:
    server = FakeServer()
    tasks = await start(server.batcher(), *(append_to(f"t{n}") for n in range(9, -1, -1)))
    server.may_answer.set()
    assert await answers(tasks) == [f"t{n}" for n in range(9, -1, -1)]
    assert server.alone == ["t9", "t8"][:MAX_IN_FLIGHT]
    assert server.batches == [[f"t{n}" for n in range(8)]]


async def test_a_batch_has_one_tenant_and_a_limited_size() -> None:
    server = FakeServer()
    appends = [append_to(f"t{n:03}", tenant_id="ab"[n % 2]) for n in range(MAX_IN_FLIGHT + 3 * MAX_BATCH)]
    tasks = await start(server.batcher(), *appends)
    server.may_answer.set()
    assert await answers(tasks) == [append.args.thread_id for append in appends]
    for batch in server.batches:
        assert len({int(thread_id[1:]) % 2 for thread_id in batch}) == 1
        assert len(batch) <= MAX_BATCH


async def test_appends_to_one_thread_wait_for_the_one_in_flight() -> None:
    server = FakeServer()
    tasks = await start(server.batcher(), *(append_to("one") for _ in range(5)))
    assert server.alone == ["one"]
    server.may_answer.set()
    await asyncio.gather(*tasks)
    assert server.batches == [["one"] * 4]


async def test_appends_of_a_failed_batch_are_retried_one_by_one() -> None:
    server = FakeServer()
    server.batch_error = StoreFailed("a key was taken")
    tasks = await start(server.batcher(), *(append_to(f"t{n}") for n in range(6)))
    server.may_answer.set()
    assert await answers(tasks) == [f"t{n}" for n in range(6)]
    assert sorted(server.alone) == [f"t{n}" for n in range(6)]


async def test_a_batch_with_an_unknown_outcome_is_not_retried() -> None:
    server = FakeServer()
    server.batch_error = OutcomeUnknown("the connection broke")
    tasks = await start(server.batcher(), *(append_to(f"t{n}") for n in range(MAX_IN_FLIGHT + 3)))
    server.may_answer.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes[MAX_IN_FLIGHT:]] == [OutcomeUnknown] * 3
    assert len(server.alone) == MAX_IN_FLIGHT


async def test_a_cancelled_append_is_not_sent() -> None:
    server = FakeServer()
    tasks = await start(server.batcher(), *(append_to(f"t{n}") for n in range(MAX_IN_FLIGHT + 3)))
    tasks[-1].cancel()
    await asyncio.sleep(0)
    server.may_answer.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert server.batches == [["t2", "t3"]]


async def test_each_append_of_a_batch_gets_its_own_result(own_store: PostgresStore) -> None:
    alice, bob = own_store.scoped(Scope("a", "alice")), own_store.scoped(Scope("a", "bob"))
    threads = [await create_thread_with(alice, "first") for _ in range(10)]
    other = await bob.create_thread(NewThread())
    await alice.append(threads[0].id, exchange("keyed"), key="k")
    works = [
        *(alice.append(thread.id, exchange("second")) for thread in threads[1:]),
        bob.append(other.id, exchange("mine"), tokens=7),
        bob.append(threads[1].id, exchange("not mine")),
        alice.append(threads[0].id, exchange("another"), key="k"),
        alice.append(threads[2].id, exchange("late"), expected_count=77),
    ]
    answers = await asyncio.gather(*works, return_exceptions=True)
    assert [type(answer) for answer in answers[-3:]] == [NotFound, KeyReused, HeadMoved]
    for thread in threads[1:]:
        assert await history(alice, thread.id) == ["first", "second"]
    assert await history(bob, other.id) == ["mine"]
    found = await bob.thread(other.id)
    assert found is not None
    assert found.token_count == 7


async def test_a_locked_thread_does_not_delay_appends_to_others(
    own_store: PostgresStore, admin: asyncpg.Connection
) -> None:
    alice = own_store.scoped(Scope("a", "alice"))
    threads = [await alice.create_thread(NewThread()) for _ in range(12)]
    held = admin.transaction()
    await held.start()
    await admin.execute("SELECT FROM threadline.threads WHERE id = $1 FOR UPDATE", threads[5].id)
    tasks = [asyncio.create_task(alice.append(thread.id, exchange("a"))) for thread in threads]
    free = [task for task, thread in zip(tasks, threads, strict=True) if thread is not threads[5]]
    await asyncio.wait_for(asyncio.gather(*free), 30)
    assert not tasks[5].done()
    await held.rollback()
    assert (await asyncio.wait_for(tasks[5], 30)).message_count == 1


@pytest.mark.parametrize("threads", [1, 8])
async def test_many_concurrent_appends_need_few_transactions(
    own_store: PostgresStore, admin: asyncpg.Connection, threads: int
) -> None:
    alice = own_store.scoped(Scope("a", "alice"))
    made = [await alice.create_thread(NewThread()) for _ in range(threads)]
    await asyncio.gather(*(alice.append(made[n % threads].id, exchange(f"m{n}")) for n in range(64)))
    written = await admin.fetch(
        "SELECT DISTINCT xmin FROM threadline.messages WHERE timeline_id = ANY ($1)", [t.timeline_id for t in made]
    )
    assert len(written) <= 32
