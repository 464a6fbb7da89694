"""Taking in what a platform delivered: the claim, the message and its turn in one step, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from threadline.core.channels import NewArrival, User
from threadline.core.errors import RoleRefused
from threadline.core.open_questions import METADATA_KEY
from threadline.core.threads import NewThread, Thread
from threadline.core.turns import NewTurn, Turn
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import clean_json, clean_text, history, user_message


def arrival(key: str = "Ev1", **changes: Any) -> NewArrival:
    new = NewArrival(
        platform="slack",
        key=key,
        fingerprint="U1",
        correlation_id="c",
        reply_to="D1",
        place="D1 alice",
        turn_id=f"turn-{key}",
        agent_id="helper",
        turn_key=f"key-{key}",
        request_hash=b"hash",
    )
    return new._replace(**changes)


async def take(tx: Transaction, new: NewArrival, text: str = "Hello") -> Turn | None:
    return await tx.take_arrival(new, user_message(text), title=clean_text(text))


async def bound(tx: Transaction) -> Thread:
    thread = await tx.create_thread(NewThread())
    await tx.bind("slack", "D1 alice", thread.id)
    return thread


class TestTakingIn:
    @pytest.mark.req("S3-23")
    async def test_what_arrives_is_claimed_and_becomes_a_turn_at_once(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        """The common case of an arrival: `claim_inbox`, `append`, `create_turn` and `settle_inbox` as accepted, in one
        step, in line with the user's other works (see `Store.transact`). It goes to the thread that its place is bound
        to"""
        thread = await bound(alice)
        at = clock.advance()
        turn = await take(alice, arrival())
        assert turn is not None
        assert turn == await alice.turn("turn-Ev1")
        assert (turn.thread_id, turn.surface, turn.status, turn.owner_id) == (thread.id, "slack", "accepted", "alice")
        assert (turn.agent_id, turn.idempotency_key, turn.request_hash) == ("helper", "key-Ev1", b"hash")
        assert (turn.request_seq, turn.fence, turn.created_at) == (0, 0, at)
        (message,) = await alice.messages(thread.id)
        assert (message.text, message.turn_id, message.role) == ("Hello", turn.id, "user")
        row = await alice.inbox_row("slack", "Ev1")
        assert row is not None
        assert (row.status, row.decision, row.turn_id, row.owner_id) == ("accepted", "accepted", turn.id, "alice")
        assert (row.fingerprint, row.correlation_id, row.reply_to, row.created_at) == ("U1", "c", "D1", at)
        named = await alice.thread(thread.id)
        assert named is not None
        assert named.title == "Hello"

    @pytest.mark.req("S3-24")
    async def test_turns_stand_in_the_order_in_which_they_arrived(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await bound(alice)
        for number in range(3):
            assert await take(alice, arrival(f"Ev{number}"), f"text {number}") is not None
        assert await history(alice, thread.id) == ["text 0", "text 1", "text 2"]
        assert [turn.id for turn in await alice.active_turns(thread.id)] == ["turn-Ev0", "turn-Ev1", "turn-Ev2"]
        assert await alice.lease_turn("turn-Ev1", "w", until=clock.after(30)) is None
        assert await alice.lease_turn("turn-Ev0", "w", until=clock.after(30)) is not None

    @pytest.mark.req("S3-17")
    async def test_of_many_copies_at_once_one_is_taken(self, alice: Transaction) -> None:
        """it was claimed before"""
        thread = await bound(alice)
        copies = [take(alice, arrival(turn_id=f"turn-{number}")) for number in range(30)]
        assert sum(turn is not None for turn in await asyncio.gather(*copies)) == 1
        assert await history(alice, thread.id) == ["Hello"]
        assert len(await alice.turns(thread.id)) == 1

    @pytest.mark.parametrize("obstacle", ["claimed", "key", "unbound", "question", "deleted", "another's"])
    async def test_where_anything_stands_in_the_way_nothing_is_stored(
        self, alice: Transaction, bob: Transaction, system: Transaction, obstacle: str
    ) -> None:
        """None, and nothing is stored, if anything stands in the way: it was claimed before, its turn key or the
        message's id was here, nothing is bound there and there is no key, a question waits there, the thread is gone or
        full. Step by step it is then found out what."""
        thread = await bound(alice)
        match obstacle:
            case "claimed":
                await system.claim_inbox("slack", "Ev1", owner_id="bob")
            case "key":
                await alice.create_turn(NewTurn("earlier", thread.id, "slack", idempotency_key="key-Ev1"))
            case "unbound":
                await alice.unbind("slack", "D1 alice")
            case "question":
                await alice.bind("slack", "D1 alice", thread.id, metadata=clean_json({METADATA_KEY: {"does": "clear"}}))
            case "deleted":
                await alice.delete_thread(thread.id)
        before = await system.inbox_row("slack", "Ev1")
        assert await take(bob if obstacle == "another's" else alice, arrival()) is None
        assert await system.inbox_row("slack", "Ev1") == before
        assert await system.turn("turn-Ev1") is None
        if obstacle != "deleted":
            assert await history(alice, thread.id) == []

    async def test_a_message_that_was_here_is_not_taken(self, alice: Transaction, system: Transaction) -> None:
        """the message's id was here"""
        thread = await bound(alice)
        await alice.append(thread.id, [user_message("Before", id="m1")])
        assert await alice.take_arrival(arrival(), user_message("Before", id="m1"), title=None) is None
        assert await system.inbox_row("slack", "Ev1") is None
        assert await system.turn("turn-Ev1") is None

    async def test_what_else_is_kept_with_a_place_is_no_obstacle(self, alice: Transaction) -> None:
        thread = await bound(alice)
        await alice.bind("slack", "D1 alice", thread.id, metadata=clean_json({"loaded": "a name"}))
        assert await take(alice, arrival()) is not None

    @pytest.mark.req("S3-23")
    async def test_the_first_words_in_a_place_begin_the_home_thread(self, alice: Transaction) -> None:
        """a place that is bound to none is bound, where there is a `home_key`, to the user's living thread under that
        key, which is made for the agent if there is none."""
        turn = await take(alice, arrival(home_key="home-helper"))
        home = await alice.thread_by_key("home-helper")
        assert turn is not None
        assert home is not None
        assert (turn.thread_id, turn.request_seq) == (home.id, 0)
        assert (home.agent_id, home.title, home.title_by_person, home.owner_id) == ("helper", "Hello", False, "alice")
        assert await history(alice, home.id) == ["Hello"]
        binding = await alice.binding("slack", "D1 alice")
        assert binding is not None
        assert (binding.thread_id, binding.owner_id, binding.label, binding.metadata) == (home.id, "alice", None, {})

    async def test_every_private_place_goes_on_in_the_home_thread(self, alice: Transaction) -> None:
        home = await alice.create_thread(NewThread(state_key="home-helper"))
        for number in range(3):
            new = arrival(f"Ev{number}", place=f"D{number} alice", home_key="home-helper")
            turn = await take(alice, new, f"text {number}")
            assert turn is not None
            assert turn.thread_id == home.id
        assert await history(alice, home.id) == ["text 0", "text 1", "text 2"]
        assert {binding.thread_id for binding in await alice.bindings()} == {home.id}

    async def test_a_place_that_is_bound_stays_where_it_is(self, alice: Transaction) -> None:
        thread = await bound(alice)
        turn = await take(alice, arrival(home_key="home-helper"))
        assert turn is not None
        assert turn.thread_id == thread.id
        assert await alice.thread_by_key("home-helper") is None

    async def test_of_many_first_words_at_once_all_go_to_one_thread(self, alice: Transaction) -> None:
        words = [take(alice, arrival(f"Ev{number}", home_key="home-helper"), f"text {number}") for number in range(20)]
        assert all(turn is not None for turn in await asyncio.gather(*words))
        home = await alice.thread_by_key("home-helper")
        assert home is not None
        assert sorted(await history(alice, home.id)) == sorted(f"text {number}" for number in range(20))
        assert (await alice.threads()).items == (home,)

    @pytest.mark.parametrize("obstacle", ["claimed", "key", "another's place", "message"])
    async def test_where_first_words_cannot_be_taken_no_thread_begins(
        self, alice: Transaction, bob: Transaction, system: Transaction, obstacle: str
    ) -> None:
        """None, and nothing is stored, if anything stands in the way"""
        other = await alice.create_thread(NewThread())
        match obstacle:
            case "claimed":
                await system.claim_inbox("slack", "Ev1", owner_id="bob")
            case "key":
                await alice.create_turn(NewTurn("earlier", other.id, "slack", idempotency_key="key-Ev1"))
            case "another's place":
                await bob.bind("slack", "D1 alice", (await bob.create_thread(NewThread())).id)
            case "message":
                home = await alice.create_thread(NewThread(state_key="home-helper"))
                await alice.append(home.id, [user_message("Before", id="m1")])
        before, threads = await system.inbox_row("slack", "Ev1"), (await alice.threads()).items
        assert (
            await alice.take_arrival(arrival(home_key="home-helper"), user_message("Hello", id="m1"), title=None)
            is None
        )
        assert await system.inbox_row("slack", "Ev1") == before
        assert await system.turn("turn-Ev1") is None
        assert (await alice.threads()).items == threads
        assert await alice.binding("slack", "D1 alice") is None

    async def test_the_system_scope_takes_nothing_in_for_a_user(self, alice: Transaction, system: Transaction) -> None:
        """For a user's own scope."""
        thread = await bound(alice)
        assert await take(system, arrival()) is None
        assert await take(system, arrival(place="D2", home_key="home-helper")) is None
        assert await system.thread_by_key("home-helper") is None
        assert await history(alice, thread.id) == []
        assert await system.inbox_row("slack", "Ev1") is None


class TestSenders:
    async def test_who_wrote_is_told_with_their_role(self, system: Transaction, alice: Transaction) -> None:
        """Who wrote: the owner of the link, its state, and the owner's role. System scope."""
        await system.put_link("slack", "U1", "alice", "verified")
        assert await system.sender("slack", "U1") == ("alice", "verified", "member")
        await system.put_user(User("alice", role="viewer"))
        await system.put_link("slack", "U1", "alice", "revoked")
        assert await system.sender("slack", "U1") == ("alice", "revoked", "viewer")
        assert await system.sender("slack", "U2") is None
        assert await system.sender("telegram", "U1") is None
        with pytest.raises(RoleRefused):
            await alice.sender("slack", "U1")
