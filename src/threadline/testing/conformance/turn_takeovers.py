"""What a request may take over: a reply that waits, a turn of another process, and its own turn if interrupted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from threadline.core.turn_commits import Accepted, AcceptRefusal
from threadline.core.turns import Lease, Turn, TurnEnd
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.fixtures import LIMITS
from threadline.testing.conformance.message_builders import (
    assistant_message,
    create_thread_with,
    history,
    user_message,
)
from threadline.testing.conformance.turn_commits import accept, accept_new, finish


class TestReplacing:
    async def test_a_full_thread_takes_a_request_that_replaces_an_earlier_one(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        thread = await create_thread_with(alice, *["said"] * LIMITS.messages_per_thread)
        replaced = (await alice.last_turns(thread.id, 2))[0]
        stored = await accept_new(alice, clock, thread_id=thread.id, replaces=replaced.id)
        assert stored.turn.request_seq == replaced.seq

    async def test_room_is_kept_for_the_replies_of_active_turns(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await create_thread_with(alice, *["said"] * (LIMITS.messages_per_thread - 4))
        tried = [await accept(alice, clock, f"turn-{n}", thread_id=thread.id, policy="queue") for n in range(3)]
        assert [type(each) for each in tried] == [Accepted, Accepted, AcceptRefusal]

    async def test_a_reply_at_the_end_is_replaced(self, alice: Transaction, clock: ManualClock) -> None:
        """The message that this one replaces, of the same role"""
        thread = await create_thread_with(alice, "Pay?", "May I?")
        (_, asking) = await alice.messages(thread.id)
        answered = assistant_message("May I? Yes.", asking.id)
        stored = await accept_new(alice, clock, thread_id=thread.id, replaces=asking.id, message=answered)
        assert (stored.turn.request_seq, stored.thread.message_count) == (1, 2)
        assert await history(alice, thread.id) == ["Pay?", "May I? Yes."]
        assert (await alice.messages(thread.id))[1].turn_id == "turn-1"

    async def test_a_reply_with_later_messages_is_not_replaced(self, alice: Transaction, clock: ManualClock) -> None:
        """A reply can be replaced only while it is the thread's last message."""
        thread = await create_thread_with(alice, "Pay?", "May I?", "Never mind.")
        (_, asking, _) = await alice.messages(thread.id)
        given: dict[str, Any] = {"replaces": asking.id, "message": assistant_message("Yes.", asking.id)}
        refused = await accept(alice, clock, thread_id=thread.id, **given)
        assert isinstance(refused, AcceptRefusal)
        assert refused.reason == "replaced_not_last"
        assert await history(alice, thread.id) == ["Pay?", "May I?", "Never mind."]


class TestHolderChecks:
    async def test_a_turn_can_be_reserved_and_leased_later(self, alice: Transaction, clock: ManualClock) -> None:
        """Whether the lease reserves the turn and leaves it `accepted`, for a process that leases it later."""
        stored = await accept_new(alice, clock, is_only_reserved=True)
        assert (stored.leased, stored.turn.status, stored.turn.fence) == (False, "accepted", 0)
        assert (stored.turn.lease_owner, stored.turn.lease_until) == ("w1", clock.after(30))
        assert await alice.turn(stored.turn.id) == stored.turn
        assert await alice.due_turns(lease_seconds=30) == []
        assert await alice.lease_turn(stored.turn.id, "w1", seconds=30) is not None

    @pytest.mark.parametrize("policy", ["queue", "interrupt"])
    async def test_a_turn_of_another_process_is_checked_first(
        self, alice: Transaction, clock: ManualClock, policy: str
    ) -> None:
        """If a lease is given, the turn is leased when no other turn of the thread is active, and otherwise reserved
        for that process. Refuses with `turn_running`, whatever the policy, if the first active turn of the thread is
        another process's"""
        thread = await create_thread_with(alice, "a", "b")
        await accept_new(alice, clock, "turn-0", thread_id=thread.id)
        given: dict[str, Any] = {"thread_id": thread.id, "policy": policy, "lease": Lease("w2", 30)}
        refused = await accept(alice, clock, **given, must_check_holder=True)
        assert isinstance(refused, AcceptRefusal)
        assert (refused.reason, refused.turn_id) == ("turn_running", "turn-0")
        assert await alice.is_stop_requested("turn-0") is False
        stored = await accept_new(alice, clock, **given)
        assert (stored.leased, stored.turn.lease_owner, stored.turn.lease_until) == (False, "w2", clock.after(30))
        own = {**given, "lease": Lease("w1", 30), "must_check_holder": True}
        assert (await accept_new(alice, clock, "turn-2", **own)).turn.lease_owner == "w1"


class TestContinuingInterruptedTurns:
    async def interrupted(self, tx: Transaction, clock: ManualClock, *, with_reply: bool = True) -> Accepted:
        thread = await create_thread_with(tx, "a", "b")
        stored = await accept_new(tx, clock, thread_id=thread.id, key="key-1", request_hash=b"1")
        reply = assistant_message("Not f", "reply-1") if with_reply else None
        ended = await finish(tx, stored.turn, reply=reply, end=TurnEnd("interrupted", "gone"))
        assert isinstance(ended, Turn)
        return stored

    async def again(self, tx: Transaction, clock: ManualClock, first: Accepted, **given: Any) -> Any:
        repeated = {"thread_id": first.thread.id, "key": "key-1", "request_hash": b"1", "lease": Lease("w2", 30)}
        return await accept(tx, clock, "turn-9", **{**repeated, **given})

    @pytest.mark.parametrize("with_reply", [True, False])
    async def test_a_repeated_request_continues_the_turn(
        self, alice: Transaction, clock: ManualClock, with_reply: bool
    ) -> None:
        """If that turn was interrupted and a lease is given, it is leased to run again (`replayed` and `leased`); its
        partial reply, if the thread ends with it, is left behind on the old timeline."""
        first = await self.interrupted(alice, clock, with_reply=with_reply)
        clock.advance()
        stored = await self.again(alice, clock, first)
        assert isinstance(stored, Accepted)
        assert (stored.replayed, stored.leased, stored.thread.message_count) == (True, True, 3)
        turn = stored.turn
        assert (turn.id, turn.status, turn.fence, turn.lease_owner) == ("turn-1", "running", 2, "w2")
        assert (turn.error, turn.reply_seq, turn.finished_at, turn.lease_until) == (None, None, None, clock.after(30))
        assert await alice.turn("turn-1") == turn
        assert await history(alice, first.thread.id) == ["a", "b", "Is it far?"]
        assert (stored.thread.timeline_id == first.thread.timeline_id) is not with_reply
        ended = await finish(alice, turn, reply_id="reply-1")
        assert isinstance(ended, Turn)
        assert await history(alice, first.thread.id) == ["a", "b", "Is it far?", "Not far."]
        assert len(await alice.turns(first.thread.id)) == 1

    @pytest.mark.parametrize("with_reply", [True, False])
    async def test_later_messages_keep_the_turn_interrupted(
        self, alice: Transaction, clock: ManualClock, with_reply: bool
    ) -> None:
        """It stays interrupted if the request was undone or later messages follow, other than replies to earlier
        turns."""
        first = await self.interrupted(alice, clock, with_reply=with_reply)
        await alice.append(first.thread.id, [user_message("Never mind.")])
        stored = await self.again(alice, clock, first)
        assert (stored.replayed, stored.leased, stored.turn.status) == (True, False, "interrupted")

    @pytest.mark.req("A-06")
    async def test_a_queued_request_is_continued_behind_the_reply_to_an_earlier_one(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        thread = await create_thread_with(alice)
        earlier = await accept_new(alice, clock, "turn-0", thread_id=thread.id)
        first = await accept_new(
            alice, clock, thread_id=thread.id, key="key-1", request_hash=b"1", policy="queue", lease=None
        )
        await finish(alice, earlier.turn, reply=assistant_message("Half"), end=TurnEnd("interrupted", "gone"))
        leased = await alice.lease_turn("turn-1", "w1", seconds=30)
        assert leased is not None
        await finish(alice, leased, reply=None, end=TurnEnd("interrupted", "gone"))
        stored = await self.again(alice, clock, first)
        assert (stored.replayed, stored.leased, stored.turn.status) == (True, True, "running")
        await finish(alice, stored.turn)
        assert await history(alice, thread.id) == ["Is it far?", "Is it far?", "Half", "Not far."]

    @pytest.mark.parametrize("why", ["undone", "deleted", "no lease", "stopped"])
    async def test_other_turns_stay_as_they_ended(self, alice: Transaction, clock: ManualClock, why: str) -> None:
        first = await self.interrupted(alice, clock)
        given: dict[str, Any] = {}
        match why:
            case "undone":
                await alice.undo(first.thread.id)
            case "deleted":
                await alice.delete_thread(first.thread.id)
            case "no lease":
                given["lease"] = None
            case "stopped":
                thread = await create_thread_with(alice, "a", "b")
                other = await accept_new(alice, clock, "turn-2", thread_id=thread.id, key="key-2", request_hash=b"1")
                await finish(alice, other.turn, end=TurnEnd("stopped"))
                given, first = {"key": "key-2"}, other
        before = await alice.turn(first.turn.id)
        stored = await self.again(alice, clock, first, **given)
        assert (stored.replayed, stored.leased, stored.turn) == (True, False, before)

    async def test_of_many_at_the_same_time_one_continues(self, alice: Transaction, clock: ManualClock) -> None:
        first = await self.interrupted(alice, clock)
        stored = await asyncio.gather(*(self.again(alice, clock, first) for _ in range(10)))
        assert sum(each.leased for each in stored) == 1
        assert {each.turn.fence for each in stored} == {2}
