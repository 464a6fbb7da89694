"""Arrivals from platforms: the claim, the message and its turn are stored in one commit, or nothing is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from threadline.core.channels import User
from threadline.core.errors import InvalidInput, RoleRefused
from threadline.core.open_questions import METADATA_KEY
from threadline.core.threads import NewThread, Thread
from threadline.core.turn_commits import Accepted, AcceptRefusal, ArrivalClaim, HomeClaim, TurnAcceptance
from threadline.core.turns import Turn
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn, clean_json, clean_text, history, user_message


def arrival(key: str = "Ev1", **changes: Any) -> TurnAcceptance:
    """What the inbox asks a store to accept. `home_key` is the state key of the thread that a new place gets."""
    home_key, text, message_id = changes.pop("home_key", None), changes.pop("text", "Hello"), changes.pop("id", None)
    claim = ArrivalClaim(
        platform="slack", key=key, fingerprint="U1", correlation_id="c", reply_to="D1", place="D1 alice"
    )
    return TurnAcceptance(
        turn_id=changes.pop("turn_id", f"turn-{key}"),
        surface="slack",
        message=user_message(text, message_id),
        new_thread=NewThread(state_key=home_key, agent_id="helper"),
        agent_id="helper",
        key=changes.pop("turn_key", f"key-{key}"),
        request_hash=b"hash",
        title=clean_text(text),
        arrival=claim._replace(**changes),
    )


async def take(tx: Transaction, new: TurnAcceptance) -> Turn | AcceptRefusal:
    outcome = await tx.accept_turn(new)
    return outcome if isinstance(outcome, AcceptRefusal) else outcome.turn


async def take_in(tx: Transaction, new: TurnAcceptance) -> Turn:
    turn = await take(tx, new)
    assert isinstance(turn, Turn)
    return turn


async def bound(tx: Transaction) -> Thread:
    thread = await tx.create_thread(NewThread())
    await tx.bind("slack", "D1 alice", thread.id)
    return thread


class TestArrivals:
    @pytest.mark.req("S3-23")
    async def test_an_arrival_is_claimed_with_its_message_and_its_turn(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        """Stores a request whole, in one commit: the inbox claim of an arrival"""
        thread = await bound(alice)
        at = clock.advance()
        turn = await take_in(alice, arrival())
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
    async def test_turns_are_in_the_order_of_their_arrival(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await bound(alice)
        for number in range(3):
            await take_in(alice, arrival(f"Ev{number}", text=f"text {number}"))
        assert await history(alice, thread.id) == ["text 0", "text 1", "text 2"]
        assert [turn.id for turn in await alice.active_turns(thread.id)] == ["turn-Ev0", "turn-Ev1", "turn-Ev2"]
        assert await alice.lease_turn("turn-Ev1", "w", seconds=30) is None
        assert await alice.lease_turn("turn-Ev0", "w", seconds=30) is not None

    @pytest.mark.req("S3-17")
    async def test_of_many_copies_at_the_same_time_one_is_accepted(self, alice: Transaction) -> None:
        """`duplicate_arrival`: its inbox key is claimed."""
        thread = await bound(alice)
        copies = await asyncio.gather(*[take(alice, arrival(turn_id=f"turn-{number}")) for number in range(30)])
        assert copies.count(AcceptRefusal("duplicate_arrival")) == 29
        assert await history(alice, thread.id) == ["Hello"]
        assert len(await alice.turns(thread.id)) == 1

    @pytest.mark.parametrize("reason", ["duplicate_arrival", "key_reused", "question_open", "message_known"])
    async def test_a_refused_arrival_stores_nothing(self, alice: Transaction, system: Transaction, reason: str) -> None:
        """A refusal means that nothing is stored."""
        thread = await bound(alice)
        match reason:
            case "duplicate_arrival":
                await system.claim_inbox("slack", "Ev1", owner_id="bob")
            case "key_reused":
                await add_turn(alice, "earlier", thread.id, "slack", key="key-Ev1")
            case "question_open":
                await alice.bind("slack", "D1 alice", thread.id, metadata=clean_json({METADATA_KEY: {"does": "clear"}}))
            case "message_known":
                await alice.append(thread.id, [user_message("Before", id="m1")])
        row, before = await system.inbox_row("slack", "Ev1"), await system.row_counts()
        outcome = await take(alice, arrival(id="m1"))
        assert isinstance(outcome, AcceptRefusal)
        assert outcome.reason == reason
        assert await system.inbox_row("slack", "Ev1") == row
        assert await system.row_counts() == before

    async def test_a_text_that_does_not_answer_the_open_question_is_accepted(self, alice: Transaction) -> None:
        thread = await bound(alice)
        await alice.bind("slack", "D1 alice", thread.id, metadata=clean_json({METADATA_KEY: {"does": "clear"}}))
        turn = await take_in(alice, arrival(is_question_checked=True))
        assert turn.thread_id == thread.id

    async def test_other_metadata_of_a_place_does_not_refuse_an_arrival(self, alice: Transaction) -> None:
        thread = await bound(alice)
        await alice.bind("slack", "D1 alice", thread.id, metadata=clean_json({"loaded": "a name"}))
        await take_in(alice, arrival())

    async def test_an_arrival_whose_turn_was_stored_before_claims_that_turn(self, alice: Transaction) -> None:
        """The same key with the same hash finds the turn that was stored first, and stores nothing but the claim."""
        thread = await bound(alice)
        first = await take_in(alice, arrival())
        outcome = await alice.accept_turn(arrival("Ev2", turn_key="key-Ev1"))
        assert isinstance(outcome, Accepted)
        assert (outcome.turn, outcome.replayed, outcome.leased) == (first, True, False)
        row = await alice.inbox_row("slack", "Ev2")
        assert row is not None
        assert (row.status, row.turn_id) == ("accepted", first.id)
        assert await history(alice, thread.id) == ["Hello"]

    @pytest.mark.req("S3-23")
    async def test_the_first_message_of_a_place_creates_the_home_thread(self, alice: Transaction) -> None:
        turn = await take_in(alice, arrival(home_key="home-helper"))
        home = await alice.thread_by_key("home-helper")
        assert home is not None
        assert (turn.thread_id, turn.request_seq) == (home.id, 0)
        assert (home.agent_id, home.title, home.title_by_person, home.owner_id) == ("helper", "Hello", False, "alice")
        assert await history(alice, home.id) == ["Hello"]
        binding = await alice.binding("slack", "D1 alice")
        assert binding is not None
        assert (binding.thread_id, binding.owner_id, binding.label, binding.metadata) == (home.id, "alice", None, {})

    async def test_a_place_without_a_home_key_gets_a_thread_of_its_own(self, alice: Transaction) -> None:
        first, second = await take_in(alice, arrival("Ev1")), await take_in(alice, arrival("Ev2", place="C2 alice"))
        assert first.thread_id != second.thread_id
        assert {binding.thread_id for binding in await alice.bindings()} == {first.thread_id, second.thread_id}

    @pytest.mark.req("H-06")
    async def test_a_place_without_a_thread_is_bound_to_the_home_thread(self, alice: Transaction) -> None:
        """The home thread: that of the binding `place` of surface `web`, else the first of the living threads under
        these state keys."""
        home = HomeClaim("home alice", ("second", "first"))
        created = await take_in(alice, arrival("Ev1", home=home, home_key="second"))
        assert (await alice.thread_by_key("second")) is not None
        first = await alice.create_thread(NewThread(state_key="first"))
        assert (await take_in(alice, arrival("Ev2", place="D2 alice", home=home))).thread_id == created.thread_id
        await alice.delete_thread(created.thread_id)
        assert (await take_in(alice, arrival("Ev3", place="D3 alice", home=home))).thread_id == first.id
        chosen = await alice.create_thread(NewThread())
        await alice.bind("web", "home alice", chosen.id)
        assert (await take_in(alice, arrival("Ev4", place="D4 alice", home=home))).thread_id == chosen.id
        assert (await take_in(alice, arrival("Ev5", place="D3 alice", home=home))).thread_id == first.id
        # The thread of this place was deleted.
        assert (await take_in(alice, arrival("Ev6", place="D2 alice", home=home))).thread_id == chosen.id
        bound = {each.place: each.thread_id for each in await alice.bindings(surface="slack")}
        assert (bound["D2 alice"], bound["D4 alice"]) == (chosen.id, chosen.id)
        await alice.delete_thread(chosen.id)
        assert (await take_in(alice, arrival("Ev7", place="D5 alice", home=home))).thread_id == first.id

    async def test_a_place_whose_thread_was_deleted_is_bound_again(self, alice: Transaction) -> None:
        thread = await bound(alice)
        await alice.bind("slack", "D1 alice", thread.id, label="A label")
        await alice.delete_thread(thread.id)
        turn = await take_in(alice, arrival(home_key="home-helper"))
        home = await alice.thread_by_key("home-helper")
        binding = await alice.binding("slack", "D1 alice")
        assert home is not None
        assert binding is not None
        assert (turn.thread_id, binding.thread_id, binding.label) == (home.id, home.id, "A label")

    async def test_every_private_place_continues_the_home_thread(self, alice: Transaction) -> None:
        home = await alice.create_thread(NewThread(state_key="home-helper"))
        for number in range(3):
            new = arrival(f"Ev{number}", place=f"D{number} alice", home_key="home-helper", text=f"text {number}")
            assert (await take_in(alice, new)).thread_id == home.id
        assert await history(alice, home.id) == ["text 0", "text 1", "text 2"]
        assert {binding.thread_id for binding in await alice.bindings()} == {home.id}

    async def test_a_bound_place_stays_on_its_thread(self, alice: Transaction) -> None:
        thread = await bound(alice)
        assert (await take_in(alice, arrival(home_key="home-helper"))).thread_id == thread.id
        assert await alice.thread_by_key("home-helper") is None

    async def test_of_many_first_messages_at_the_same_time_all_go_to_one_thread(self, alice: Transaction) -> None:
        new = [arrival(f"Ev{number}", home_key="home-helper", text=f"text {number}") for number in range(20)]
        await asyncio.gather(*[take_in(alice, each) for each in new])
        home = await alice.thread_by_key("home-helper")
        assert home is not None
        assert sorted(await history(alice, home.id)) == sorted(f"text {number}" for number in range(20))
        assert (await alice.threads()).items == (home,)

    @pytest.mark.parametrize("reason", ["duplicate_arrival", "key_reused", "place_taken", "message_known"])
    async def test_a_refused_first_message_creates_no_thread(
        self, alice: Transaction, bob: Transaction, system: Transaction, reason: str
    ) -> None:
        other = await alice.create_thread(NewThread())
        match reason:
            case "duplicate_arrival":
                await system.claim_inbox("slack", "Ev1", owner_id="bob")
            case "key_reused":
                await add_turn(alice, "earlier", other.id, "slack", key="key-Ev1")
            case "place_taken":
                await bob.bind("slack", "D1 alice", (await bob.create_thread(NewThread())).id)
            case "message_known":
                home = await alice.create_thread(NewThread(state_key="home-helper"))
                await alice.append(home.id, [user_message("Before", id="m1")])
        row, before = await system.inbox_row("slack", "Ev1"), await system.row_counts()
        outcome = await take(alice, arrival(home_key="home-helper", id="m1"))
        assert isinstance(outcome, AcceptRefusal)
        assert outcome.reason == reason
        assert await system.inbox_row("slack", "Ev1") == row
        assert await system.row_counts() == before
        assert await alice.binding("slack", "D1 alice") is None

    async def test_an_arrival_in_the_system_scope_is_invalid(self, alice: Transaction, system: Transaction) -> None:
        thread = await bound(alice)
        with pytest.raises(InvalidInput, match="scope of its user"):
            await system.accept_turn(arrival())
        assert await history(alice, thread.id) == []
        assert await system.inbox_row("slack", "Ev1") is None


class TestSenders:
    async def test_who_wrote_is_told_with_their_role(self, system: Transaction, alice: Transaction) -> None:
        """The sender of a message: the owner of the link, its state, and the owner's role. System scope."""
        await system.put_link("slack", "U1", "alice", "verified")
        assert await system.sender("slack", "U1") == ("alice", "verified", "member")
        await system.put_user(User("alice", role="viewer"))
        await system.put_link("slack", "U1", "alice", "revoked")
        assert await system.sender("slack", "U1") == ("alice", "revoked", "viewer")
        assert await system.sender("slack", "U2") is None
        assert await system.sender("telegram", "U1") is None
        with pytest.raises(RoleRefused):
            await alice.sender("slack", "U1")
