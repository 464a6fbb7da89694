"""Turns: accepted, leased by one worker at a time, fenced, ended once, answered in order."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest

from threadline.core.errors import InvalidInput
from threadline.core.threads import NewThread
from threadline.core.turn_commits import FinishRefusal
from threadline.core.turns import ACTIVE, TRANSITIONS, Surface, Turn, TurnEnd, TurnStatus
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn

SURFACES_ASKED: tuple[tuple[str, Surface], ...] = (("a", "web"), ("b", "slack"), ("c", "web"))
ENDS: tuple[TurnStatus, ...] = tuple(status for status in get_args(TurnStatus) if status not in ACTIVE)


def ids(turns: list[Turn]) -> list[str]:
    return [turn.id for turn in turns]


async def accepted(tx: Transaction, *turn_ids: str) -> str:
    """A thread with these turns accepted; its id."""
    thread = await tx.create_thread(NewThread())
    for turn_id in turn_ids:
        await add_turn(tx, turn_id, thread.id, "web")
    return thread.id


async def leased(tx: Transaction, clock: ManualClock, turn_id: str, worker: str = "w1") -> Turn:
    turn = await tx.lease_turn(turn_id, worker, seconds=30)
    assert turn is not None
    return turn


class TestListingTurns:
    async def test_an_owner_has_one_turn_per_key(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        """This owner's turn under an idempotency key."""
        for index, tx in enumerate((alice, bob, other_tenant)):
            thread_id = await accepted(tx)
            assert await tx.turn_by_key("key-1") is None
            turn = await add_turn(tx, f"turn-{index}", thread_id, key="key-1")
            assert await tx.turn_by_key("key-1") == turn
            assert await tx.turn("nowhere") is None

    @pytest.mark.parametrize("status", ["denied_rbac", "denied_no_agent", "denied_sentinel"])
    async def test_a_denied_turn_has_ended(self, alice: Transaction, clock: ManualClock, status: TurnStatus) -> None:
        thread_id = await accepted(alice)
        turn = await add_turn(alice, "turn-1", thread_id, "slack", status=status)
        assert (turn.status, turn.finished_at) == (status, clock.now())
        assert await alice.active_turns(thread_id) == await alice.due_turns(lease_seconds=30) == []
        assert await alice.lease_turn("turn-1", "w1", seconds=30) is None

    async def test_turns_are_listed_in_order_of_acceptance(self, alice: Transaction, clock: ManualClock) -> None:
        """The accepted and running turns of the thread, in order of acceptance. Newest first."""
        thread_id = await accepted(alice, "c", "a", "b")
        assert ids(await alice.active_turns(thread_id)) == ["c", "a", "b"]
        assert ids(await alice.turns(thread_id)) == ["b", "a", "c"]
        assert ids(await alice.turns(thread_id, limit=2)) == ["b", "a"]
        running = await leased(alice, clock, "c")
        assert ids(await alice.active_turns(thread_id)) == ["c", "a", "b"]
        await alice.finish_turn("c", running.fence, TurnEnd("executed"))
        assert ids(await alice.active_turns(thread_id)) == ["a", "b"]
        assert ids(await alice.turns(thread_id)) == ["b", "a", "c"]

    async def test_the_surfaces_of_several_threads_are_read_together(
        self, alice: Transaction, bob: Transaction
    ) -> None:
        """The surfaces of the newest 50 turns of each of these threads, sorted by name, by thread id. Threads that have
        no turn or do not exist are left out."""
        both, one, none = [await accepted(alice) for _ in range(3)]
        for turn_id, surface in SURFACES_ASKED:
            await add_turn(alice, turn_id, both, surface)
        await add_turn(alice, "d", one, "cli")
        asked = [both, one, none, "unknown"]
        assert await alice.surfaces(asked) == {both: ("slack", "web"), one: ("cli",)}
        assert await alice.surfaces([]) == await bob.surfaces(asked) == {}
        for number in range(50):
            await add_turn(alice, f"more-{number}", one, "api")
        assert await alice.surfaces([one]) == {one: ("api",)}
        await alice.delete_thread(one)
        assert await alice.surfaces([one]) == {}


class TestLeasing:
    async def test_a_lease_makes_a_turn_run(self, alice: Transaction, clock: ManualClock) -> None:
        """Leases an accepted turn, or a running one whose lease has expired, if no earlier turn of its thread is
        active: status `running`, the fence one higher."""
        await accepted(alice, "turn-1")
        turn = await leased(alice, clock, "turn-1")
        assert (turn.status, turn.fence, turn.lease_owner) == ("running", 1, "w1")
        assert turn.lease_until == clock.after(30)
        assert await alice.turn("turn-1") == turn

    async def test_of_many_workers_one_gets_the_turn(self, alice: Transaction, clock: ManualClock) -> None:
        """None if it cannot be leased now."""
        await accepted(alice, "turn-1")
        tries = [alice.lease_turn("turn-1", f"w{n}", seconds=30) for n in range(20)]
        assert sum(turn is not None for turn in await asyncio.gather(*tries)) == 1
        assert await alice.lease_turn("nowhere", "w1", seconds=30) is None

    async def test_an_expired_lease_is_taken_over(self, alice: Transaction, clock: ManualClock) -> None:
        """or a running one whose lease has expired"""
        await accepted(alice, "turn-1")
        await leased(alice, clock, "turn-1")
        clock.advance(29)
        assert await alice.lease_turn("turn-1", "w2", seconds=30) is None
        clock.advance(1)
        taken = await leased(alice, clock, "turn-1", "w2")
        assert (taken.fence, taken.lease_owner, taken.lease_until) == (2, "w2", clock.after(30))

    async def test_a_renewed_lease_lasts(self, alice: Transaction, clock: ManualClock) -> None:
        """False if the fence is old or the turn has ended: the holder must stop."""
        await accepted(alice, "turn-1")
        turn = await leased(alice, clock, "turn-1")
        clock.advance(29)
        assert await alice.renew_lease("turn-1", turn.fence, "w1", seconds=30) is True
        clock.advance(29)
        assert await alice.lease_turn("turn-1", "w2", seconds=30) is None
        clock.advance(1)
        taken = await leased(alice, clock, "turn-1", "w2")
        assert await alice.renew_lease("turn-1", turn.fence, "w1", seconds=30) is False
        await alice.finish_turn("turn-1", taken.fence, TurnEnd("executed"))
        assert await alice.renew_lease("turn-1", taken.fence, "w1", seconds=30) is False
        assert await alice.renew_lease("nowhere", 1, "w1", seconds=30) is False

    async def test_a_released_lease_can_be_taken_by_any_worker(self, alice: Transaction, clock: ManualClock) -> None:
        """Releases an active turn for another process: its lease ends now and has no owner (see
        `Turn.is_handed_over`)."""
        thread_id = await accepted(alice, "turn-1")
        turn = await leased(alice, clock, "turn-1")
        assert turn.is_handed_over is False
        clock.advance(5)
        assert await alice.release_lease("turn-1", turn.fence) is True
        (given_up,) = await alice.active_turns(thread_id)
        assert given_up.is_handed_over is True
        assert (given_up.status, given_up.fence, given_up.lease_owner) == ("running", turn.fence, None)
        assert given_up.lease_until == clock.now()
        assert await alice.due_turns(lease_seconds=30) == [given_up]
        taken = await leased(alice, clock, "turn-1", "w2")
        assert (taken.fence, taken.lease_owner, taken.is_handed_over) == (turn.fence + 1, "w2", False)

    async def test_an_accepted_turn_can_be_released(self, alice: Transaction, clock: ManualClock) -> None:
        """Releases an active turn for another process"""
        await accepted(alice, "first", "second")
        await leased(alice, clock, "first")
        waiting = await alice.turn("second")
        assert waiting is not None
        assert waiting.is_handed_over is False
        assert await alice.release_lease("second", waiting.fence) is True
        given_up = await alice.turn("second")
        assert given_up is not None
        assert (given_up.status, given_up.lease_until, given_up.is_handed_over) == ("accepted", clock.now(), True)
        assert await alice.lease_turn("second", "w2", seconds=30) is None

    async def test_only_the_holder_releases_a_lease(self, alice: Transaction, clock: ManualClock) -> None:
        """False if the fence is old or the turn has ended."""
        await accepted(alice, "turn-1")
        old = await leased(alice, clock, "turn-1")
        clock.advance(30)
        taken = await leased(alice, clock, "turn-1", "w2")
        assert await alice.release_lease("turn-1", old.fence) is False
        assert await alice.turn("turn-1") == taken
        ended = await alice.finish_turn("turn-1", taken.fence, TurnEnd("executed"))
        assert await alice.release_lease("turn-1", taken.fence) is False
        assert await alice.turn("turn-1") == ended
        assert await alice.release_lease("nowhere", 1) is False

    async def test_watchers_wake_when_a_lease_is_released(
        self, store: Store, alice: Transaction, clock: ManualClock
    ) -> None:
        """Returns when the watched subject may have changed"""
        await accepted(alice, "turn-1")
        turn = await leased(alice, clock, "turn-1")
        async with store.watch(alice.scope, "turn-1") as watch, asyncio.timeout(30):
            waiting = asyncio.create_task(watch.wait(60))
            # Lets the watch begin before the change it must notice.
            await asyncio.sleep(0)
            await alice.release_lease("turn-1", turn.fence)
            await waiting

    async def test_the_turns_of_a_thread_run_in_order(self, alice: Transaction, clock: ManualClock) -> None:
        """if no earlier turn of its thread is active"""
        await accepted(alice, "first", "second")
        await accepted(alice, "elsewhere")
        assert await alice.lease_turn("second", "w1", seconds=30) is None
        first = await leased(alice, clock, "first")
        assert await alice.lease_turn("second", "w1", seconds=30) is None
        clock.advance(30)
        assert await alice.lease_turn("second", "w1", seconds=30) is None
        await leased(alice, clock, "elsewhere")
        await alice.finish_turn("first", first.fence, TurnEnd("dispatch_failed"))
        await leased(alice, clock, "second")

    async def test_due_turns_are_those_that_no_process_runs(
        self, alice: Transaction, bob: Transaction, system: Transaction, other_tenant: Transaction, clock: ManualClock
    ) -> None:
        """Active turns whose lease or reservation has expired, that have none, or whose lease ends more than twice
        `lease_seconds` from now, which no clock in order can have written; in order of acceptance. The system scope
        sees the tenant's, a user their own."""
        await accepted(alice, "b1", "b2")
        await accepted(bob, "a1")
        await accepted(other_tenant, "far")
        await leased(alice, clock, "b1")
        assert ids(await system.due_turns(lease_seconds=30)) == ["b2", "a1"]
        assert ids(await alice.due_turns(lease_seconds=30)) == ["b2"]
        clock.advance(30)
        assert ids(await system.due_turns(lease_seconds=30)) == ["b1", "b2", "a1"]
        assert ids(await system.due_turns(lease_seconds=30, limit=2)) == ["b1", "b2"]
        assert ids(await bob.due_turns(lease_seconds=30)) == ["a1"]

    async def test_a_lease_far_ahead_is_due(self, alice: Transaction, clock: ManualClock) -> None:
        """whose lease ends more than twice `lease_seconds` from now, which no clock in order can have written"""
        await accepted(alice, "turn-1")
        assert await alice.lease_turn("turn-1", "w1", seconds=3600) is not None
        assert await alice.due_turns(lease_seconds=1800) == []
        assert ids(await alice.due_turns(lease_seconds=1799)) == ["turn-1"]

    async def test_a_waiting_process_reserves_a_turn(self, alice: Transaction, clock: ManualClock) -> None:
        """Renews the lease of a running turn, or reserves an accepted one for the process that waits to run it."""
        await accepted(alice, "first", "second")
        await leased(alice, clock, "first")
        assert await alice.renew_lease("second", 0, "w2", seconds=30) is True
        waiting = await alice.turn("second")
        assert waiting is not None
        assert (waiting.status, waiting.fence, waiting.lease_owner) == ("accepted", 0, "w2")
        assert waiting.lease_until == clock.after(30)
        assert waiting.is_handed_over is False
        assert await alice.due_turns(lease_seconds=30) == []
        clock.advance(30)
        assert ids(await alice.due_turns(lease_seconds=30)) == ["first", "second"]

    async def test_the_leases_of_an_ended_process_expire_at_once(
        self, alice: Transaction, bob: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """Ends the leases and reservations of a process that has ended, or of one turn of it; its name stays. Returns
        how many. The processes that hold leases or reservations of active turns, sorted. The system scope sees the
        tenant's, a user those of their own turns."""
        for turn_id in ("a1", "a2", "a3"):
            await accepted(alice, turn_id)
            await leased(alice, clock, turn_id, "w2" if turn_id == "a3" else "w1")
        await accepted(bob, "b1", "b2")
        await leased(bob, clock, "b1", "w1")
        await bob.renew_lease("b2", 0, "w3", seconds=30)
        assert await alice.lease_workers() == ["w1", "w2"]
        assert await bob.lease_workers() == ["w1", "w3"]
        assert await system.lease_workers() == ["w1", "w2", "w3"]
        assert await alice.expire_leases("w1", turn_id="a2") == 1
        assert ids(await system.due_turns(lease_seconds=30)) == ["a2"]
        assert await system.expire_leases("w1") == 2
        assert await system.expire_leases("w1") == 0
        due = await system.due_turns(lease_seconds=30)
        assert [(turn.id, turn.lease_owner, turn.is_handed_over) for turn in due] == [
            ("a1", "w1", False), ("a2", "w1", False), ("b1", "w1", False),
        ]  # fmt: skip
        taken = await leased(alice, clock, "a1", "w2")
        assert (taken.fence, taken.lease_owner) == (2, "w2")
        assert await alice.expire_leases("w1") == 0

    async def test_leases_expire_by_the_time_of_the_store(self, alice: Transaction, clock: ManualClock) -> None:
        """The time by which leases expire. On PostgreSQL it is the server's: the clocks of processes on several
        machines differ."""
        await accepted(alice, "turn-1")
        turn = await leased(alice, clock, "turn-1")
        assert turn.lease_until is not None
        assert (turn.lease_until - await alice.lease_time()).total_seconds() == 30


class TestEnding:
    @pytest.mark.parametrize("status", sorted(TRANSITIONS["running"] - ACTIVE))
    async def test_an_end_is_final(self, alice: Transaction, clock: ManualClock, status: TurnStatus) -> None:
        """Ends a turn in one commit"""
        thread_id = await accepted(alice, "turn-1")
        fence = (await leased(alice, clock, "turn-1")).fence
        at = clock.advance()
        end = TurnEnd(status, "why", {"tokens": 2**40}, {"first": 0, "system": ["é"]})
        ended = await alice.finish_turn("turn-1", fence, end)
        assert isinstance(ended, Turn)
        assert (ended.status, ended.error, ended.usage, ended.seen) == (end.status, end.error, end.usage, end.seen)
        assert ended.finished_at == at
        assert await alice.turn("turn-1") == ended
        clock.advance(100)
        assert await alice.finish_turn("turn-1", fence, TurnEnd("executed")) == FinishRefusal("already_ended")
        assert await alice.lease_turn("turn-1", "w2", seconds=30) is None
        assert await alice.request_stop("turn-1") is False
        assert await alice.due_turns(lease_seconds=30) == await alice.active_turns(thread_id) == []
        assert await alice.turn("turn-1") == ended

    async def test_an_old_fence_ends_nothing(self, alice: Transaction, clock: ManualClock) -> None:
        """`lease_lost` if the fence is old, `already_ended`, `turn_missing`"""
        await accepted(alice, "turn-1")
        old = (await leased(alice, clock, "turn-1")).fence
        clock.advance(30)
        taken = await leased(alice, clock, "turn-1", "w2")
        assert await alice.finish_turn("turn-1", old, TurnEnd("executed")) == FinishRefusal("lease_lost")
        assert await alice.turn("turn-1") == taken
        assert await alice.finish_turn("nowhere", 1, TurnEnd("executed")) == FinishRefusal("turn_missing")

    @pytest.mark.parametrize("status", ["accepted", "running", *ENDS])
    async def test_an_accepted_turn_has_only_the_allowed_ends(self, alice: Transaction, status: TurnStatus) -> None:
        """InvalidInput if such an end cannot follow the turn's status (see TRANSITIONS)."""
        await accepted(alice, "turn-1")
        if status in TRANSITIONS["accepted"] - ACTIVE:
            ended = await alice.finish_turn("turn-1", 0, TurnEnd(status))
            assert isinstance(ended, Turn)
            assert ended.status == status
        else:
            with pytest.raises(InvalidInput):
                await alice.finish_turn("turn-1", 0, TurnEnd(status))
            turn = await alice.turn("turn-1")
            assert turn is not None
            assert (turn.status, turn.finished_at) == ("accepted", None)

    async def test_an_accepted_turn_stops_at_once(self, alice: Transaction, clock: ManualClock) -> None:
        """an accepted turn ends `stopped` at once."""
        await accepted(alice, "turn-1")
        assert await alice.request_stop("turn-1") is True
        turn = await alice.turn("turn-1")
        assert turn is not None
        assert (turn.status, turn.finished_at) == ("stopped", clock.now())
        assert await alice.lease_turn("turn-1", "w1", seconds=30) is None

    async def test_a_running_turn_is_asked_to_stop(self, alice: Transaction, clock: ManualClock) -> None:
        """Records a request to stop, for the process that runs the turn; False if the turn is not active."""
        await accepted(alice, "turn-1")
        running = await leased(alice, clock, "turn-1")
        assert await alice.is_stop_requested("turn-1") is False
        assert await alice.request_stop("turn-1") is True
        assert await alice.is_stop_requested("turn-1") is True
        turn = await alice.turn("turn-1")
        assert turn is not None
        assert (turn.status, turn.fence) == ("running", running.fence)
        assert await alice.finish_turn("turn-1", running.fence, TurnEnd("stopped"))
        assert await alice.request_stop("turn-1") is False
        assert await alice.request_stop("nowhere") is False
        assert await alice.is_stop_requested("nowhere") is False
