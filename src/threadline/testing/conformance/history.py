"""What exports read and imports write: dated threads and timelines, turns that have ended, points and summaries."""

from __future__ import annotations

import datetime as dt
from functools import partial

import pytest

from threadline.core.errors import InvalidInput, NotFound
from threadline.core.history import PastTurn, ThreadDates
from threadline.core.threads import NewThread, Point
from threadline.ports import Transaction
from threadline.testing.conformance.message_builders import clean_text, create_thread_with, exchange, texts

LONG_AGO = dt.datetime(2021, 3, 4, 5, 6, 7, 890, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


def past_turn(id: str, **fields: object) -> PastTurn:
    plain: dict[str, object] = {
        "surface": "telegram",
        "status": "executed",
        "created_at": LONG_AGO,
        "finished_at": LONG_AGO + HOUR,
        "agent_id": "research",
        "provider": "openai",
        "model": "gpt-4",
        "usage": {"input_tokens": 7, "cost": 0.25},
        "request_seq": 0,
        "reply_seq": 1,
    }
    return PastTurn(**{"id": id, **plain, **fields})  # type: ignore[arg-type]  # the tests also give wrong fields


class TestDatedThreads:
    @pytest.mark.req("G-08")
    async def test_threads_and_timelines_are_created_at_a_time_of_the_past(self, alice: Transaction) -> None:
        """`created_at` is the time of both, for a thread that comes from elsewhere. `created_at` is the time of the new
        timeline and of the activity, for one that comes from elsewhere."""
        thread = await alice.create_thread(NewThread(), created_at=LONG_AGO)
        assert (thread.created_at, thread.updated_at) == (LONG_AGO, LONG_AGO)
        await alice.append(thread.id, exchange("a", "b"))
        moved = await alice.move(thread.id, 0, created_at=LONG_AGO + HOUR)
        first, second = await alice.timelines(thread.id)
        assert (first.created_at, second.created_at) == (LONG_AGO, LONG_AGO + HOUR)
        assert (moved.updated_at, second.parent) == (LONG_AGO + HOUR, Point(first.id, 0))

    @pytest.mark.req("G-08")
    async def test_a_thread_gets_the_times_of_its_source(self, alice: Transaction) -> None:
        """Sets the times of the thread and its token count to those of the source: the last step of an import."""
        old, new = await create_thread_with(alice, "old"), await create_thread_with(alice, "new")
        await alice.date_thread(new.id, ThreadDates(LONG_AGO, None, None, 42))
        page = await alice.threads()
        assert [thread.id for thread in page] == [old.id, new.id]
        assert (page.items[1].updated_at, page.items[1].token_count) == (LONG_AGO, 42)
        await alice.date_thread(old.id, ThreadDates(LONG_AGO, LONG_AGO + HOUR, None, 0))
        assert [thread.id for thread in await alice.threads(archived=True)] == [old.id]

    @pytest.mark.req("G-08")
    async def test_a_deleted_thread_is_read_only_if_asked_for(self, alice: Transaction, bob: Transaction) -> None:
        """A deleted thread is read only with `deleted`; of a deleted thread only with `deleted`. NotFound if there is
        no such thread, or it is deleted."""
        thread = await create_thread_with(alice, "a", "b")
        await alice.date_thread(thread.id, ThreadDates(LONG_AGO, None, LONG_AGO + HOUR, 0))
        assert await alice.thread(thread.id) is None
        for read in (alice.messages, alice.timelines):
            with pytest.raises(NotFound):
                await read(thread.id)
        for id in (thread.id, "unknown"):
            with pytest.raises(NotFound):
                await alice.date_thread(id, ThreadDates(LONG_AGO, None, None, 0))
        assert texts(await alice.messages(thread.id, deleted=True)) == ["a", "b"]
        (timeline,) = await alice.timelines(thread.id, deleted=True)
        assert texts(await alice.messages(thread.id, first=1, timeline_id=timeline.id, deleted=True)) == ["b"]
        for read in (bob.messages, bob.timelines):
            with pytest.raises(NotFound):
                await read(thread.id, deleted=True)


class TestPastTurns:
    @pytest.mark.req("G-08")
    async def test_turns_are_added_as_they_were_in_their_order(self, alice: Transaction, bob: Transaction) -> None:
        """Adds turns that ended elsewhere, in this order, as they are: nothing is counted, sent or run. The turns of a
        thread, deleted or not, oldest first: those after the turn `after`. [] if there is no such thread."""
        thread = await create_thread_with(alice, "a", "b")
        turns = [
            past_turn(id, status=status) for id, status in (("z", "executed"), ("a", "stopped"), ("m", "executed"))
        ]
        assert await alice.add_turns(thread.id, turns) == []
        found = await alice.past_turns(thread.id)
        assert [(turn.id, turn.status) for turn in found] == [("z", "executed"), ("a", "stopped"), ("m", "executed")]
        assert [turn.id for turn in await alice.past_turns(thread.id, after="z", limit=1)] == ["a"]
        for field in PastTurn.__struct_fields__:
            assert getattr(found[0], field) == getattr(turns[0], field)
        assert await alice.active_turns(thread.id) == []
        assert (await alice.surfaces([thread.id]))[thread.id] == ("telegram",)
        assert await alice.past_turns("nothing") == await bob.past_turns(thread.id) == []
        await alice.delete_thread(thread.id)
        assert await alice.past_turns(thread.id) == found

    @pytest.mark.req("G-08")
    async def test_adding_turns_again_changes_nothing(self, alice: Transaction, bob: Transaction) -> None:
        """A turn that the thread has is not changed. Returns the ids of those that were not stored, because another
        thread of the tenant has a turn with this id."""
        thread, other = await create_thread_with(alice, "a"), await create_thread_with(alice, "b")
        foreign = await create_thread_with(bob, "c")
        await alice.add_turns(thread.id, [past_turn("one"), past_turn("two")])
        assert await alice.add_turns(thread.id, [past_turn("two", status="stopped"), past_turn("three")]) == []
        assert await alice.add_turns(other.id, [past_turn("one"), past_turn("four")]) == ["one"]
        assert await bob.add_turns(foreign.id, [past_turn("two")]) == ["two"]
        assert [turn.status for turn in await alice.past_turns(thread.id)] == ["executed"] * 3
        assert await alice.add_turns(thread.id, []) == []

    @pytest.mark.req("G-08")
    async def test_only_turns_that_have_ended_are_added(self, alice: Transaction, bob: Transaction) -> None:
        """NotFound; InvalidInput for a turn that has not ended."""
        thread = await create_thread_with(alice, "a")
        for status in ("running", "accepted", "done"):
            with pytest.raises(InvalidInput, match="must have ended"):
                await alice.add_turns(thread.id, [past_turn("first"), past_turn("second", status=status)])
        assert await alice.past_turns(thread.id) == []
        for owner, id in ((bob, thread.id), (alice, "nothing")):
            with pytest.raises(NotFound):
                await owner.add_turns(id, [past_turn("first")])


class TestRestoredPoints:
    @pytest.mark.req("G-08")
    async def test_points_of_any_timeline_are_saved_with_their_time(self, alice: Transaction, bob: Transaction) -> None:
        """Saves a point of one of the thread's timelines. False, and nothing changes, if the owner has a point of this
        name. InvalidInput if the timeline has no such seq. The owner's saved points on timelines of this thread,
        deleted or not, by name."""
        thread = await create_thread_with(alice, "a", "b", "c")
        await alice.move(thread.id, 0)
        save = partial(alice.add_saved_point, thread.id, timeline_id=thread.timeline_id, created_at=LONG_AGO)
        assert await save("start", 2)
        assert not await save("start", 1)
        (point,) = await alice.points_in(thread.id)
        assert (point.name, point.point, point.created_at) == ("start", Point(thread.timeline_id, 2), LONG_AGO)
        assert point == await alice.saved_point("start")
        assert await bob.points_in(thread.id) == []
        with pytest.raises(InvalidInput):
            await save("far", 3)
        for timeline_id, owner in (("nothing", alice), (thread.timeline_id, bob)):
            with pytest.raises(NotFound):
                await owner.add_saved_point(thread.id, "x", 0, timeline_id=timeline_id, created_at=LONG_AGO)
        assert await save("after", 0)
        await alice.delete_thread(thread.id)
        assert [each.name for each in await alice.points_in(thread.id)] == ["after", "start"]

    @pytest.mark.req("G-08")
    async def test_summaries_of_any_timeline_are_stored_with_their_time(
        self, alice: Transaction, bob: Transaction
    ) -> None:
        """Stores a summary of the history up to and including `seq` of one of the thread's timelines. False, and
        nothing changes, if there is one for that point. Every summary on a timeline of the thread, deleted or not, in
        order of timeline and seq."""
        thread = await create_thread_with(alice, "a", "b", "c")
        moved = await alice.move(thread.id, 1)
        for text, seq, timeline_id, stored in (
            ("first", 2, thread.timeline_id, True),
            ("again", 2, thread.timeline_id, False),
            ("shared", 0, moved.timeline_id, True),
        ):
            assert stored is await alice.add_summary(
                thread.id, seq, clean_text(text), timeline_id=timeline_id, created_at=LONG_AGO, source="person"
            )
        found = await alice.summaries(thread.id)
        assert [(summary.text, summary.point) for summary in found] == [
            ("shared", Point(thread.timeline_id, 0)),
            ("first", Point(thread.timeline_id, 2)),
        ]
        assert {(summary.created_at, summary.source) for summary in found} == {(LONG_AGO, "person")}
        present = await alice.summary(thread.id)
        assert present is not None
        assert present.text == "shared"
        assert await bob.summaries(thread.id) == []
        with pytest.raises(InvalidInput):
            await alice.add_summary(thread.id, 2, clean_text("far"), timeline_id=moved.timeline_id, created_at=LONG_AGO)
        await alice.delete_thread(thread.id)
        assert await alice.summaries(thread.id) == found
