"""Saved points: names for points of the log, loaded into any thread."""

from __future__ import annotations

import pytest

from threadline.core.errors import InvalidInput, NotFound
from threadline.core.threads import NewThread
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history


class TestSaving:
    async def test_a_point_gets_a_name(self, alice: Transaction, clock: ManualClock) -> None:
        """Saves the point under a name of the owner"""
        thread = await create_thread_with(alice, "a", "b", "c")
        saved = await alice.save(thread.id, "before the storm")
        assert (saved.name, saved.thread_id, saved.point.seq) == ("before the storm", thread.id, 2)
        assert saved.created_at == clock.now()
        assert await alice.saved_point("before the storm") == saved
        assert (await alice.save(thread.id, "earlier", at=0)).point.seq == 0
        assert (await alice.save(thread.id, "before it all", at=-1)).point.seq == -1

    async def test_a_name_used_before_moves(self, alice: Transaction) -> None:
        """an existing name is moved"""
        thread, other = await create_thread_with(alice, "a", "b"), await create_thread_with(alice, "x", "y", "z")
        await alice.save(thread.id, "here", at=0)
        moved = await alice.save(other.id, "here", at=1)
        assert await alice.saved_points() == [moved]
        await alice.load(thread.id, "here")
        assert await history(alice, thread.id) == ["x", "y"]

    async def test_saving_needs_a_thread_and_a_point(self, alice: Transaction) -> None:
        """NotFound; InvalidInput if `at` is past the head."""
        thread = await create_thread_with(alice, "a", "b")
        with pytest.raises(NotFound, match="nowhere"):
            await alice.save("nowhere", "here")
        for at in (2, 99, -2):
            with pytest.raises(InvalidInput):
                await alice.save(thread.id, "here", at=at)
        assert await alice.saved_points() == []

    async def test_an_empty_thread_can_be_saved(self, alice: Transaction) -> None:
        empty, thread = await alice.create_thread(NewThread()), await create_thread_with(alice, "a")
        assert (await alice.save(empty.id, "blank")).point.seq == -1
        assert (await alice.load(thread.id, "blank")).message_count == 0
        assert await history(alice, thread.id) == []

    async def test_saved_points_are_listed_by_name(self, alice: Transaction, bob: Transaction) -> None:
        """The owner's saved points, by name."""
        thread, theirs = await create_thread_with(alice, "a"), await create_thread_with(bob, "b")
        for name in ("pear", "apple", "Zebra", "élan"):
            await alice.save(thread.id, name)
        await bob.save(theirs.id, "apple")
        assert [point.name for point in await alice.saved_points()] == ["Zebra", "apple", "pear", "élan"]
        found = await alice.saved_point("apple")
        assert found is not None
        assert found.thread_id == thread.id
        assert await alice.saved_point("missing") is None

    async def test_a_saved_point_can_be_forgotten(self, alice: Transaction) -> None:
        """False if there was none."""
        thread = await create_thread_with(alice, "a")
        await alice.save(thread.id, "here")
        assert await alice.forget_saved_point("here") is True
        assert await alice.forget_saved_point("here") is False
        assert await alice.saved_point("here") is None
        assert await history(alice, thread.id) == ["a"]


class TestLoading:
    async def test_a_thread_goes_back_to_its_saved_point(self, alice: Transaction) -> None:
        """Moves the thread to a new timeline that continues from the saved point, which may belong to any thread of the
        owner."""
        thread = await create_thread_with(alice, "a", "b")
        await alice.save(thread.id, "here")
        await alice.append(thread.id, exchange("c", "d"))
        loaded = await alice.load(thread.id, "here")
        assert loaded.timeline_id != thread.timeline_id
        assert loaded.message_count == 2
        await alice.append(thread.id, exchange("C"))
        assert await history(alice, thread.id) == ["a", "b", "C"]
        await alice.switch(thread.id, thread.timeline_id)
        assert await history(alice, thread.id) == ["a", "b", "c", "d"]

    @pytest.mark.req("S4-06")
    async def test_another_threads_point_replaces_the_history_alone(self, alice: Transaction) -> None:
        """which may belong to any thread of the owner"""
        source = await create_thread_with(alice, "a", "b", "c", new=NewThread(system_prompt="Be long."))
        await alice.save(source.id, "here", at=1)
        thread = await create_thread_with(alice, "x", new=NewThread(system_prompt="Be brief.", title="Mine"))
        loaded = await alice.load(thread.id, "here")
        assert (loaded.id, loaded.title, loaded.system_prompt) == (thread.id, "Mine", "Be brief.")
        await alice.append(thread.id, exchange("C"))
        assert await history(alice, thread.id) == ["a", "b", "C"]
        assert await history(alice, source.id) == ["a", "b", "c"]

    async def test_a_point_on_a_timeline_left_behind_still_loads(self, alice: Transaction) -> None:
        """Moves the thread to a new timeline that continues from the saved point"""
        thread = await create_thread_with(alice, "a", "b", "c", "d")
        await alice.move(thread.id, 0)
        await alice.append(thread.id, exchange("B", "C"))
        await alice.save(thread.id, "second try")
        await alice.switch(thread.id, thread.timeline_id)
        await alice.load(thread.id, "second try")
        assert await history(alice, thread.id) == ["a", "B", "C"]

    async def test_what_was_saved_in_a_deleted_thread_still_loads(self, alice: Transaction) -> None:
        """which may belong to any thread of the owner"""
        source, thread = await create_thread_with(alice, "a", "b"), await create_thread_with(alice, "x")
        await alice.save(source.id, "here")
        await alice.delete_thread(source.id)
        await alice.load(thread.id, "here")
        assert await history(alice, thread.id) == ["a", "b"]

    async def test_loading_needs_a_thread_and_a_name(self, alice: Transaction) -> None:
        """NotFound."""
        thread = await create_thread_with(alice, "a")
        await alice.save(thread.id, "here")
        with pytest.raises(NotFound, match="missing"):
            await alice.load(thread.id, "missing")
        with pytest.raises(NotFound, match="nowhere"):
            await alice.load("nowhere", "here")
