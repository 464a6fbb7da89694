"""The two commits of a turn: a request is accepted whole, a turn is finished whole, or a refusal says why not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from threadline.core.errors import NotFound
from threadline.core.threads import NewThread, Thread
from threadline.core.turn_commits import Accepted, AcceptRefusal, FinishRefusal, ReplyDelivery, TurnAcceptance
from threadline.core.turns import ACTIVE, Chunk, Lease, Turn, TurnEnd
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.fixtures import LIMITS
from threadline.testing.conformance.message_builders import (
    add_turn,
    assistant_message,
    clean_text,
    create_thread_with,
    history,
    user_message,
)


async def accept(
    tx: Transaction, clock: ManualClock, turn_id: str = "turn-1", message_id: str | None = None, **given: Any
) -> Accepted | AcceptRefusal:
    new = TurnAcceptance(
        turn_id=turn_id,
        surface="web",
        title=clean_text("A title"),
        **{"message": user_message("Is it far?", message_id), "policy": "reject", "lease": Lease("w1", 30), **given},
    )
    return await tx.accept_turn(new)


async def accept_new(
    tx: Transaction, clock: ManualClock, turn_id: str = "turn-1", message_id: str | None = None, **given: Any
) -> Accepted:
    stored = await accept(tx, clock, turn_id, message_id, **given)
    assert isinstance(stored, Accepted)
    return stored


async def accept_and_lease(tx: Transaction, clock: ManualClock, thread_id: str, turn_id: str = "turn-1") -> Turn:
    stored = await accept_new(tx, clock, turn_id, thread_id=thread_id)
    assert stored.leased
    return stored.turn


async def existing(tx: Transaction, thread_id: str) -> Thread:
    found = await tx.thread(thread_id)
    assert found is not None
    return found


async def finish(tx: Transaction, turn: Turn, *, reply_id: str | None = None, **given: Any) -> Turn | FinishRefusal:
    reply = given.pop("reply", assistant_message("Not far.", reply_id))
    return await tx.finish_turn(turn.id, turn.fence, given.pop("end", TurnEnd("executed")), reply=reply, **given)


class TestAcceptTurn:
    async def test_the_request_the_turn_and_the_lease_are_stored(self, alice: Transaction, clock: ManualClock) -> None:
        """Stores a request whole, in one commit: the inbox claim of an arrival, the thread if it has to be created, the
        binding of its place, the rewind before what it replaces, the message, the turn and its lease."""
        thread = await create_thread_with(alice, "before", "it", new=NewThread(agent_id="helper"))
        clock.advance()
        stored = await accept_new(alice, clock, thread_id=thread.id, key="key-1", request_hash=b"\x00\xff")
        turn, after = stored.turn, stored.thread
        assert (stored.leased, stored.replayed) == (True, False)
        assert (turn.status, turn.fence, turn.lease_owner, turn.lease_until) == ("running", 1, "w1", clock.after(30))
        assert (turn.owner_id, turn.agent_id, turn.request_seq, turn.created_at) == ("alice", "helper", 2, clock.now())
        assert (turn.idempotency_key, turn.request_hash) == ("key-1", b"\x00\xff")
        assert await alice.turn("turn-1") == turn
        assert await alice.thread(thread.id) == after
        assert (after.message_count, after.title, after.updated_at) == (3, "A title", clock.now())
        assert (await alice.messages(thread.id, first=2))[0].turn_id == "turn-1"

    async def test_a_thread_is_found_by_its_state_key_or_created(self, alice: Transaction, clock: ManualClock) -> None:
        wanted = NewThread(
            id="thread-1", state_key="lisbon", agent_id="helper", model="m1", metadata={"a": 1}, title="Lisbon"
        )
        created = (await accept_new(alice, clock, new_thread=wanted)).thread
        assert created == await alice.thread("thread-1") == await alice.thread_by_key("lisbon")
        assert (created.agent_id, created.model, created.metadata, created.title) == (
            "helper",
            "m1",
            {"a": 1},
            "Lisbon",
        )
        await alice.finish_turn("turn-1", 1, TurnEnd("executed"))
        found = await accept_new(alice, clock, "turn-2", new_thread=NewThread(id="thread-2", state_key="lisbon"))
        assert (found.thread.id, found.turn.request_seq) == ("thread-1", 1)
        assert await alice.thread("thread-2") is None

    async def test_a_request_may_be_stored_without_a_lease_or_as_denied(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        thread = await create_thread_with(alice)
        waiting = await accept_new(alice, clock, thread_id=thread.id, lease=None)
        assert (waiting.turn.status, waiting.turn.fence, waiting.leased) == ("accepted", 0, False)
        await alice.request_stop("turn-1")
        denied = await accept_new(alice, clock, "turn-2", thread_id=thread.id, status="denied_sentinel")
        assert (denied.turn.status, denied.turn.finished_at, denied.leased) == ("denied_sentinel", clock.now(), False)
        for stored in (waiting, denied):
            assert stored.turn.lease_owner is None
        assert await alice.turn("turn-2") == denied.turn

    async def test_the_same_key_finds_the_turn_that_was_stored_first(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        """The same key with the same hash finds the turn that was stored first"""
        thread = await create_thread_with(alice)
        asked: dict[str, Any] = {"thread_id": thread.id, "key": "key-1", "request_hash": b"1"}
        first = await accept_new(alice, clock, **asked)
        again = await accept_new(alice, clock, "turn-2", **asked)
        assert (again.turn, again.thread, again.replayed, again.leased) == (first.turn, first.thread, True, False)
        await alice.delete_thread(thread.id)
        after = await accept_new(alice, clock, "turn-3", **asked)
        assert (after.turn.id, after.thread.deleted_at) == ("turn-1", clock.now())

    async def test_a_queued_request_is_not_leased(self, alice: Transaction, clock: ManualClock) -> None:
        """The turn is leased if a lease is given and no other turn of the thread is active."""
        thread = await create_thread_with(alice)
        await accept_and_lease(alice, clock, thread.id)
        queued = await accept_new(alice, clock, "turn-2", thread_id=thread.id, policy="queue")
        assert (queued.turn.status, queued.leased) == ("accepted", False)
        assert [turn.id for turn in await alice.active_turns(thread.id)] == ["turn-1", "turn-2"]

    async def test_an_interrupting_request_asks_active_turns_to_stop(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        """On `interrupt` every active turn of the thread is asked to stop."""
        thread = await create_thread_with(alice)
        await accept_and_lease(alice, clock, thread.id)
        await accept_new(alice, clock, "turn-2", thread_id=thread.id, policy="queue")
        third = await accept_new(alice, clock, "turn-3", thread_id=thread.id, policy="interrupt")
        assert (third.turn.status, third.leased) == ("accepted", False)
        assert await alice.is_stop_requested("turn-1")
        waiting = await alice.turn("turn-2")
        assert waiting is not None
        assert waiting.status == "stopped"
        await alice.finish_turn("turn-1", 1, TurnEnd("stopped"))
        await alice.request_stop("turn-3")
        last = await accept_new(alice, clock, "turn-4", thread_id=thread.id, policy="interrupt")
        assert last.leased

    async def test_a_request_replaces_an_earlier_one_on_a_new_timeline(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        """the rewind before what it replaces"""
        thread = await create_thread_with(alice, "a", "b", "c", "d")
        replaced = (await alice.messages(thread.id))[2]
        stored = await accept_new(alice, clock, thread_id=thread.id, replaces=replaced.id, message_id=replaced.id)
        assert (stored.turn.request_seq, stored.thread.message_count, stored.leased) == (2, 3, True)
        assert stored.thread.timeline_id != thread.timeline_id
        assert await history(alice, thread.id) == ["a", "b", "Is it far?"]
        assert [message.text for message in await alice.messages(thread.id, timeline_id=thread.timeline_id)] == [
            "a", "b", "c", "d",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        "reason",
        [
            "turn_running", "key_reused", "message_known", "message_repeated", "thread_missing", "thread_full",
            "deleted", "replaced_missing", "replaced_not_user", "id_known", "thread id",
        ],
    )  # fmt: skip
    async def test_a_refused_request_stores_nothing(
        self, alice: Transaction, bob: Transaction, clock: ManualClock, reason: str
    ) -> None:
        """A refusal means that nothing is stored."""
        full = LIMITS.messages_per_thread - 1 if reason == "thread_full" else 2
        thread, other = await create_thread_with(alice, *["said"] * full), await create_thread_with(bob, "other")
        messages = await alice.messages(thread.id)
        given: dict[str, Any] = {"thread_id": thread.id, "key": "key-1", "request_hash": b"1"}
        match reason:
            case "turn_running":
                await add_turn(alice, "turn-0", thread.id, "web")
            case "key_reused":
                await add_turn(alice, "turn-0", thread.id, "web", key="key-1", request_hash=b"2")
            case "message_known":
                given["message_id"] = messages[0].id
            case "message_repeated":
                await alice.append(thread.id, [user_message("Is it far?", "asked")])
                given["message_id"] = "asked"
            case "thread_missing":
                given["thread_id"] = other.id
            case "deleted":
                await alice.delete_thread(thread.id)
            case "replaced_missing":
                given["replaces"] = "nowhere"
            case "replaced_not_user":
                given["replaces"] = messages[1].id
            case "id_known":
                await add_turn(bob, "turn-1", other.id, "web")
            case "thread id":
                given |= {"thread_id": None, "new_thread": NewThread(id=other.id)}
        before = await alice.row_counts()
        refused = await accept(alice, clock, **given)
        assert isinstance(refused, AcceptRefusal)
        assert refused.reason == {"deleted": "thread_missing", "thread id": "id_known"}.get(reason, reason)
        assert await alice.row_counts() == before
        if reason in ("turn_running", "key_reused"):
            assert refused.turn_id == "turn-0"
            assert refused.thread is not None
            assert (refused.thread.id, refused.thread.message_count) == (thread.id, 3)

    async def test_of_many_at_the_same_time_one_is_accepted(self, alice: Transaction, clock: ManualClock) -> None:
        """Requests of one user are serialised, see `Store.transact`."""
        tries = [
            accept(alice, clock, f"turn-{n}", new_thread=NewThread(id=f"thread-{n}", state_key="lisbon"))
            for n in range(12)
        ]
        done = [each for each in await asyncio.gather(*tries) if isinstance(each, Accepted)]
        assert len(done) == 1
        assert len((await alice.threads()).items) == 1

    async def test_a_refusal_inside_a_transaction_undoes_all_of_it(
        self, store: Store, alice: Transaction, clock: ManualClock
    ) -> None:
        """Inside `transact` it must end the work: raise."""
        thread = await create_thread_with(alice, "before")

        async def work(tx: Transaction) -> None:
            await tx.append(thread.id, [user_message("undone")])
            refused = await accept(tx, clock, thread_id="nowhere")
            assert isinstance(refused, AcceptRefusal)
            raise NotFound("thread", "nowhere")

        with pytest.raises(NotFound):
            await store.transact(alice.scope, work)
        assert await history(alice, thread.id) == ["before"]


class TestFinishTurn:
    async def test_the_reply_the_stream_and_the_end_are_stored(self, alice: Transaction, clock: ManualClock) -> None:
        """Ends a turn in one commit: the rest of its stream, the reply, the end, what it used, the outbox rows and the
        settled inbox row. The reply is appended;"""
        thread = await create_thread_with(alice, "before", "it")
        turn = await accept_and_lease(alice, clock, thread.id)
        await alice.put_chunks(turn.id, 1, [Chunk(1, b'"a"')])
        clock.advance()
        end = TurnEnd("executed", usage={"input_tokens": 3}, seen={"turns": 1, "system": ["é \\u0000"]})
        ended = await finish(alice, turn, end=end, chunks=[Chunk(1, b'"b"'), Chunk(2, b'"c"')], tokens=7)
        assert isinstance(ended, Turn)
        assert (ended.status, ended.reply_seq, ended.finished_at) == ("executed", 3, clock.now())
        assert (ended.usage, ended.seen) == (end.usage, end.seen)
        assert await alice.turn(turn.id) == ended
        assert await alice.chunks(turn.id) == [Chunk(1, b'"a"'), Chunk(2, b'"c"')]
        assert await history(alice, thread.id) == ["before", "it", "Is it far?", "Not far."]
        after = await alice.thread(thread.id)
        assert after is not None
        assert (after.token_count, after.updated_at) == (7, clock.now())
        assert (await alice.messages(thread.id, first=3))[0].turn_id == turn.id

    async def test_a_turn_may_end_without_a_reply(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await create_thread_with(alice)
        turn = await accept_and_lease(alice, clock, thread.id)
        ended = await finish(alice, turn, end=TurnEnd("dispatch_failed", error="no agent"), reply=None)
        assert isinstance(ended, Turn)
        assert (ended.status, ended.error, ended.reply_seq) == ("dispatch_failed", "no agent", None)
        assert await alice.turn(turn.id) == ended
        assert await history(alice, thread.id) == ["Is it far?"]

    @pytest.mark.parametrize("moved", ["before", "deleted"])
    async def test_a_reply_without_its_request_is_left_out(
        self, alice: Transaction, clock: ManualClock, moved: str
    ) -> None:
        """A reply whose request is no longer in the thread's present history, or whose thread was deleted, is left
        out, and the turn ends without one."""
        thread = await create_thread_with(alice, "before", "it")
        turn = await accept_and_lease(alice, clock, thread.id)
        if moved == "deleted":
            await alice.delete_thread(thread.id)
        else:
            await alice.move(thread.id, 1)
        ended = await finish(alice, turn)
        assert isinstance(ended, Turn)
        assert (ended.status, ended.reply_seq) == ("executed", None)
        if moved == "deleted":
            await alice.restore_thread(thread.id)
        assert "Not far." not in await history(alice, thread.id)

    async def test_a_reply_finds_its_request_on_an_earlier_timeline(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        thread = await create_thread_with(alice, "before", "it")
        turn = await accept_and_lease(alice, clock, thread.id)
        for _ in range(2):
            await alice.move(thread.id, 2)
        ended = await finish(alice, turn)
        assert isinstance(ended, Turn)
        assert ended.reply_seq == 3
        assert await history(alice, thread.id) == ["before", "it", "Is it far?", "Not far."]

    async def test_a_continued_reply_takes_the_place_of_the_one_that_waited(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        """if the turn continues a reply that waited for approval, it takes that one's place on a new timeline, and
        later messages follow it under their own seq."""
        thread = await create_thread_with(alice, "Pay?")
        await alice.append(thread.id, [assistant_message("May I, please?", "reply-1")])
        answered = assistant_message("May I?", "reply-1")
        await accept_new(alice, clock, thread_id=thread.id, replaces="reply-1", message=answered, lease=None)
        thread = await existing(alice, thread.id)
        later = await accept_new(alice, clock, "turn-2", thread_id=thread.id, policy="queue")
        before = (await alice.messages(thread.id))[2]
        clock.advance()
        turn = await alice.lease_turn("turn-1", "w1", seconds=30)
        assert turn is not None
        ended = await finish(alice, turn, reply_id="reply-1", tokens=5)
        assert isinstance(ended, Turn)
        assert ended.reply_seq == 1
        assert await history(alice, thread.id) == ["Pay?", "Not far.", "Is it far?"]
        after = (await alice.messages(thread.id))[2]
        assert (after.id, after.turn_id, after.seq) == (before.id, later.turn.id, later.turn.request_seq)
        assert (after.parts_json, after.metadata_json, after.created_us) == (
            before.parts_json,
            before.metadata_json,
            before.created_us,
        )
        assert [each.text for each in await alice.messages(thread.id, timeline_id=thread.timeline_id)] == [
            "Pay?", "May I?", "Is it far?",
        ]  # fmt: skip

    @pytest.mark.parametrize("reason", ["lease_lost", "already_ended", "turn_missing", "reply_known", "thread_full"])
    async def test_a_refused_end_stores_nothing(self, alice: Transaction, clock: ManualClock, reason: str) -> None:
        """A refusal means that nothing is stored: `lease_lost` if the fence is old, `already_ended`, `turn_missing`,
        `reply_known` if the history has a message with the reply's id, `thread_full`."""
        count = LIMITS.messages_per_thread - 2 if reason == "thread_full" else 2
        thread = await create_thread_with(alice, *["said"] * count)
        turn = await accept_and_lease(alice, clock, thread.id)
        match reason:
            case "lease_lost":
                clock.advance(30)
                assert await alice.lease_turn(turn.id, "w2", seconds=30) is not None
            case "already_ended":
                await alice.finish_turn(turn.id, 1, TurnEnd("stopped"))
            case "reply_known":
                await alice.append(thread.id, [assistant_message("Not far.", "reply-1")])
            case "thread_full":
                await alice.append(thread.id, [user_message("Me too", "later")])
        turn_id = "nowhere" if reason == "turn_missing" else turn.id
        before, stored = await alice.row_counts(), await alice.turn(turn.id)
        reply = assistant_message("Not far.", "reply-1")
        refused = await alice.finish_turn(turn_id, 1, TurnEnd("executed"), reply=reply, chunks=[Chunk(1, b"1")])
        assert refused == FinishRefusal(reason)  # type: ignore[arg-type]
        assert await alice.row_counts() == before
        assert await alice.turn(turn.id) == stored

    async def test_the_reply_is_delivered_and_its_arrival_settled(self, alice: Transaction, clock: ManualClock) -> None:
        """the outbox rows and the settled inbox row"""
        thread = await create_thread_with(alice)
        turn = await accept_and_lease(alice, clock, thread.id)
        await alice.claim_inbox("slack", "Ev1", reply_to="D1")
        payloads = (clean_text("one"), clean_text("two"))
        assert isinstance(await finish(alice, turn, delivery=ReplyDelivery("slack", "Ev1", payloads)), Turn)
        rows = list(reversed(await alice.outbox()))
        assert [(row.id, row.payload, row.recipient, row.status) for row in rows] == [
            ("turn-1-0", "one", "D1", "waiting"),
            ("turn-1-1", "two", "D1", "waiting"),
        ]
        assert {(row.turn_id, row.owner_id, row.platform, row.created_at) for row in rows} == {
            ("turn-1", "alice", "slack", clock.now())
        }
        arrived = await alice.inbox_row("slack", "Ev1")
        assert arrived is not None
        assert (arrived.status, arrived.decision, arrived.turn_id) == ("done", "executed", "turn-1")

    async def test_without_an_arrival_nothing_is_delivered(self, alice: Transaction, clock: ManualClock) -> None:
        """Without an inbox row nothing is delivered."""
        thread = await create_thread_with(alice)
        turn = await accept_and_lease(alice, clock, thread.id)
        await finish(alice, turn, delivery=ReplyDelivery("slack", "Ev1", (clean_text("one"),)))
        assert await alice.outbox() == []

    async def test_of_many_at_the_same_time_one_ends_the_turn(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await create_thread_with(alice)
        turn = await accept_and_lease(alice, clock, thread.id)
        tries = [
            finish(alice, turn, end=TurnEnd("executed", error=str(n)), reply=assistant_message(f"{n}", f"reply-{n}"))
            for n in range(12)
        ]
        done = [each for each in await asyncio.gather(*tries) if isinstance(each, Turn)]
        assert [await alice.turn(turn.id)] == done
        assert await history(alice, thread.id) == ["Is it far?", str(done[0].error)]

    async def test_a_higher_fence_ends_nothing(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await create_thread_with(alice)
        turn = await accept_and_lease(alice, clock, thread.id)
        assert await alice.finish_turn(turn.id, 2, TurnEnd("executed")) == FinishRefusal("lease_lost")
        assert (await alice.active_turns(thread.id))[0].status in ACTIVE
