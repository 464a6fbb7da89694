"""What was stored is there after the database was closed and opened again, and two open stores see one truth."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import OpenStore
from threadline.core.threads import NewThread, Scope
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import clean_text, exchange, history
from threadline.testing.conformance.sample_data import populate, view

pytestmark = pytest.mark.parametrize("database", ["file", "postgres"], indirect=True)


@pytest.fixture
async def doors(open_store: OpenStore, tenant_id: str) -> list[Transaction]:
    """The same user, through four stores on one database, as four processes would have them."""
    return [(await open_store()).scoped(Scope(tenant_id, "alice")) for _ in range(4)]


@pytest.mark.req("S4-14")
async def test_a_closed_database_opens_as_it_was(open_store: OpenStore, tenant_id: str, clock: ManualClock) -> None:
    alice = Scope(tenant_id, "alice")
    store = await open_store()
    ids = await populate(store, alice, clock)
    before = await view(store, alice, ids)
    await store.close()
    store = await open_store()
    assert await view(store, alice, ids) == before
    thread = await store.scoped(alice).thread(ids.thread_id)
    assert thread is not None
    assert (await store.scoped(alice).append(ids.thread_id, exchange("next"))).first_seq == thread.message_count
    assert await store.check() == []


@pytest.mark.req("S1-08", "S4-14")
async def test_appends_through_several_doors_stand_in_one_order(doors: list[Transaction]) -> None:
    thread = await doors[0].create_thread(NewThread())
    appends = [doors[n % 4].append(thread.id, exchange(f"m{n}")) for n in range(40)]
    answers = await asyncio.gather(*appends)
    assert sorted(answer.first_seq for answer in answers) == list(range(40))
    seen = [await history(door, thread.id) for door in doors]
    assert sorted(seen[0]) == sorted(f"m{n}" for n in range(40))
    assert seen == [seen[0]] * 4


async def test_a_repeat_through_another_door_is_the_same_call(doors: list[Transaction]) -> None:
    thread = await doors[0].create_thread(NewThread())
    answers = await asyncio.gather(*(door.append(thread.id, exchange("once"), key="k1") for door in doors * 5))
    assert sorted(answer.replayed for answer in answers) == [False] + [True] * 19
    assert await history(doors[3], thread.id) == ["once"]


@pytest.mark.req("S3-17", "S3-22")
async def test_a_claim_through_any_door_is_the_only_one(
    doors: list[Transaction], open_store: OpenStore, tenant_id: str, clock: ManualClock
) -> None:
    scopes = [(await open_store()).scoped(Scope(tenant_id, "system", "system")) for _ in range(4)]
    claims = await asyncio.gather(*(system.claim_inbox("slack", "Ev1") for system in scopes * 25))
    assert sum(claim is not None for claim in claims) == 1
    for n in range(12):
        await scopes[0].enqueue("slack", f"C{n}", clean_text("x"), turn_id=None, owner_id="alice", id=f"o{n}")
    taken = await asyncio.gather(*(system.claim_outbox("w", until=clock.after(9), limit=2) for system in scopes * 3))
    assert sorted(row.id for rows in taken for row in rows) == sorted(f"o{n}" for n in range(12))


async def test_what_one_door_wrote_the_others_find(doors: list[Transaction]) -> None:
    thread = await doors[0].create_thread(NewThread())
    for n, door in enumerate(doors):
        await door.append(thread.id, exchange(f"zebra {n}"))
        for other in doors:
            assert len(await other.search("zebra")) == n + 1
    await doors[1].undo(thread.id)
    assert [len(await door.search("zebra")) for door in doors] == [3] * 4
    await doors[2].purge_thread(thread.id)
    assert [await door.search("zebra") for door in doors] == [[]] * 4
