"""Undo and load with a key happen once. Keys of different users do not collide."""

from __future__ import annotations

import asyncio

import pytest

from threadline.bootstrap import Threadline
from threadline.core.errors import InvalidInput, InvalidName, KeyReused, NotFound, RoleRefused
from threadline.core.messages import user
from threadline.core.threads import NewThread, Scope, Thread
from threadline.threads.user_threads import Threads


@pytest.fixture
def threads(threadline: Threadline, tenant_id: str) -> Threads:
    return threadline.threads(Scope(tenant_id, "alice"))


async def talked(threads: Threads, thread_id: str) -> Thread:
    thread = await threads.create(NewThread(id=thread_id))
    for text in ("one", "two", "three"):
        await threads.append(thread.id, [user(text)])
    await threads.save(thread.id, "all three")
    return thread


@pytest.mark.req("S2-15")
async def test_a_move_is_made_once_for_each_key(threads: Threads) -> None:
    thread = await talked(threads, "t1")
    assert [(await threads.undo(thread.id, key="k1")).message_count for _ in range(3)] == [2, 2, 2]
    assert (await threads.undo(thread.id, key="k2")).message_count == 1
    assert (await threads.load(thread.id, "all three", key="k3")).message_count == 3
    await threads.undo(thread.id)
    assert (await threads.load(thread.id, "all three", key="k3")).message_count == 2


async def test_those_who_ask_at_once_move_it_once(threads: Threads) -> None:
    thread = await talked(threads, "t1")
    moved = await asyncio.gather(*(threads.undo(thread.id, key="k") for _ in range(8)))
    assert [each.message_count for each in moved] == [2] * 8


async def test_a_key_that_was_used_for_something_else_is_refused(threads: Threads) -> None:
    thread, other = await talked(threads, "t1"), await talked(threads, "t2")
    await threads.undo(thread.id, key="k")
    for again in (threads.undo(other.id, key="k"), threads.load(thread.id, "all three", key="k")):
        with pytest.raises(KeyReused):
            await again
    assert [(await threads.find(each)).message_count for each in (thread.id, other.id)] == [2, 3]


@pytest.mark.req("S0-12")
async def test_another_users_key_is_another_key(threadline: Threadline, threads: Threads, tenant_id: str) -> None:
    bobs = threadline.threads(Scope(tenant_id, "bob"))
    thread, his = await talked(threads, "t1"), await talked(bobs, "t2")
    assert (await threads.undo(thread.id, key="k")).message_count == 2
    assert (await bobs.undo(his.id, key="k")).message_count == 2
    with pytest.raises(NotFound):
        await bobs.undo(thread.id, key="k5")


async def test_a_move_that_fails_leaves_its_key_free(threads: Threads) -> None:
    thread = await threads.create()
    for _ in range(2):
        with pytest.raises(InvalidInput):
            await threads.undo(thread.id, key="k")
    await threads.append(thread.id, [user("one")])
    assert (await threads.undo(thread.id, key="k")).message_count == 0
    with pytest.raises(InvalidName):
        await threads.undo(thread.id, key="no key")


async def test_a_viewer_moves_nothing(threadline: Threadline, threads: Threads, tenant_id: str) -> None:
    thread = await talked(threads, "t1")
    viewer = threadline.threads(Scope(tenant_id, "alice", "viewer"))
    for asked in (viewer.undo(thread.id, key="k"), viewer.load(thread.id, "all three", key="k")):
        with pytest.raises(RoleRefused):
            await asked
