"""Turns that one process accepts or gives up, and another one claims."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from threadline.core.threads import NewThread
from threadline.core.turns import Lease, TurnEnd
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.arrivals import arrival, take_in
from threadline.testing.conformance.message_builders import create_thread_with
from threadline.testing.conformance.turn_commits import accept_and_lease, accept_new, finish

FOR_ANYONE = Lease(None, 0.0)


async def claim(tx: Transaction, worker: str = "w1", *, within: float = 300, **given: Any) -> list[Any]:
    """Id, status and fence of each claimed turn."""
    claimed = await tx.claim_turns(worker, seconds=30, within_seconds=within, **given)
    return [(turn.id, turn.status, turn.fence) for turn in claimed]


class TestHandingOver:
    async def test_a_turn_is_accepted_for_any_process(
        self, alice: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """a lease without a worker hands it over (see `Turn.is_handed_over`)"""
        stored = await accept_new(alice, clock, lease=FOR_ANYONE)
        assert (stored.leased, stored.turn.status, stored.turn.is_handed_over) == (False, "accepted", True)
        assert stored.turn == await alice.turn("turn-1")
        (claimed,) = await system.claim_turns("w1", seconds=30, within_seconds=300)
        assert (claimed.status, claimed.fence, claimed.lease_owner) == ("running", 1, "w1")
        assert (claimed.owner_id, claimed.lease_until) == ("alice", clock.after(30))
        assert claimed == await alice.turn("turn-1")
        assert await claim(system) == []

    async def test_a_released_turn_is_claimed_with_the_next_fence(
        self, alice: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        thread = await create_thread_with(alice)
        turn = await accept_and_lease(alice, clock, thread.id)
        assert await claim(system, "w2") == []
        assert await alice.release_lease(turn.id, turn.fence)
        assert await claim(system, "w2") == [("turn-1", "running", 2)]
        assert await alice.renew_lease("turn-1", 1, "w1", seconds=30) is False

    async def test_a_turn_behind_another_one_is_reserved(
        self, alice: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """A turn behind an active turn of its thread is reserved and stays `accepted`."""
        thread = await create_thread_with(alice)
        for number in range(3):
            given: dict[str, Any] = {"thread_id": thread.id, "policy": "queue", "lease": FOR_ANYONE}
            await accept_new(alice, clock, f"turn-{number}", **given)
        assert await claim(system, limit=2) == [("turn-0", "running", 1), ("turn-1", "accepted", 0)]
        assert await claim(system, "w2") == [("turn-2", "accepted", 0)]
        turn = await alice.turn("turn-0")
        assert turn is not None
        await finish(alice, turn)
        assert await alice.lease_turn("turn-2", "w2", seconds=30) is None
        leased = await alice.lease_turn("turn-1", "w1", seconds=30)
        assert leased is not None
        assert leased.fence == 1

    async def test_old_turns_are_left_alone_except_those_of_platforms(
        self, alice: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """Turns that have waited longer than `within_seconds` are left alone, unless they are of a messaging
        surface."""
        await accept_new(alice, clock, "web", lease=FOR_ANYONE, new_thread=NewThread())
        clock.advance(10)
        assert await claim(system, within=9) == []
        assert await claim(system, within=11) == [("web", "running", 1)]
        await take_in(alice, msgspec.structs.replace(arrival(), lease=FOR_ANYONE))
        clock.advance(10)
        assert await claim(system, within=9) == [("turn-Ev1", "running", 1)]

    async def test_of_many_that_claim_at_the_same_time_each_gets_others(
        self, alice: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """Leases up to `limit` turns that were handed over, in order of acceptance, each for one caller only."""
        for number in range(12):
            await accept_new(alice, clock, f"turn-{number:02}", lease=FOR_ANYONE, new_thread=NewThread())
        claimed = await asyncio.gather(*(claim(system, f"w{number}", limit=3) for number in range(8)))
        assert sorted(turn_id for turns in claimed for turn_id, _, _ in turns) == [f"turn-{n:02}" for n in range(12)]

    async def test_an_interrupted_turn_is_continued_by_any_process(
        self, alice: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        given: dict[str, Any] = {"key": "key-1", "request_hash": b"1", "new_thread": NewThread(state_key="lisbon")}
        first = await accept_new(alice, clock, **given)
        await finish(alice, first.turn, reply=None, end=TurnEnd("interrupted", "gone"))
        again = await accept_new(alice, clock, "turn-9", **given, lease=FOR_ANYONE)
        assert (again.replayed, again.leased, again.turn.is_handed_over) == (True, False, True)
        assert await claim(system) == [("turn-1", "running", 3)]

    async def test_other_tenants_and_users_are_left_alone(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction, clock: ManualClock
    ) -> None:
        """The system scope claims the tenant's, a user their own."""
        await accept_new(alice, clock, lease=FOR_ANYONE)
        assert await claim(bob) == await claim(other_tenant) == []
        assert await claim(alice) == [("turn-1", "running", 1)]

    async def test_announced_work_wakes_who_watches_for_it(self, store: Store, alice: Transaction) -> None:
        """After the commit of a turn that was handed over, or of a delivery that another process sends: wakes the
        processes that watch for work. Watches for work in all tenants."""
        async with asyncio.timeout(30), store.watch_work() as watch:
            waiting = asyncio.create_task(watch.wait(60))
            await asyncio.sleep(0)
            store.announce_work(alice.scope.tenant_id)
            tenants = await waiting
            assert tenants is None or alice.scope.tenant_id in tenants
