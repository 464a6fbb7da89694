"""Timelines: branching, moving, undoing and switching, each without copying or losing a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from threadline.core.errors import DuplicateId, HeadMoved, InvalidInput, NotFound
from threadline.core.threads import NewThread, Thread, ThreadChanges
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import (
    assistant_message,
    create_thread_with,
    exchange,
    history,
    texts,
    user_message,
)


class TestBranching:
    @pytest.mark.req("S4-11")
    @pytest.mark.parametrize(
        ("at", "expected"),
        [(None, ["a", "b", "c"]), (2, ["a", "b", "c"]), (1, ["a", "b"]), (0, ["a"]), (-1, [])],
    )
    async def test_a_branch_begins_with_its_sources_history(
        self, alice: Transaction, at: int | None, expected: list[str]
    ) -> None:
        """Creates a thread whose history is the source's up to and including seq `at` (default: all of it; -1:
        nothing)."""
        source = await create_thread_with(alice, "a", "b", "c")
        branch = await alice.branch(source.id, NewThread(id="fork", state_key="fork", title="Fork"), at=at)
        assert (branch.id, branch.state_key, branch.title) == ("fork", "fork", "Fork")
        assert branch.message_count == len(expected)
        assert branch.timeline_id != source.timeline_id
        assert await history(alice, "fork") == expected
        assert await alice.thread("fork") == branch
        assert (await alice.append("fork", exchange("next"))).first_seq == len(expected)

    @pytest.mark.req("S4-11")
    async def test_source_and_branch_are_independent(self, alice: Transaction) -> None:
        """The two are independent afterwards."""
        source = await create_thread_with(alice, "a", "b", new=NewThread(title="Source"))
        branch = await alice.branch(source.id, NewThread(), at=0)
        await alice.append(branch.id, exchange("fork 1", "fork 2"))
        await alice.append(source.id, exchange("c"))
        await alice.update_thread(branch.id, ThreadChanges(title="Fork", metadata={"x": 1}))
        assert await history(alice, source.id) == ["a", "b", "c"]
        assert await history(alice, branch.id) == ["a", "fork 1", "fork 2"]
        stored = await alice.thread(source.id)
        assert stored is not None
        assert (stored.title, stored.metadata, stored.message_count) == ("Source", {}, 3)

    @pytest.mark.req("S4-11")
    async def test_a_branch_outlives_its_source(self, alice: Transaction) -> None:
        """The two are independent afterwards."""
        source = await create_thread_with(alice, "a", "b")
        branch = await alice.branch(source.id, NewThread(), at=1)
        await alice.append(branch.id, exchange("c"))
        await alice.delete_thread(source.id)
        assert await history(alice, branch.id) == ["a", "b", "c"]
        await alice.purge_thread(source.id)
        assert await history(alice, branch.id) == ["a", "b", "c"]
        assert texts(await alice.last_turns(branch.id, 9)) == ["a", "b", "c"]
        assert await alice.thread(source.id, deleted=True) is None

    async def test_what_is_left_out_comes_from_the_source(self, alice: Transaction) -> None:
        """Agent, model, system prompt and working directory that `new` leaves out are copied from the source."""
        setup: dict[str, Any] = {
            "agent_id": "rehearsal",
            "model": "small",
            "system_prompt": "Be brief.",
            "working_dir": "/srv",
        }
        source = await create_thread_with(alice, "a", new=NewThread(title="Source", metadata={"x": 1}, **setup))
        same = await alice.branch(source.id, NewThread())
        assert {field: getattr(same, field) for field in setup} == setup
        assert (same.title, same.metadata) == (None, {})
        assert same.state_key != source.state_key
        other = await alice.branch(source.id, NewThread(model="large", system_prompt="Be long."))
        assert (other.model, other.system_prompt) == ("large", "Be long.")
        assert (other.agent_id, other.working_dir) == ("rehearsal", "/srv")

    async def test_a_branch_needs_a_source_and_a_point(self, alice: Transaction) -> None:
        """NotFound; InvalidInput if `at` is past the head; DuplicateId as in create_thread."""
        source = await create_thread_with(alice, "a", "b", new=NewThread(id="source", state_key="plans"))
        with pytest.raises(NotFound, match="nowhere"):
            await alice.branch("nowhere", NewThread())
        for at in (2, 99, -2):
            with pytest.raises(InvalidInput):
                await alice.branch(source.id, NewThread(), at=at)
        for taken, name in ((NewThread(id="source"), "thread 'source'"), (NewThread(state_key="plans"), "key 'plans'")):
            with pytest.raises(DuplicateId, match=name):
                await alice.branch(source.id, taken)
        await alice.delete_thread(source.id)
        with pytest.raises(NotFound):
            await alice.branch(source.id, NewThread())
        assert (await alice.threads()).items == ()

    async def test_branches_nest_and_fork_inside_their_ancestors(self, alice: Transaction) -> None:
        """Creates a thread whose history is the source's up to and including seq `at`"""
        admin = await create_thread_with(alice, "r0", "r1", "r2", "r3")
        child = await alice.branch(admin.id, NewThread(), at=2)
        await alice.append(child.id, exchange("c3", "c4", "c5"))
        grandchild = await alice.branch(child.id, NewThread(), at=4)
        await alice.append(grandchild.id, exchange("g5", "g6"))
        told = ["r0", "r1", "r2", "c3", "c4", "g5", "g6"]
        for at in range(len(told)):
            fork = await alice.branch(grandchild.id, NewThread(), at=at)
            await alice.append(fork.id, [assistant_message("end")])
            assert await history(alice, fork.id) == [*told[: at + 1], "end"]
        assert await history(alice, grandchild.id) == told
        assert await history(alice, child.id) == ["r0", "r1", "r2", "c3", "c4", "c5"]
        assert await history(alice, admin.id) == ["r0", "r1", "r2", "r3"]

    async def test_a_lineage_of_fifty_reads_as_one_history(self, alice: Transaction) -> None:
        """Creates a thread whose history is the source's up to and including seq `at`"""
        thread, told = await create_thread_with(alice, "m0"), ["m0"]
        for depth in range(1, 51):
            thread = await alice.branch(thread.id, NewThread(), at=len(told) - 1)
            await alice.append(thread.id, exchange(f"m{depth}", f"lost {depth}"))
            told.append(f"m{depth}")
            thread = await alice.move(thread.id, len(told) - 1)
        assert await history(alice, thread.id) == told
        assert texts(await alice.messages(thread.id, first=20, last=30)) == told[20:31]
        assert texts(await alice.last_turns(thread.id, 10)) == told[-10:]

    async def test_a_timeline_verb_writes_small_rows_and_no_message(self, alice: Transaction) -> None:
        """Each of these operations writes one or two small rows and no message, at any length of the history."""
        thread = await create_thread_with(alice, *map(str, range(100)))
        verbs: list[Callable[[], Awaitable[object]]] = [
            lambda: alice.branch(thread.id, NewThread()),
            lambda: alice.move(thread.id, 49),
            lambda: alice.undo(thread.id),
            lambda: alice.save(thread.id, "here", at=10),
            lambda: alice.load(thread.id, "here"),
            lambda: alice.switch(thread.id, thread.timeline_id),
        ]
        for verb in verbs:
            before = await alice.row_counts()
            await verb()
            after = await alice.row_counts()
            assert after["messages"] == before["messages"] == 100
            assert sum(after.values()) - sum(before.values()) <= 2


class TestMoving:
    @pytest.mark.parametrize("seq", [-1, 0, 2, 3])
    async def test_a_thread_continues_from_a_point_of_its_history(self, alice: Transaction, seq: int) -> None:
        """Moves the thread to a new timeline that continues after `seq` of its history, or of another of its
        timelines."""
        thread = await create_thread_with(alice, "a", "b", "c", "d")
        moved = await alice.move(thread.id, seq)
        assert moved.timeline_id != thread.timeline_id
        assert moved.message_count == seq + 1
        assert await alice.thread(thread.id) == moved
        await alice.append(thread.id, exchange("new"))
        assert await history(alice, thread.id) == [*["a", "b", "c", "d"][: seq + 1], "new"]

    async def test_the_old_timeline_stays(self, alice: Transaction) -> None:
        """The previous timeline stays and can be switched to."""
        thread = await create_thread_with(alice, "a", "b", "c")
        await alice.move(thread.id, 0)
        await alice.append(thread.id, exchange("B"))
        back = await alice.switch(thread.id, thread.timeline_id)
        assert (back.timeline_id, back.message_count) == (thread.timeline_id, 3)
        assert await history(alice, thread.id) == ["a", "b", "c"]

    async def test_a_thread_moves_to_another_timeline_of_its_own(self, alice: Transaction) -> None:
        """or of another of its timelines"""
        thread = await create_thread_with(alice, "a", "b", "c")
        await alice.move(thread.id, 0)
        await alice.append(thread.id, exchange("B"))
        moved = await alice.move(thread.id, 1, timeline_id=thread.timeline_id)
        assert moved.timeline_id != thread.timeline_id
        assert await history(alice, thread.id) == ["a", "b"]

    async def test_there_must_be_such_a_seq(self, alice: Transaction) -> None:
        """NotFound; InvalidInput if the history has no message `seq`."""
        thread, other = await create_thread_with(alice, "a", "b", "c"), await create_thread_with(alice, "x", "y", "z")
        moved = await alice.move(thread.id, 1)
        for seq in (2, 99, -2):
            with pytest.raises(InvalidInput):
                await alice.move(thread.id, seq)
        with pytest.raises(InvalidInput):
            await alice.move(thread.id, 3, timeline_id=thread.timeline_id)
        with pytest.raises(NotFound, match="nowhere"):
            await alice.move("nowhere", 0)
        for timeline_id in ("nowhere", other.timeline_id):
            with pytest.raises(NotFound):
                await alice.move(thread.id, 0, timeline_id=timeline_id)
        assert await alice.thread(thread.id) == moved

    @pytest.mark.req("S4-06")
    async def test_moving_keeps_the_thread_as_it_was_set_up(self, alice: Transaction) -> None:
        thread = await create_thread_with(alice, "a", "b", new=NewThread(title="T", system_prompt="Be brief."))
        moved = await alice.move(thread.id, 0)
        kept = set(thread.__struct_fields__) - {"timeline_id", "message_count", "token_count", "updated_at"}
        assert {f: getattr(moved, f) for f in kept} == {f: getattr(thread, f) for f in kept}

    async def test_moving_to_another_timeline_is_activity(self, alice: Transaction, clock: ManualClock) -> None:
        """Moving a thread counts as activity."""
        thread = await create_thread_with(alice, "a", "b", "c")
        clock.advance()
        await alice.save(thread.id, "here")
        assert await alice.thread(thread.id) == thread
        verbs: list[Callable[[], Awaitable[Thread]]] = [
            lambda: alice.undo(thread.id),
            lambda: alice.switch(thread.id, thread.timeline_id),
            lambda: alice.move(thread.id, 0),
            lambda: alice.load(thread.id, "here"),
        ]
        for verb in verbs:
            at = clock.advance()
            assert (await verb()).updated_at == at


class TestUndoing:
    async def test_undo_goes_back_before_the_last_question(self, alice: Transaction) -> None:
        """Moves the thread to a new timeline that ends before its last user message."""
        thread = await alice.create_thread(NewThread())
        await alice.append(
            thread.id, [*exchange("u0", "a1"), user_message("u2"), assistant_message("a3"), assistant_message("a4")]
        )
        undone = await alice.undo(thread.id)
        assert undone.message_count == 2
        assert undone.timeline_id != thread.timeline_id
        assert await history(alice, thread.id) == ["u0", "a1"]
        await alice.undo(thread.id)
        assert await history(alice, thread.id) == []
        await alice.switch(thread.id, thread.timeline_id)
        assert await history(alice, thread.id) == ["u0", "a1", "u2", "a3", "a4"]

    async def test_undo_reaches_into_the_source_of_a_branch(self, alice: Transaction) -> None:
        """ends before its last user message"""
        source = await create_thread_with(alice, "u0", "a1", "u2", "a3")
        branch = await alice.branch(source.id, NewThread())
        await alice.undo(branch.id)
        assert await history(alice, branch.id) == ["u0", "a1"]
        assert await history(alice, source.id) == ["u0", "a1", "u2", "a3"]

    async def test_there_must_be_a_question_to_undo(self, alice: Transaction) -> None:
        """InvalidInput if the history has no user message."""
        thread = await alice.create_thread(NewThread())
        with pytest.raises(InvalidInput):
            await alice.undo(thread.id)
        await alice.append(thread.id, [assistant_message("welcome")])
        with pytest.raises(InvalidInput):
            await alice.undo(thread.id)
        assert await history(alice, thread.id) == ["welcome"]
        with pytest.raises(NotFound, match="nowhere"):
            await alice.undo("nowhere")


class TestSwitching:
    async def test_a_thread_stands_at_the_end_of_the_timeline(self, alice: Transaction) -> None:
        """Moves the thread back to the end of one of its timelines"""
        thread = await create_thread_with(alice, "a", "b")
        first = thread.timeline_id
        second = (await alice.move(thread.id, 0)).timeline_id
        await alice.append(thread.id, exchange("B", "C", "D"))
        await alice.switch(thread.id, first)
        await alice.append(thread.id, exchange("c"))
        assert (await alice.switch(thread.id, second)).message_count == 4
        assert await history(alice, thread.id) == ["a", "B", "C", "D"]
        assert (await alice.switch(thread.id, second)).message_count == 4
        assert (await alice.switch(thread.id, first)).message_count == 3
        assert await history(alice, thread.id) == ["a", "b", "c"]

    async def test_a_switch_to_where_it_stands_changes_nothing(self, alice: Transaction, clock: ManualClock) -> None:
        """if it is there already, nothing changes"""
        thread = await create_thread_with(alice, "a", "b")
        clock.advance()
        assert await alice.switch(thread.id, thread.timeline_id) == thread
        assert await alice.thread(thread.id) == thread

    async def test_only_its_own_timelines_will_do(self, alice: Transaction) -> None:
        """NotFound."""
        source = await create_thread_with(alice, "a")
        branch = await alice.branch(source.id, NewThread())
        for timeline_id in ("nowhere", source.timeline_id):
            with pytest.raises(NotFound):
                await alice.switch(branch.id, timeline_id)
        with pytest.raises(NotFound, match="nowhere"):
            await alice.switch("nowhere", source.timeline_id)
        assert await alice.thread(branch.id) == branch

    async def test_every_timeline_is_listed_oldest_first(self, alice: Transaction) -> None:
        """Every timeline of the thread, oldest first."""
        thread = await create_thread_with(alice, "a", "b", "c")
        moved = await alice.move(thread.id, 1)
        await alice.append(thread.id, exchange("C", "D"))
        undone = await alice.undo(thread.id)
        await alice.switch(thread.id, thread.timeline_id)
        found = await alice.timelines(thread.id)
        assert [t.id for t in found] == [thread.timeline_id, moved.timeline_id, undone.timeline_id]
        assert [t.message_count for t in found] == [3, 4, 2]
        assert found[0].parent is None
        assert found[1].parent == (thread.timeline_id, 1)
        assert {t.thread_id for t in found} == {thread.id}

    async def test_the_timelines_of_an_unknown_thread_are_not_found(self, alice: Transaction) -> None:
        """NotFound."""
        with pytest.raises(NotFound, match="nowhere"):
            await alice.timelines("nowhere")


class TestExpectedHead:
    @pytest.mark.req("G-10")
    @pytest.mark.parametrize("expected", ["count", "timeline"])
    async def test_a_move_from_elsewhere_changes_nothing(self, alice: Transaction, expected: str) -> None:
        """A move with `expected_count` or `expected_timeline` is HeadMoved, and changes nothing, if the thread's end is
        elsewhere when it commits."""
        thread = await create_thread_with(alice, "a", "b", "c")
        await alice.save(thread.id, "here")
        stale: dict[str, Any] = {"expected_count": 2} if expected == "count" else {"expected_timeline": "elsewhere"}
        true: dict[str, Any] = {"expected_count": 3, "expected_timeline": thread.timeline_id}
        moves: list[Callable[..., Awaitable[Thread]]] = [
            lambda **head: alice.move(thread.id, 1, **head),
            lambda **head: alice.undo(thread.id, **head),
            lambda **head: alice.switch(thread.id, thread.timeline_id, **head),
            lambda **head: alice.load(thread.id, "here", **head),
        ]
        for move in moves:
            with pytest.raises(HeadMoved):
                await move(**stale)
            assert await history(alice, thread.id) == ["a", "b", "c"]
            assert len(await alice.timelines(thread.id)) == 1
        await alice.move(thread.id, 1, **true)
        assert await history(alice, thread.id) == ["a", "b"]
