"""Turns: accepted, leased by one worker at a time, fenced, ended once, answered in order."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest

from threadline.core.errors import DuplicateId, InvalidInput, KeyReused, NotFound
from threadline.core.threads import NewThread
from threadline.core.turn_commits import FinishRefusal
from threadline.core.turns import ACTIVE, TRANSITIONS, NewTurn, Turn, TurnEnd, TurnStatus
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock

ENDS: tuple[TurnStatus, ...] = tuple(status for status in get_args(TurnStatus) if status not in ACTIVE)


def ids(turns: list[Turn]) -> list[str]:
    return [turn.id for turn in turns]


async def accepted(tx: Transaction, *turn_ids: str) -> str:
    """A thread with these turns accepted; its id."""
    thread = await tx.create_thread(NewThread())
    for turn_id in turn_ids:
        await tx.create_turn(NewTurn(turn_id, thread.id, "web"))
    return thread.id


async def leased(tx: Transaction, clock: ManualClock, turn_id: str, worker: str = "w1") -> Turn:
    turn = await tx.lease_turn(turn_id, worker, until=clock.after(30))
    assert turn is not None
    return turn


class TestCreatingTurns:
    async def test_a_turn_is_stored_as_given(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await alice.create_thread(NewThread())
        new = NewTurn("turn-1", thread.id, "slack", "helper", "accepted", "key-1", b"\x00\xff", 3)
        turn = await alice.create_turn(new)
        assert {f: getattr(turn, f) for f in new.__struct_fields__} == {
            f: getattr(new, f) for f in new.__struct_fields__
        }
        assert (turn.owner_id, turn.fence, turn.usage, turn.seen) == ("alice", 0, {}, {})
        assert (turn.reply_seq, turn.error, turn.lease_owner, turn.lease_until, turn.finished_at) == (None,) * 5
        assert turn.created_at == clock.now()
        assert await alice.turn("turn-1") == turn
        assert await alice.turn("nowhere") is None

    async def test_a_turn_id_is_unique(self, alice: Transaction) -> None:
        """DuplicateId if the id exists"""
        thread_id = await accepted(alice, "turn-1")
        with pytest.raises(DuplicateId):
            await alice.create_turn(NewTurn("turn-1", thread_id, "web"))

    async def test_an_owner_has_one_turn_per_key(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        """KeyReused if this owner has a turn under the key (look it up first). This owner's turn under an idempotency
        key."""
        for index, tx in enumerate((alice, bob, other_tenant)):
            thread_id = await accepted(tx)
            assert await tx.turn_by_key("key-1") is None
            turn = await tx.create_turn(NewTurn(f"turn-{index}", thread_id, "web", idempotency_key="key-1"))
            assert await tx.turn_by_key("key-1") == turn
            with pytest.raises(KeyReused, match="key-1"):
                await tx.create_turn(NewTurn("another", thread_id, "web", idempotency_key="key-1"))
            assert ids(await tx.turns(thread_id)) == [turn.id]

    async def test_a_turn_needs_a_thread(self, alice: Transaction) -> None:
        """NotFound for an unknown thread."""
        with pytest.raises(NotFound, match="nowhere"):
            await alice.create_turn(NewTurn("turn-1", "nowhere", "web"))
        assert await alice.turn("turn-1") is None

    @pytest.mark.parametrize("status", ["denied_rbac", "denied_no_agent", "denied_sentinel"])
    async def test_a_denied_turn_has_ended(self, alice: Transaction, clock: ManualClock, status: TurnStatus) -> None:
        thread_id = await accepted(alice)
        turn = await alice.create_turn(NewTurn("turn-1", thread_id, "slack", status=status))
        assert (turn.status, turn.finished_at) == (status, clock.now())
        assert await alice.active_turns(thread_id) == await alice.due_turns() == []
        assert await alice.lease_turn("turn-1", "w1", until=clock.after(30)) is None

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
        for new in (NewTurn("a", both, "web"), NewTurn("b", both, "slack"), NewTurn("c", both, "web")):
            await alice.create_turn(new)
        await alice.create_turn(NewTurn("d", one, "cli"))
        asked = [both, one, none, "unknown"]
        assert await alice.surfaces(asked) == {both: ("slack", "web"), one: ("cli",)}
        assert await alice.surfaces([]) == await bob.surfaces(asked) == {}
        for number in range(50):
            await alice.create_turn(NewTurn(f"more-{number}", one, "api"))
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
        tries = [alice.lease_turn("turn-1", f"w{n}", until=clock.after(30)) for n in range(20)]
        assert sum(turn is not None for turn in await asyncio.gather(*tries)) == 1
        assert await alice.lease_turn("nowhere", "w1", until=clock.after(30)) is None

    async def test_an_expired_lease_is_taken_over(self, alice: Transaction, clock: ManualClock) -> None:
        """or a running one whose lease has expired"""
        await accepted(alice, "turn-1")
        await leased(alice, clock, "turn-1")
        clock.advance(29)
        assert await alice.lease_turn("turn-1", "w2", until=clock.after(30)) is None
        clock.advance(1)
        taken = await leased(alice, clock, "turn-1", "w2")
        assert (taken.fence, taken.lease_owner, taken.lease_until) == (2, "w2", clock.after(30))

    async def test_a_renewed_lease_lasts(self, alice: Transaction, clock: ManualClock) -> None:
        """False if the fence is old or the turn has ended: the holder must stop."""
        await accepted(alice, "turn-1")
        turn = await leased(alice, clock, "turn-1")
        clock.advance(29)
        assert await alice.renew_lease("turn-1", turn.fence, until=clock.after(30)) is True
        clock.advance(29)
        assert await alice.lease_turn("turn-1", "w2", until=clock.after(30)) is None
        clock.advance(1)
        taken = await leased(alice, clock, "turn-1", "w2")
        assert await alice.renew_lease("turn-1", turn.fence, until=clock.after(30)) is False
        await alice.finish_turn("turn-1", taken.fence, TurnEnd("executed"))
        assert await alice.renew_lease("turn-1", taken.fence, until=clock.after(30)) is False
        assert await alice.renew_lease("nowhere", 1, until=clock.after(30)) is False

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
        assert await alice.due_turns() == [given_up]
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
        assert await alice.lease_turn("second", "w2", until=clock.after(30)) is None

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
        assert await alice.lease_turn("second", "w1", until=clock.after(30)) is None
        first = await leased(alice, clock, "first")
        assert await alice.lease_turn("second", "w1", until=clock.after(30)) is None
        clock.advance(30)
        assert await alice.lease_turn("second", "w1", until=clock.after(30)) is None
        await leased(alice, clock, "elsewhere")
        await alice.finish_turn("first", first.fence, TurnEnd("dispatch_failed"))
        await leased(alice, clock, "second")

    async def test_due_turns_are_those_that_no_process_runs(
        self, alice: Transaction, bob: Transaction, system: Transaction, other_tenant: Transaction, clock: ManualClock
    ) -> None:
        """Accepted turns, and running ones whose lease has expired, in order of acceptance. The system scope sees the
        tenant's, a user their own."""
        await accepted(alice, "b1", "b2")
        await accepted(bob, "a1")
        await accepted(other_tenant, "far")
        await leased(alice, clock, "b1")
        assert ids(await system.due_turns()) == ["b2", "a1"]
        assert ids(await alice.due_turns()) == ["b2"]
        clock.advance(30)
        assert ids(await system.due_turns()) == ["b1", "b2", "a1"]
        assert ids(await system.due_turns(limit=2)) == ["b1", "b2"]
        assert ids(await bob.due_turns()) == ["a1"]


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
        assert await alice.lease_turn("turn-1", "w2", until=clock.after(30)) is None
        assert await alice.request_stop("turn-1") is False
        assert await alice.due_turns() == await alice.active_turns(thread_id) == []
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
        assert await alice.lease_turn("turn-1", "w1", until=clock.after(30)) is None

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
