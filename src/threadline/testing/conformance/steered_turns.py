"""Requests that steer: which turn may take them in, and how they end with it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from threadline.core.turns import TurnEnd, TurnStatus
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.arrivals import arrival, take_in
from threadline.testing.conformance.message_builders import assistant_message, create_thread_with, history
from threadline.testing.conformance.turn_commits import accept_and_lease, accept_new, finish


async def steer(tx: Transaction, clock: ManualClock, thread_id: str, turn_id: str = "late", **given: Any) -> None:
    stored = await accept_new(tx, clock, turn_id, thread_id=thread_id, policy="steer", **given)
    assert stored.turn == await tx.turn(turn_id)


@pytest.mark.req("A-06")
class TestSteering:
    async def test_a_request_records_the_turn_it_may_be_taken_into(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        """On `steer` the turn records the first active turn as the one it may be taken into (`Turn.steers`),
        unless it replaces a message."""
        thread = await create_thread_with(alice)
        await steer(alice, clock, thread.id, "first")
        await steer(alice, clock, thread.id, "second", lease=None)
        await steer(alice, clock, thread.id, "third")
        await accept_new(alice, clock, "queued", thread_id=thread.id, policy="queue")
        found = {turn.id: (turn.status, turn.steers) for turn in await alice.active_turns(thread.id)}
        assert found == {
            "first": ("running", None),
            "second": ("accepted", "first"),
            "third": ("accepted", "first"),
            "queued": ("accepted", None),
        }

    async def test_a_request_that_replaces_a_message_steers_nothing(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        thread = await create_thread_with(alice, "Far?", "No.")
        await accept_and_lease(alice, clock, thread.id)
        asked = (await alice.messages(thread.id))[0]
        await steer(alice, clock, thread.id, replaces=asked.id)
        turn = await alice.turn("late")
        assert turn is not None
        assert turn.steers is None

    @pytest.mark.parametrize("status", ["executed", "stopped"])
    async def test_turns_that_were_taken_in_end_with_the_one_that_took_them(
        self, alice: Transaction, clock: ManualClock, status: TurnStatus
    ) -> None:
        """The turns that `end.taken` names and that steer this one end with it, if they wait or were interrupted
        without a reply: with its status and the seq of its reply, `seen` naming it, their arrivals settled."""
        thread = await create_thread_with(alice)
        asked = await accept_and_lease(alice, clock, thread.id)
        for turn_id in ("late", "left"):
            await steer(alice, clock, thread.id, turn_id)
        await accept_new(alice, clock, "queued", thread_id=thread.id, policy="queue")
        clock.advance()
        ended = await finish(alice, asked, end=TurnEnd(status, taken=("late", "queued", "unknown")))
        late, left, queued = [await alice.turn(turn_id) for turn_id in ("late", "left", "queued")]
        assert late is not None
        assert left is not None
        assert queued is not None
        assert (late.status, late.taken_by, late.reply_seq, late.fence) == (status, "turn-1", 4, 0)
        assert late.finished_at == clock.now() == getattr(ended, "finished_at", None)
        assert [turn.status for turn in (left, queued)] == ["accepted", "accepted"]
        assert len(await history(alice, thread.id)) == 5
        assert await alice.lease_turn("late", "w2", seconds=30) is None
        assert await alice.lease_turn("left", "w2", seconds=30) is not None

    async def test_a_turn_that_was_not_taken_in_runs_as_its_own(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await create_thread_with(alice)
        asked = await accept_and_lease(alice, clock, thread.id)
        await steer(alice, clock, thread.id)
        await finish(alice, asked, end=TurnEnd("dispatch_failed", "no"), reply=None)
        leased = await alice.lease_turn("late", "w2", seconds=30)
        assert leased is not None
        ended = await finish(alice, leased, reply=assistant_message("Late."))
        assert (getattr(ended, "status", None), getattr(ended, "taken_by", "")) == ("executed", None)

    async def test_a_continued_turn_answers_what_it_took_in_before_it_was_interrupted(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        thread = await create_thread_with(alice)
        given: dict[str, Any] = {"thread_id": thread.id, "key": "key-1", "request_hash": b"1"}
        asked = await accept_new(alice, clock, **given)
        await steer(alice, clock, thread.id, lease=None)
        await finish(alice, asked.turn, end=TurnEnd("interrupted"), reply=assistant_message("Half"))
        leased = await alice.lease_turn("late", "w1", seconds=30)
        assert leased is not None
        await finish(alice, leased, end=TurnEnd("interrupted"), reply=None)
        again = await accept_new(alice, clock, "turn-9", **given)
        assert again.leased
        await finish(alice, again.turn, end=TurnEnd("executed", taken=("late",)))
        late = await alice.turn("late")
        assert late is not None
        assert (late.status, late.taken_by, late.reply_seq) == ("executed", "turn-1", 2)

    async def test_the_arrival_of_a_message_that_was_taken_in_is_settled(self, alice: Transaction) -> None:
        """their arrivals settled"""
        asked = await take_in(alice, arrival("Ev1"))
        leased = await alice.lease_turn(asked.id, "w1", seconds=30)
        assert leased is not None
        late = await take_in(alice, msgspec.structs.replace(arrival("Ev2"), turn_id="late", policy="steer"))
        assert late.steers == asked.id
        await finish(alice, leased, end=TurnEnd("executed", taken=("late",)))
        claimed = await alice.inbox_row("slack", "Ev2")
        assert claimed is not None
        assert (claimed.status, claimed.decision, claimed.turn_id) == ("done", "executed", "late")
