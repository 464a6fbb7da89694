"""Appending: where messages go, what a thread learns from them, what is refused, and what a repeat does."""

from __future__ import annotations

import asyncio
import datetime as dt

import msgspec
import pytest

from threadline.core.errors import DuplicateId, HeadMoved, InvalidInput, KeyReused, LimitExceeded, NotFound
from threadline.core.messages import NewMessage, new_message, to_us
from threadline.core.sealing import Sealed
from threadline.core.threads import Appended, NewThread, ThreadState
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.fixtures import LIMITS
from threadline.testing.conformance.message_builders import (
    add_turn,
    assistant_message,
    clean_text,
    create_thread_with,
    exchange,
    history,
    seal,
    user_message,
)


class TestAppending:
    @pytest.mark.req("S4-05")
    async def test_messages_are_numbered_from_zero_in_order(self, alice: Transaction, clock: ManualClock) -> None:
        """Writes the messages at the head, all or none, and updates the thread's activity."""
        thread = await alice.create_thread(NewThread())
        first = await alice.append(thread.id, [user_message("a", "m0"), assistant_message("b", "m1")])
        state = ThreadState(thread.timeline_id, 2, 0, None, thread.updated_at)
        assert first == Appended(thread.id, thread.timeline_id, 0, ("m0", "m1"), 2, state)
        at = clock.advance()
        second = await alice.append(thread.id, [user_message("c", "m2")])
        state = ThreadState(thread.timeline_id, 3, 0, None, at)
        assert second == Appended(thread.id, thread.timeline_id, 2, ("m2",), 3, state)
        found = await alice.messages(thread.id)
        assert [(m.id, m.role, m.seq, m.text) for m in found] == [
            ("m0", "user", 0, "a"),
            ("m1", "assistant", 1, "b"),
            ("m2", "user", 2, "c"),
        ]
        assert [m.created_at for m in found] == [thread.created_at, thread.created_at, at]
        stored = await alice.thread(thread.id)
        assert stored is not None
        assert (stored.message_count, stored.updated_at) == (3, at)

    async def test_all_messages_are_written_or_none(self, alice: Transaction, clock: ManualClock) -> None:
        """Writes the messages at the head, all or none, and updates the thread's activity."""
        before = await create_thread_with(alice, "a", "b")
        taken = (await alice.messages(before.id))[0].id
        clock.advance()
        with pytest.raises(DuplicateId):
            await alice.append(before.id, [user_message("new"), user_message("not a", taken)], tokens=5)
        assert await history(alice, before.id) == ["a", "b"]
        assert await alice.thread(before.id) == before

    async def test_tokens_add_up(self, alice: Transaction) -> None:
        thread = await alice.create_thread(NewThread())
        await alice.append(thread.id, exchange("a"), tokens=3)
        await alice.append(thread.id, exchange("b"), tokens=4)
        stored = await alice.thread(thread.id)
        assert stored is not None
        assert stored.token_count == 7

    async def test_metadata_and_the_turn_are_kept(self, alice: Transaction) -> None:
        thread = await alice.create_thread(NewThread())
        await add_turn(alice, "turn-1", thread.id, "web")
        reply = seal(new_message("assistant", "done", metadata={"status": "stopped", "n": 2**70}))
        await alice.append(thread.id, [reply], turn_id="turn-1")
        await alice.append(thread.id, exchange("next"))
        _, first, second = await alice.messages(thread.id)
        assert (first.metadata, first.turn_id) == ({"status": "stopped", "n": 2**70}, "turn-1")
        assert (second.metadata, second.turn_id) == ({}, None)

    async def test_a_message_keeps_the_time_it_was_said(self, alice: Transaction) -> None:
        """A message that has `created_us` keeps that time."""
        said_at = dt.datetime(2020, 2, 29, 23, 59, 59, 999_999, tzinfo=dt.UTC)
        thread = await alice.create_thread(NewThread())
        old = seal(msgspec.structs.replace(new_message("user", "long ago"), created_at=said_at))
        await alice.append(thread.id, [old, user_message("now")])
        found = await alice.messages(thread.id)
        assert [m.created_us for m in found] == [to_us(said_at), to_us(thread.created_at)]

    @pytest.mark.req("S4-12")
    async def test_a_thread_without_a_title_takes_one(self, alice: Transaction) -> None:
        """A thread without a title gets `title`, which a person can change later."""
        thread = await alice.create_thread(NewThread())
        await alice.append(thread.id, exchange("first words"), title=clean_text("first words"))
        await alice.append(thread.id, exchange("later words"), title=clean_text("later words"))
        stored = await alice.thread(thread.id)
        assert stored is not None
        assert (stored.title, stored.title_by_person) == ("first words", False)

    async def test_the_answer_says_how_the_thread_is_now(self, alice: Transaction, clock: ManualClock) -> None:
        """`Appended.thread` has what an append changes about its thread, so that a caller need not read it again."""
        thread = await alice.create_thread(NewThread())
        said = [user_message("a", "m0")]
        done = [
            await alice.append(thread.id, said, key="k1", tokens=3, title=clean_text("first")),
            await alice.append(thread.id, exchange("b"), tokens=4, title=clean_text("second")),
        ]
        assert (done[1].thread.message_count, done[1].thread.token_count, done[1].thread.title) == (2, 7, "first")
        assert done[1].thread.apply_to(thread) == await alice.thread(thread.id)
        await alice.undo(thread.id)
        clock.advance()
        by_id = await alice.append(thread.id, said)
        by_key = await alice.append(thread.id, exchange("a"), key="k1")
        for repeat in (by_id, by_key):
            assert repeat.replayed
            assert repeat.thread.apply_to(thread) == await alice.thread(thread.id)
        after = await alice.append(thread.id, exchange("c"), expected_count=1)
        assert after.thread.apply_to(thread) == await alice.thread(thread.id)

    async def test_a_title_that_was_given_stays(self, alice: Transaction) -> None:
        """A thread without a title gets `title`"""
        thread = await alice.create_thread(NewThread(title="Given", title_by_person=True))
        await alice.append(thread.id, exchange("words"), title=clean_text("words"))
        stored = await alice.thread(thread.id)
        assert stored is not None
        assert (stored.title, stored.title_by_person) == ("Given", True)

    @pytest.mark.req("S4-01", "S4-05")
    async def test_a_thread_that_is_not_there_takes_nothing(self, alice: Transaction) -> None:
        """NotFound: there is no such thread, or it is deleted."""
        with pytest.raises(NotFound, match="nowhere"):
            await alice.append("nowhere", exchange("lost"), key="k")
        assert await alice.search("lost") == []
        assert (await alice.row_counts()).get("messages") == 0

    async def test_appending_nothing_is_refused(self, alice: Transaction) -> None:
        """InvalidInput if `messages` is empty."""
        thread = await alice.create_thread(NewThread())
        with pytest.raises(InvalidInput):
            await alice.append(thread.id, [])

    @pytest.mark.req("S1-10")
    async def test_a_full_thread_says_which_limit(self, alice: Transaction) -> None:
        """LimitExceeded: the thread would have more messages than the store's limit."""
        most = LIMITS.messages_per_thread
        thread = await alice.create_thread(NewThread())
        await alice.append(thread.id, exchange(*map(str, range(most - 1))))
        with pytest.raises(LimitExceeded, match=f"messages per thread must be at most {most}") as refused:
            await alice.append(thread.id, exchange("fits", "does not"))
        assert (refused.value.allowed, refused.value.found) == (most, most + 1)
        assert (await alice.append(thread.id, exchange("fits"))).message_count == most
        with pytest.raises(LimitExceeded):
            await alice.append(thread.id, exchange("does not"))
        assert len(await alice.messages(thread.id)) == most


class TestExpectedCount:
    @pytest.mark.req("S1-07")
    async def test_a_stale_count_is_refused_with_the_right_one(self, alice: Transaction) -> None:
        """HeadMoved: `expected_count` is not the count."""
        thread = await create_thread_with(alice, "a", "b", "c")
        for stale in (0, 2, 4):
            with pytest.raises(HeadMoved) as moved:
                await alice.append(thread.id, exchange("late"), expected_count=stale)
            assert (moved.value.current_count, moved.value.expected_count) == (3, stale)
        assert (await alice.append(thread.id, exchange("d"), expected_count=3)).message_count == 4
        assert await history(alice, thread.id) == ["a", "b", "c", "d"]

    @pytest.mark.req("S1-07")
    async def test_of_a_race_for_the_first_message_one_wins(self, alice: Transaction) -> None:
        """HeadMoved: `expected_count` is not the count."""
        thread = await alice.create_thread(NewThread())
        racers = [alice.append(thread.id, exchange(f"racer {n}"), expected_count=0) for n in range(8)]
        outcomes = await asyncio.gather(*racers, return_exceptions=True)
        won = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, HeadMoved)]
        assert (len(won), len(lost)) == (1, 7)
        assert {outcome.current_count for outcome in lost} == {1}
        assert len(await history(alice, thread.id)) == 1

    @pytest.mark.req("G-10")
    async def test_an_append_on_another_timeline_than_expected_is_refused(self, alice: Transaction) -> None:
        """HeadMoved: `expected_count` is not the count, or `expected_timeline` is not the timeline."""
        thread = await create_thread_with(alice, "a", "b")
        moved = await alice.move(thread.id, 1)
        with pytest.raises(HeadMoved):
            await alice.append(thread.id, exchange("late"), expected_count=2, expected_timeline=thread.timeline_id)
        await alice.append(thread.id, exchange("c"), expected_count=2, expected_timeline=moved.timeline_id)
        assert await history(alice, thread.id) == ["a", "b", "c"]

    @pytest.mark.req("G-10")
    async def test_an_append_after_a_message_moves_the_thread_once(self, alice: Transaction) -> None:
        """With `after` the thread is first moved to a new timeline that continues after this seq (-1: before the first
        message), in the same commit; a repeat does not move it, and InvalidInput: there is no such seq."""
        thread = await create_thread_with(alice, "a", "b", "c")
        for _ in range(2):
            await alice.append(thread.id, exchange("d"), key="k", after=0)
            assert await history(alice, thread.id) == ["a", "d"]
        assert len(await alice.timelines(thread.id)) == 2
        with pytest.raises(InvalidInput):
            await alice.append(thread.id, exchange("e"), after=7)
        assert await history(alice, thread.id) == ["a", "d"]
        await alice.append(thread.id, exchange("e"), after=-1)
        assert await history(alice, thread.id) == ["e"]


class TestRepeating:
    async def test_the_same_key_is_the_same_call(self, alice: Transaction, clock: ManualClock) -> None:
        """A repeated call is safe: with the same key, or with message ids that are already in this history in this
        order with this role and content, nothing is written and the first result is returned as `replayed`."""
        thread = await alice.create_thread(NewThread())
        said = exchange("a", "b")
        first = await alice.append(thread.id, said, key="k1", expected_count=0, tokens=5)
        await alice.append(thread.id, exchange("c"))
        before = await alice.thread(thread.id)
        clock.advance()
        again = await alice.append(thread.id, said, key="k1", expected_count=0, tokens=5)
        assert again == msgspec.structs.replace(first, replayed=True, thread=again.thread)
        assert await alice.thread(thread.id) == before
        assert await history(alice, thread.id) == ["a", "b", "c"]

    async def test_a_repeat_under_a_key_may_carry_new_ids(self, alice: Transaction) -> None:
        """KeyReused: the key was used with other messages; ids may differ, because sealing generates missing ids."""
        thread = await alice.create_thread(NewThread())
        first = await alice.append(thread.id, exchange("a", "b"), key="k1")
        again = await alice.append(thread.id, exchange("a", "b"), key="k1")
        assert again == msgspec.structs.replace(first, replayed=True, thread=again.thread)
        assert [m.id for m in await alice.messages(thread.id)] == list(first.message_ids)

    @pytest.mark.parametrize(
        "other",
        [
            [NewMessage("user", b'[{"type":"text","text":"B"}]')],
            [NewMessage("assistant", b'[{"type":"text","text":"a"}]')],
            [NewMessage("user", b'[{"type":"text","text":"a"}]')] * 2,
        ],
        ids=["other words", "other role", "one more"],
    )
    async def test_a_key_with_other_messages_is_refused(self, alice: Transaction, other: list[NewMessage]) -> None:
        """KeyReused: the key was used with other messages"""
        thread = await alice.create_thread(NewThread())
        await alice.append(thread.id, exchange("a"), key="k1")
        with pytest.raises(KeyReused, match="k1"):
            await alice.append(thread.id, [seal(message) for message in other], key="k1")
        assert await history(alice, thread.id) == ["a"]

    async def test_a_key_belongs_to_its_thread(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        """A key is valid within its thread."""
        for tx in (alice, alice, bob, other_tenant):
            thread = await tx.create_thread(NewThread())
            assert not (await tx.append(thread.id, exchange(thread.id), key="k1")).replayed
            assert await history(tx, thread.id) == [thread.id]

    async def test_a_failed_append_leaves_its_key_free(self, alice: Transaction) -> None:
        """all or none"""
        thread = await alice.create_thread(NewThread())
        with pytest.raises(HeadMoved):
            await alice.append(thread.id, exchange("a"), key="k1", expected_count=7)
        assert not (await alice.append(thread.id, exchange("b"), key="k1")).replayed

    async def test_the_same_message_ids_are_the_same_call(self, alice: Transaction, clock: ManualClock) -> None:
        """with message ids that are already in this history in this order with this role and content, nothing is
        written and the first result is returned as `replayed`."""
        thread = await alice.create_thread(NewThread())
        said = [user_message("a", "m0"), assistant_message("b", "m1")]
        first = await alice.append(thread.id, said, expected_count=0)
        await alice.append(thread.id, exchange("c"))
        before = await alice.thread(thread.id)
        clock.advance()
        again = await alice.append(thread.id, said, expected_count=0)
        assert again == msgspec.structs.replace(first, replayed=True, thread=again.thread)
        assert await alice.thread(thread.id) == before
        assert await history(alice, thread.id) == ["a", "b", "c"]

    @pytest.mark.parametrize(
        "other",
        [
            [user_message("other", "m0"), assistant_message("b", "m1")],
            [assistant_message("a", "m0"), assistant_message("b", "m1")],
            [assistant_message("b", "m1"), user_message("a", "m0")],
            [user_message("a", "m0"), assistant_message("c", "m2")],
            [user_message("c", "m2"), user_message("a", "m0")],
        ],
        ids=["other words", "other role", "other order", "one known, one new", "one new, one known"],
    )
    async def test_a_message_id_is_used_once_in_a_history(self, alice: Transaction, other: list[Sealed]) -> None:
        """DuplicateId: a message id is in this history and this is not a repeat (other content, another order, or only
        some of them)."""
        thread = await alice.create_thread(NewThread())
        await alice.append(thread.id, [user_message("a", "m0"), assistant_message("b", "m1")])
        with pytest.raises(DuplicateId):
            await alice.append(thread.id, other)
        assert await history(alice, thread.id) == ["a", "b"]

    async def test_one_append_names_an_id_once(self, alice: Transaction) -> None:
        """DuplicateId: a message id is in this history and this is not a repeat (other content, another order, or only
        some of them)."""
        thread = await alice.create_thread(NewThread())
        with pytest.raises(DuplicateId):
            await alice.append(thread.id, [user_message("a", "m0"), assistant_message("b", "m0")])
        assert await history(alice, thread.id) == []

    async def test_a_message_id_in_another_history_is_free(self, alice: Transaction, bob: Transaction) -> None:
        """message ids that are already in this history"""
        for tx in (alice, alice, bob):
            thread = await tx.create_thread(NewThread())
            assert not (await tx.append(thread.id, [user_message(thread.id, "m0")])).replayed
            assert await history(tx, thread.id) == [thread.id]

    async def test_a_message_id_that_was_undone_is_free(self, alice: Transaction) -> None:
        """message ids that are already in this history"""
        thread = await create_thread_with(alice, "a", "b")
        await alice.append(thread.id, [user_message("c", "m2")])
        await alice.undo(thread.id)
        assert not (await alice.append(thread.id, [user_message("d", "m2")])).replayed
        assert await history(alice, thread.id) == ["a", "b", "d"]

    async def test_a_repeat_is_known_across_a_fork(self, alice: Transaction) -> None:
        """message ids that are already in this history"""
        source = await alice.create_thread(NewThread())
        said = [user_message("a", "m0"), assistant_message("b", "m1")]
        await alice.append(source.id, said)
        branch = await alice.branch(source.id, NewThread(), at=0)
        assert (await alice.append(branch.id, [said[0]])).replayed
        with pytest.raises(DuplicateId):
            await alice.append(branch.id, [user_message("not a", "m0")])
        assert not (await alice.append(branch.id, [assistant_message("not b", "m1")])).replayed
        assert await history(alice, branch.id) == ["a", "not b"]

    async def test_many_repeats_at_once_write_once(self, alice: Transaction) -> None:
        """A repeated call is safe"""
        thread = await alice.create_thread(NewThread())
        by_key = [alice.append(thread.id, exchange("a"), key="k1") for _ in range(10)]
        by_id = [alice.append(thread.id, [user_message("b", "m1")]) for _ in range(10)]
        answers = await asyncio.gather(*by_key, *by_id)
        assert sorted(answer.replayed for answer in answers) == [False] * 2 + [True] * 18
        assert sorted(await history(alice, thread.id)) == ["a", "b"]
