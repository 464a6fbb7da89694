"""Change watches: what wakes a watch on a turn, on a thread, or on a state key without a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import pytest

from threadline.core.threads import NewThread, Thread, ThreadChanges
from threadline.core.turns import Turn, TurnEnd
from threadline.ports import Store, Transaction, TransactionBody
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.arrivals import arrival, take_in
from threadline.testing.conformance.message_builders import (
    assistant_message,
    create_thread_with,
    exchange,
    user_message,
)
from threadline.testing.conformance.turn_commits import accept_and_lease, accept_new
from threadline.testing.conformance.turn_output import chunks


class Scene(NamedTuple):
    """A thread that stood on another timeline before, bound to a place, and with a saved point."""

    clock: ManualClock
    thread: Thread
    earlier: str


async def scene(tx: Transaction, clock: ManualClock) -> Scene:
    before = await create_thread_with(tx, "a", "b")
    await tx.save(before.id, "here")
    await tx.bind("slack", "D1 alice", before.id)
    await tx.undo(before.id)
    await tx.append(before.id, exchange("c", "d"))
    thread = await tx.thread(before.id)
    assert thread is not None
    return Scene(clock, thread, before.timeline_id)


async def assert_wakes(store: Store, tx: Transaction, subject: str, act: Callable[[], Awaitable[object]]) -> None:
    """Fails with a timeout unless `act` wakes a watch that is already waiting."""
    async with asyncio.timeout(30), store.watch(tx.scope, subject) as watch:
        waiting = asyncio.create_task(watch.wait(60))
        await asyncio.sleep(0)
        assert await act() not in (None, False)
        await waiting


Act = Callable[[Transaction, Scene], Awaitable[object]]
ACTS: dict[str, Act] = {
    "append": lambda tx, at: tx.append(at.thread.id, [user_message("e")]),
    "undo": lambda tx, at: tx.undo(at.thread.id),
    "move": lambda tx, at: tx.move(at.thread.id, 0),
    "switch": lambda tx, at: tx.switch(at.thread.id, at.earlier),
    "load": lambda tx, at: tx.load(at.thread.id, "here"),
    "accept_turn": lambda tx, at: accept_new(tx, at.clock, thread_id=at.thread.id),
    "accept_arrival": lambda tx, _: take_in(tx, arrival()),
    "rename": lambda tx, at: tx.update_thread(at.thread.id, ThreadChanges(title="Lisbon")),
    "archive": lambda tx, at: tx.update_thread(at.thread.id, ThreadChanges(archived=True)),
    "delete_thread": lambda tx, at: tx.delete_thread(at.thread.id),
    "purge_thread": lambda tx, at: tx.purge_thread(at.thread.id),
}
End = Callable[[Transaction, Turn], Awaitable[object]]
ENDS: dict[str, End] = {
    "finish_turn": lambda tx, turn: tx.finish_turn(
        turn.id, turn.fence, TurnEnd("executed"), reply=assistant_message("Not far.")
    ),
    "finish_without_reply": lambda tx, turn: tx.finish_turn(turn.id, turn.fence, TurnEnd("stopped")),
    "request_stop": lambda tx, turn: tx.request_stop(turn.id),
}
STEPS: dict[str, End] = {
    **ENDS,
    "put_chunks": lambda tx, turn: tx.put_chunks(turn.id, turn.fence, chunks(1, 2)),
}


class TestWatching:
    @pytest.mark.parametrize("name", ACTS)
    async def test_a_thread_wakes_on_every_change(
        self, store: Store, alice: Transaction, clock: ManualClock, name: str
    ) -> None:
        """A thread's id wakes on: append, move, turn accepted or ended, update, delete, restore, purge. Commits of this
        process wake immediately"""
        at = await scene(alice, clock)
        await assert_wakes(store, alice, at.thread.id, lambda: ACTS[name](alice, at))

    @pytest.mark.parametrize("name", ACTS)
    async def test_a_transaction_wakes_when_it_commits(
        self, store: Store, alice: Transaction, clock: ManualClock, name: str
    ) -> None:
        at = await scene(alice, clock)
        work: TransactionBody[object] = lambda tx: ACTS[name](tx, at)  # noqa: E731 - a def would not say more
        await assert_wakes(store, alice, at.thread.id, lambda: store.transact(alice.scope, work))

    @pytest.mark.parametrize("name", ENDS)
    async def test_a_thread_wakes_when_one_of_its_turns_ends(
        self, store: Store, alice: Transaction, clock: ManualClock, name: str
    ) -> None:
        thread = await create_thread_with(alice, "a", "b")
        turn = await accept_and_lease(alice, clock, thread.id)
        await assert_wakes(store, alice, thread.id, lambda: ENDS[name](alice, turn))

    @pytest.mark.parametrize("name", STEPS)
    async def test_a_turn_wakes_on_its_output_and_end(
        self, store: Store, alice: Transaction, clock: ManualClock, name: str
    ) -> None:
        """A turn's id wakes on: output stored, stop requested, turn ended."""
        thread = await create_thread_with(alice, "a", "b")
        turn = await accept_and_lease(alice, clock, thread.id)
        await assert_wakes(store, alice, turn.id, lambda: STEPS[name](alice, turn))

    async def test_a_thread_is_watched_before_it_is_there(
        self, store: Store, alice: Transaction, clock: ManualClock
    ) -> None:
        """Watches a turn by its id, or a thread by its id or state key, whether or not it exists yet. A state key wakes
        when a thread is created or restored under it"""
        origin = await create_thread_with(alice, "a", "b")
        one, two, three = (NewThread(state_key=key) for key in ("one", "two", "three"))
        await assert_wakes(store, alice, "one", lambda: alice.create_thread(one))
        await assert_wakes(store, alice, "two", lambda: alice.branch(origin.id, two))
        await assert_wakes(store, alice, "three", lambda: accept_new(alice, clock, new_thread=three))
        await assert_wakes(store, alice, "four", lambda: take_in(alice, arrival(home_key="four")))

    async def test_a_restored_thread_wakes_its_id_and_its_state_key(self, store: Store, alice: Transaction) -> None:
        for subject in ("id", "key"):
            thread = await alice.create_thread(NewThread())
            await alice.delete_thread(thread.id)
            name = thread.id if subject == "id" else thread.state_key
            await assert_wakes(store, alice, name, partial(alice.restore_thread, thread.id))
