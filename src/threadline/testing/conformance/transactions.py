"""Transactions and the store itself: all or nothing, seen whole or not at all, and what the operator may ask."""

from __future__ import annotations

import asyncio

import pytest

from threadline.core.errors import DuplicateId, HeadMoved, NotFound, StoreFailed
from threadline.core.threads import NewThread, Thread
from threadline.core.turns import TurnEnd
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn, clean_text, create_thread_with, exchange, history


class Interrupted(Exception):
    """What a test's own work raises."""


class TestTransacting:
    async def test_all_of_the_work_is_stored(self, store: Store, alice: Transaction) -> None:
        """Runs `work` in one write transaction: if it raises, nothing is stored."""

        async def work(tx: Transaction) -> Thread:
            thread = await tx.create_thread(NewThread())
            await tx.append(thread.id, exchange("a", "b"), key="k1")
            await add_turn(tx, "turn-1", thread.id, "web")
            await tx.enqueue("slack", "C1", clean_text("reply"), turn_id="turn-1", owner_id="alice", id="o1")
            assert tx.scope == alice.scope
            assert await history(tx, thread.id) == ["a", "b", "Is it far?"]
            return thread

        thread = await store.transact(alice.scope, work)
        assert await history(alice, thread.id) == ["a", "b", "Is it far?"]
        assert await alice.turn("turn-1") is not None
        assert [row.id for row in await alice.outbox()] == ["o1"]

    @pytest.mark.parametrize("error", [Interrupted, asyncio.CancelledError, KeyError])
    async def test_of_work_that_raises_nothing_is_stored(
        self, store: Store, alice: Transaction, error: type[BaseException]
    ) -> None:
        """all of it is stored, or, if it raises, none"""
        thread = await create_thread_with(alice, "a")
        rows = await alice.row_counts()

        async def work(tx: Transaction) -> None:
            await tx.append(thread.id, exchange("zebra"), key="k1")
            await tx.create_thread(NewThread(id="lost", state_key="plans"))
            await tx.save(thread.id, "lost")
            await tx.delete_thread(thread.id)
            raise error

        with pytest.raises(error):
            await store.transact(alice.scope, work)
        assert await alice.row_counts() == rows
        assert await alice.thread(thread.id) == thread
        assert await history(alice, thread.id) == ["a"]
        assert await alice.search("zebra") == []
        assert not (await alice.append(thread.id, exchange("b"), key="k1")).replayed

    async def test_a_verb_that_raises_undoes_the_work(self, store: Store, alice: Transaction) -> None:
        """if it raises, none"""
        thread = await create_thread_with(alice, "a")

        async def work(tx: Transaction) -> None:
            await tx.append(thread.id, exchange("b"))
            await tx.append(thread.id, exchange("c"), expected_count=7)

        with pytest.raises(HeadMoved) as moved:
            await store.transact(alice.scope, work)
        assert moved.value.current_count == 2
        assert await history(alice, thread.id) == ["a"]

    async def test_a_transaction_can_continue_after_an_expected_error(self, store: Store, alice: Transaction) -> None:
        """Runs `work` in one write transaction"""
        taken = await create_thread_with(alice, "a", new=NewThread(id="one", state_key="plans"))

        async def work(tx: Transaction) -> str:
            for new in (NewThread(id="one"), NewThread(state_key="plans")):
                with pytest.raises(DuplicateId):
                    await tx.create_thread(new)
            with pytest.raises(NotFound):
                await tx.append("nowhere", exchange("lost"))
            await tx.append(taken.id, exchange("b"))
            return (await tx.create_thread(NewThread())).id

        made = await store.transact(alice.scope, work)
        assert await history(alice, taken.id) == ["a", "b"]
        assert await alice.thread(made) is not None

    async def test_no_reader_sees_half_a_transaction(self, store: Store, alice: Transaction) -> None:
        """all of it is stored, or, if it raises, none"""

        async def work(tx: Transaction) -> None:
            for number in range(20):
                thread = await tx.create_thread(NewThread(id=f"n{number}"))
                await tx.append(thread.id, exchange("a"))

        seen = set()
        writing = asyncio.create_task(store.transact(alice.scope, work))
        while not writing.done():
            seen.add(len((await alice.threads()).items))
            # Gives the writer the loop, so that reads happen between its steps.
            await asyncio.sleep(0)
        await writing
        assert seen <= {0, 20}
        assert len((await alice.threads()).items) == 20

    async def test_works_at_the_same_time_lose_nothing(self, store: Store, alice: Transaction) -> None:
        """Runs `work` in one write transaction"""
        thread = await alice.create_thread(NewThread())

        async def add(number: int) -> None:
            async def work(tx: Transaction) -> None:
                await tx.append(thread.id, exchange(f"question {number}"))
                await tx.append(thread.id, exchange(f"again {number}"))

            await store.transact(alice.scope, work)

        await asyncio.gather(*(add(number) for number in range(16)))
        told = await history(alice, thread.id)
        numbers = [text.split()[1] for text in told]
        assert numbers[::2] == numbers[1::2]
        assert sorted(told) == sorted(f"{word} {n}" for n in range(16) for word in ("again", "question"))

    async def test_what_a_work_looked_up_still_holds_when_it_writes(self, store: Store, alice: Transaction) -> None:
        """Transactions of one user run one after the other, so what `work` has read is still true when it writes; those
        of the system scope may overlap."""
        thread = await alice.create_thread(NewThread())

        async def accept_if_idle(number: int) -> bool:
            async def work(tx: Transaction) -> bool:
                if await tx.active_turns(thread.id):
                    return False
                await add_turn(tx, f"turn-{number}", thread.id)
                return True

            return await store.transact(alice.scope, work)

        assert sorted(await asyncio.gather(*map(accept_if_idle, range(8)))) == [False] * 7 + [True]
        assert len(await alice.active_turns(thread.id)) == len(await history(alice, thread.id)) == 1

    async def test_works_that_find_or_make_a_thread_make_one(self, store: Store, alice: Transaction) -> None:
        """what a work looked up still holds when it writes"""

        async def work(tx: Transaction) -> str:
            found = await tx.thread_by_key("home")
            thread = found or await tx.create_thread(NewThread(state_key="home"))
            await tx.append(thread.id, exchange("hello"))
            return thread.id

        made = await asyncio.gather(*(store.transact(alice.scope, work) for _ in range(8)))
        assert len(set(made)) == 1
        assert await history(alice, made[0]) == ["hello"] * 8

    async def test_a_transaction_is_over_with_its_work(self, store: Store, alice: Transaction) -> None:
        """The Transaction ends with `work`: later calls raise RuntimeError."""
        thread = await alice.create_thread(NewThread())
        kept: list[Transaction] = []

        async def keep(tx: Transaction) -> None:
            kept.append(tx)

        async def fail(tx: Transaction) -> None:
            kept.append(tx)
            raise Interrupted

        await store.transact(alice.scope, keep)
        with pytest.raises(Interrupted):
            await store.transact(alice.scope, fail)
        for tx in kept:
            with pytest.raises(RuntimeError):
                await tx.append(thread.id, exchange("too late"))
            with pytest.raises(RuntimeError):
                await tx.thread(thread.id)
        assert await history(alice, thread.id) == []

    async def test_a_work_is_bound_to_its_scope(self, store: Store, alice: Transaction, bob: Transaction) -> None:
        """Every verb of a Transaction is bound to one scope and sees nothing outside it"""
        thread = await create_thread_with(alice, "mine")

        async def work(tx: Transaction) -> Thread | None:
            return await tx.thread(thread.id)

        assert await store.transact(bob.scope, work) is None
        assert await store.transact(alice.scope, work) == thread


class TestSessions:
    async def test_each_verb_is_done_when_it_returns(self, store: Store, alice: Transaction) -> None:
        """A session in which each operation is its own transaction, committed when the call returns."""
        thread = await create_thread_with(alice, "a")
        assert await history(store.scoped(alice.scope), thread.id) == ["a"]


class TestTheStore:
    async def test_tenants_are_listed(self, store: Store, alice: Transaction, other_tenant: Transaction) -> None:
        """Every tenant's id."""
        for tx in (alice, other_tenant):
            assert tx.scope.tenant_id not in await store.tenants()
            await tx.create_thread(NewThread())
            assert tx.scope.tenant_id in await store.tenants()

    async def test_a_tenant_with_a_turn_that_has_not_ended_is_busy(
        self, store: Store, alice: Transaction, other_tenant: Transaction
    ) -> None:
        """The tenants with a turn that has not ended, a platform's message whose turn may need an answer, or a delivery
        that is not settled; others, too, where finding out would take longer than looking."""
        await create_thread_with(alice, "a")
        thread = await create_thread_with(other_tenant, "b")
        # A store that cannot tell names every tenant.
        idle = set(await store.busy_tenants()) & {alice.scope.tenant_id, other_tenant.scope.tenant_id}
        turn = await add_turn(other_tenant, "turn-1", thread.id, "web")
        assert set(await store.busy_tenants()) >= {*idle, other_tenant.scope.tenant_id}
        assert (alice.scope.tenant_id in await store.busy_tenants()) is (alice.scope.tenant_id in idle)
        await other_tenant.finish_turn(turn.id, turn.fence, TurnEnd("stopped"))
        assert (other_tenant.scope.tenant_id in await store.busy_tenants()) is (other_tenant.scope.tenant_id in idle)

    async def test_a_tenant_with_an_unanswered_message_or_an_unsettled_delivery_is_busy(
        self, store: Store, system: Transaction, clock: ManualClock
    ) -> None:
        tenant_id = system.scope.tenant_id
        await system.claim_inbox("slack", "Ev1", owner_id="alice")
        at_rest = tenant_id in await store.busy_tenants()
        await system.settle_inbox("slack", "Ev1", status="accepted", turn_id="turn-1")
        assert tenant_id in await store.busy_tenants()
        await system.settle_inbox("slack", "Ev1", status="done")
        assert (tenant_id in await store.busy_tenants()) is at_rest
        await system.enqueue("slack", "C1", clean_text("x"), turn_id=None, owner_id="alice", id="o1")
        assert tenant_id in await store.busy_tenants()
        await system.claim_outbox("w1", until=clock.after(30))
        assert tenant_id in await store.busy_tenants()
        await system.settle_outbox("o1", "w1", status="sent")
        assert (tenant_id in await store.busy_tenants()) is at_rest

    async def test_a_store_at_rest_is_not_busy(self, store: Store, alice: Transaction) -> None:
        """The current use of the connection pool."""
        await alice.create_thread(NewThread())
        load = store.pool_stats()
        assert load.open >= 1
        assert (load.in_use, load.waiting) == (0, 0)

    async def test_a_store_that_can_write_says_so(self, store: Store, alice: Transaction) -> None:
        """Returns if a write could begin now: the database answers, and no other transaction locks what a turn needs.
        Stores nothing."""
        before = await alice.row_counts()
        await store.check_writable()
        assert await alice.row_counts() == before

    async def test_a_closed_store_cannot_write(self, store: Store) -> None:
        """StoreBusy or another StoreFailed otherwise, after a bounded wait."""
        await store.close()
        with pytest.raises(StoreFailed):
            await asyncio.wait_for(store.check_writable(), 60)

    async def test_statistics_count_rows(self, store: Store, alice: Transaction) -> None:
        """Rows per table, bytes on disk and schema version."""
        before = await store.statistics()
        await create_thread_with(alice, "a", "b")
        after = await store.statistics()
        tables = (await alice.row_counts()).keys()
        assert tables <= after.keys()
        assert (after["messages"] - before["messages"], after["threads"] - before["threads"]) == (2, 1)
        assert len(after.keys() - tables) >= 2

    async def test_the_index_can_be_brought_up_to_date(self, store: Store, alice: Transaction) -> None:
        """Brings the search index up to date; returns how many messages it indexed. A search does this as needed."""
        await create_thread_with(alice, "a zebra", "b")
        assert await store.index_pending() >= 0
        assert await store.index_pending() == 0
        assert len(await alice.search("zebra")) == 1

    async def test_a_sound_store_has_no_findings(self, store: Store, alice: Transaction) -> None:
        """Checks integrity, schema and row security. Empty means healthy."""
        thread = await create_thread_with(alice, "a", "b")
        await alice.branch(thread.id, NewThread(), at=0)
        await alice.undo(thread.id)
        assert await store.check() == []

    async def test_closing_waits_for_what_was_accepted(self, store: Store, alice: Transaction) -> None:
        """Waits for accepted work to finish. Safe to call twice."""
        thread = await alice.create_thread(NewThread())
        appends = [asyncio.create_task(alice.append(thread.id, exchange(f"m{n}"))) for n in range(8)]
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        answers = await asyncio.gather(*appends)
        assert sorted(answer.message_count for answer in answers) == list(range(1, 9))
