"""Appends in company: few transactions for many, one answer for each, and nobody held up by a thread that is locked."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from threadline.core.errors import HeadMoved, KeyReused, NotFound, OutcomeUnknown, StoreFailed
from threadline.core.threads import NewThread, Scope
from threadline.stores.postgres.append_batcher import AT_ONCE, MOST, AppendArgs, AppendBatcher
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history


def given(thread_id: str, *, tenant_id: str = "a") -> AppendArgs:
    return AppendArgs(
        tenant_id, "alice", "threadline_app", 1, thread_id, ["m"], "u", [b"[]"], None, None, None, None, None, 9, None,
        0, None,
    )  # fmt: skip


class Server:
    """Answers each append with its thread's name, and keeps what came together."""

    def __init__(self) -> None:
        self.alone: list[str] = []
        self.together: list[list[str]] = []
        self.trouble: Exception | None = None
        self.go_on = asyncio.Event()

    async def append(self, statement: str, values: tuple[Any, ...], reads: bool) -> Any:
        self.alone.append(values[4])
        await self.go_on.wait()
        return [(values[4],)]

    async def append_together(self, statement: str, values: tuple[Any, ...], reads: bool) -> Any:
        self.together.append(values[4])
        if self.trouble is not None:
            raise self.trouble
        return [(values[4],)]

    def batcher(self) -> AppendBatcher:
        return AppendBatcher(self.append, self.append_together)


async def start(batcher: AppendBatcher, *appends: AppendArgs) -> list[asyncio.Task[str | None]]:
    tasks = [asyncio.create_task(batcher.append(one)) for one in appends]
    await asyncio.sleep(0)
    return tasks


async def test_whoever_finds_nobody_goes_alone_and_the_rest_together() -> None:
    server = Server()
    tasks = await start(server.batcher(), *(given(f"t{n}") for n in range(9, -1, -1)))
    server.go_on.set()
    assert await asyncio.gather(*tasks) == [f"t{n}" for n in range(9, -1, -1)]
    assert server.alone == ["t9", "t8"][:AT_ONCE]
    assert server.together == [[f"t{n}" for n in range(8)]]


async def test_no_transaction_is_for_two_tenants_nor_for_very_many() -> None:
    server = Server()
    appends = [given(f"t{n:03}", tenant_id="ab"[n % 2]) for n in range(AT_ONCE + 3 * MOST)]
    tasks = await start(server.batcher(), *appends)
    server.go_on.set()
    assert await asyncio.gather(*tasks) == [one.thread_id for one in appends]
    for company in server.together:
        assert len({int(thread_id[1:]) % 2 for thread_id in company}) == 1
        assert len(company) <= MOST


async def test_appends_to_one_thread_do_not_run_into_each_other() -> None:
    server = Server()
    batcher = server.batcher()
    tasks = await start(batcher, *(given("one") for _ in range(5)))
    assert server.alone == ["one"]
    server.go_on.set()
    await asyncio.gather(*tasks)
    assert server.together == [["one"] * 4]


async def test_a_company_that_fails_is_made_one_by_one() -> None:
    server = Server()
    server.trouble = StoreFailed("somebody's key was taken")
    tasks = await start(server.batcher(), *(given(f"t{n}") for n in range(6)))
    server.go_on.set()
    assert await asyncio.gather(*tasks) == [f"t{n}" for n in range(6)]
    assert sorted(server.alone) == [f"t{n}" for n in range(6)]


async def test_nobody_is_told_that_an_unknown_outcome_is_known() -> None:
    server = Server()
    server.trouble = OutcomeUnknown("the connection broke")
    tasks = await start(server.batcher(), *(given(f"t{n}") for n in range(AT_ONCE + 3)))
    server.go_on.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers[AT_ONCE:]] == [OutcomeUnknown] * 3
    assert len(server.alone) == AT_ONCE


async def test_who_gave_up_waiting_is_not_sent() -> None:
    server = Server()
    tasks = await start(server.batcher(), *(given(f"t{n}") for n in range(AT_ONCE + 3)))
    tasks[-1].cancel()
    await asyncio.sleep(0)
    server.go_on.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert server.together == [["t2", "t3"]]


async def test_each_of_a_company_gets_its_own_answer(own_store: PostgresStore) -> None:
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


async def test_a_locked_thread_holds_nobody_else_up(own_store: PostgresStore, admin: asyncpg.Connection) -> None:
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
async def test_a_crowd_needs_few_transactions(
    own_store: PostgresStore, admin: asyncpg.Connection, threads: int
) -> None:
    alice = own_store.scoped(Scope("a", "alice"))
    made = [await alice.create_thread(NewThread()) for _ in range(threads)]
    await asyncio.gather(*(alice.append(made[n % threads].id, exchange(f"m{n}")) for n in range(64)))
    written = await admin.fetch(
        "SELECT DISTINCT xmin FROM threadline.messages WHERE timeline_id = ANY ($1)", [t.timeline_id for t in made]
    )
    assert len(written) <= 32
