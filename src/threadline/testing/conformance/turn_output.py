"""Chunks of a turn's stream, runs of its tools, and summaries. A process that lost the lease can write none of it."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from threadline.core.errors import Conflict, InvalidInput, NotFound
from threadline.core.threads import NewThread
from threadline.core.turns import Chunk, TurnEnd
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import (
    add_turn,
    clean_json,
    clean_text,
    create_thread_with,
    exchange,
)


async def run(tx: Transaction, clock: ManualClock, turn_id: str = "turn-1") -> int:
    """A turn that runs; its fence."""
    thread = await tx.create_thread(NewThread())
    await add_turn(tx, turn_id, thread.id, "web")
    turn = await tx.lease_turn(turn_id, "w1", seconds=30)
    assert turn is not None
    return turn.fence


async def take_over(tx: Transaction, clock: ManualClock, turn_id: str = "turn-1") -> int:
    clock.advance(31)
    turn = await tx.lease_turn(turn_id, "w2", seconds=30)
    assert turn is not None
    return turn.fence


def chunks(first: int, last: int, word: str = "chunk") -> list[Chunk]:
    return [Chunk(n, f'{{"n":{n},"is":"{word} é"}}'.encode()) for n in range(first, last + 1)]


class TestChunks:
    async def test_chunks_can_be_read_again(self, alice: Transaction, clock: ManualClock) -> None:
        """Stores chunks of the stream. Chunks with a number above `after`, by number."""
        fence = await run(alice, clock)
        assert await alice.put_chunks("turn-1", fence, chunks(1, 3)) is True
        assert await alice.put_chunks("turn-1", fence, chunks(4, 9)) is True
        assert await alice.chunks("turn-1") == chunks(1, 9)
        assert await alice.chunks("turn-1", after=4) == chunks(5, 9)
        assert await alice.chunks("turn-1", after=4, limit=2) == chunks(5, 6)
        assert await alice.chunks("turn-1", after=9) == []
        assert await alice.chunks("nowhere") == []

    async def test_a_chunk_number_is_written_once(self, alice: Transaction, clock: ManualClock) -> None:
        """A number that is stored already is not changed."""
        fence = await run(alice, clock)
        await alice.put_chunks("turn-1", fence, chunks(1, 3))
        assert await alice.put_chunks("turn-1", fence, chunks(2, 5, "other")) is True
        assert await alice.chunks("turn-1") == chunks(1, 3) + chunks(4, 5, "other")

    async def test_an_old_fence_stores_no_chunk(self, alice: Transaction, clock: ManualClock) -> None:
        """False if the fence is old."""
        old = await run(alice, clock)
        new = await take_over(alice, clock)
        assert await alice.put_chunks("turn-1", old, chunks(1, 1)) is False
        assert await alice.chunks("turn-1") == []
        assert await alice.put_chunks("turn-1", new, chunks(1, 1)) is True

    async def test_chunks_of_turns_that_ended_long_ago_are_dropped(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        """Removes the chunks of turns that ended so long ago; returns how many chunks."""
        for turn_id in ("over", "just-over", "running"):
            fence = await run(alice, clock, turn_id)
            await alice.put_chunks(turn_id, fence, chunks(1, 3))
            clock.advance()
            if turn_id != "running":
                await alice.finish_turn(turn_id, fence, TurnEnd("executed"))
        assert await alice.drop_chunks(older_than=dt.timedelta(seconds=1)) == 3
        assert [len(await alice.chunks(id)) for id in ("over", "just-over", "running")] == [0, 3, 3]
        assert await alice.drop_chunks(older_than=dt.timedelta(0)) == 3
        assert [len(await alice.chunks(id)) for id in ("over", "just-over", "running")] == [0, 0, 3]

    async def test_the_system_scope_drops_the_tenants_chunks(
        self, alice: Transaction, bob: Transaction, system: Transaction, other_tenant: Transaction, clock: ManualClock
    ) -> None:
        """The system scope's are the tenant's, a user's their own."""
        for tx, turn_id in ((alice, "a"), (bob, "b"), (other_tenant, "far")):
            fence = await run(tx, clock, turn_id)
            await tx.put_chunks(turn_id, fence, chunks(1, 2))
            await tx.finish_turn(turn_id, fence, TurnEnd("executed"))
        assert await alice.drop_chunks(older_than=dt.timedelta(seconds=-1)) == 2
        assert len(await bob.chunks("b")) == 2
        assert await system.drop_chunks(older_than=dt.timedelta(seconds=-1)) == 2
        assert await bob.chunks("b") == []
        assert len(await other_tenant.chunks("far")) == 2

    async def test_a_watch_wakes_when_a_chunk_is_stored(
        self, store: Store, alice: Transaction, clock: ManualClock
    ) -> None:
        """Returns when the watched subject may have changed, or after `seconds`."""
        fence = await run(alice, clock)
        async with store.watch(alice.scope, "turn-1") as watch, asyncio.timeout(30):
            for n in range(1, 4):
                waiting = asyncio.create_task(watch.wait(60))
                # Lets the watch begin before the change it must notice.
                await asyncio.sleep(0)
                await alice.put_chunks("turn-1", fence, chunks(n, n))
                await waiting
                assert await alice.chunks("turn-1") == chunks(1, n)
            waiting = asyncio.create_task(watch.wait(60))
            await alice.finish_turn("turn-1", fence, TurnEnd("executed"))
            await waiting
            await watch.wait(0.01)


class TestToolRuns:
    async def test_the_intent_to_run_a_tool_is_stored_once(self, alice: Transaction, clock: ManualClock) -> None:
        """Stores the intent to run a tool (`is_new`). If this turn has a run under the call id, returns that one,
        unchanged and not `is_new`: the caller decides whether it may run again."""
        fence = await run(alice, clock)
        first = await alice.start_tool_run("turn-1", fence, "c1", "mail", clean_json({"to": "x"}), repeatable=False)
        assert first is not None
        assert first.is_new
        assert (first.turn_id, first.call_id, first.name, first.repeatable) == ("turn-1", "c1", "mail", False)
        assert (first.input_json, first.output_json, first.finished_at) == (b'{"to":"x"}', None, None)
        again = await alice.start_tool_run("turn-1", fence, "c1", "other", clean_json({}), repeatable=True)
        assert again is not None
        assert not again.is_new
        assert (again.name, again.input_json, again.repeatable) == ("mail", b'{"to":"x"}', False)

    async def test_a_run_survives_a_new_owner_of_the_turn(self, alice: Transaction, clock: ManualClock) -> None:
        """Stores the output of a run. False if the fence is old or there is no such run."""
        old = await run(alice, clock)
        await alice.start_tool_run("turn-1", old, "c1", "mail", clean_json({}), repeatable=False)
        at = clock.advance()
        assert await alice.finish_tool_run("turn-1", old, "c1", clean_json({"sent": 2**70})) is True
        new = await take_over(alice, clock)
        found = await alice.start_tool_run("turn-1", new, "c1", "mail", clean_json({}), repeatable=False)
        assert found is not None
        assert (found.is_new, found.finished_at) == (False, at)
        assert found.output_json == b'{"sent":1180591620717411303424}'

    async def test_an_old_fence_starts_and_finishes_nothing(self, alice: Transaction, clock: ManualClock) -> None:
        """None if the fence is old."""
        old = await run(alice, clock)
        await alice.start_tool_run("turn-1", old, "c1", "mail", clean_json({}), repeatable=False)
        await take_over(alice, clock)
        before = await alice.tool_runs("turn-1")
        assert await alice.start_tool_run("turn-1", old, "c1", "mail", clean_json({}), repeatable=False) is None
        assert await alice.start_tool_run("turn-1", old, "c2", "mail", clean_json({}), repeatable=False) is None
        assert await alice.finish_tool_run("turn-1", old, "c1", clean_json({})) is False
        assert await alice.tool_runs("turn-1") == before

    async def test_runs_are_listed_as_they_were_started(self, alice: Transaction, clock: ManualClock) -> None:
        """In the order in which they were started."""
        fence = await run(alice, clock)
        for call_id in ("c", "a", "b"):
            await alice.start_tool_run("turn-1", fence, call_id, "t", clean_json({}), repeatable=True)
        assert [tool.call_id for tool in await alice.tool_runs("turn-1")] == ["c", "a", "b"]
        assert await alice.finish_tool_run("turn-1", fence, "nothing", clean_json({})) is False
        assert await alice.tool_runs("nowhere") == []


class TestSummaries:
    async def test_the_summary_that_covers_most_is_used(self, alice: Transaction, clock: ManualClock) -> None:
        """Stores a summary of the history up to and including `seq`; The summary that covers most of the present
        history"""
        thread = await create_thread_with(alice, "a", "b", "c", "d")
        assert await alice.summary(thread.id) is None
        later = await alice.put_summary(thread.id, 2, clean_text("a, b and c"))
        await alice.put_summary(thread.id, 0, clean_text("a"))
        assert (later.point.seq, later.text, later.created_at) == (2, "a, b and c", clock.now())
        assert await alice.summary(thread.id) == later

    async def test_a_later_summary_replaces_one_for_the_same_point(self, alice: Transaction) -> None:
        """a later one for the same point replaces it"""
        thread = await create_thread_with(alice, "a", "b")
        await alice.put_summary(thread.id, 1, clean_text("first try"))
        better = await alice.put_summary(thread.id, 1, clean_text("second try"))
        assert await alice.summary(thread.id) == better
        branch = await alice.branch(thread.id, NewThread())
        best = await alice.put_summary(branch.id, 1, clean_text("third try"))
        assert await alice.summary(branch.id) == best

    async def test_only_summaries_of_the_present_history_are_used(self, alice: Transaction) -> None:
        """those of other branches do not count"""
        thread = await create_thread_with(alice, "a", "b", "c", "d")
        early = await alice.put_summary(thread.id, 0, clean_text("a"))
        late = await alice.put_summary(thread.id, 3, clean_text("a to d"))
        branch = await alice.branch(thread.id, NewThread(), at=2)
        await alice.append(branch.id, exchange("C", "D"))
        assert await alice.summary(branch.id) == early
        own = await alice.put_summary(branch.id, 4, clean_text("a to D"))
        assert await alice.summary(branch.id) == own
        assert await alice.summary(thread.id) == late
        await alice.move(thread.id, 1)
        assert await alice.summary(thread.id) == early
        await alice.move(thread.id, -1)
        assert await alice.summary(thread.id) is None

    @pytest.mark.req("A-05")
    async def test_a_summary_says_who_wrote_it(self, alice: Transaction) -> None:
        thread = await create_thread_with(alice, "a", "b")
        extract = await alice.put_summary(thread.id, 0, clean_text("a"))
        assert (extract.source, extract.model) == ("extract", None)
        written = await alice.put_summary(thread.id, 0, clean_text("A"), source="model", model="gpt")
        assert await alice.summary(thread.id) == written
        assert (written.source, written.model, written.label) == ("model", "gpt", "summarised by gpt")

    @pytest.mark.req("A-05")
    async def test_a_summary_of_what_has_changed_is_not_stored(self, alice: Transaction) -> None:
        """Conflict, and nothing is stored, if the present history has its message `seq` from another timeline than
        `timeline_id`, or if its present summary is not `earlier` (None: it has none)"""
        thread = await create_thread_with(alice, "a", "b", "c", "d")
        first = await alice.put_summary(thread.id, 0, clean_text("a"), earlier=None)
        edited = await alice.put_summary(thread.id, 0, clean_text("edited"), source="person", earlier=first)
        for earlier in (None, first):
            with pytest.raises(Conflict, match="read it again"):
                await alice.put_summary(thread.id, 2, clean_text("a to c"), earlier=earlier)
        assert await alice.summary(thread.id) == edited
        await alice.move(thread.id, 1)
        await alice.append(thread.id, exchange("C", "D"))
        with pytest.raises(Conflict, match="read it again"):
            await alice.put_summary(thread.id, 2, clean_text("a to c"), timeline_id=thread.timeline_id, earlier=edited)
        assert await alice.summary(thread.id) == edited
        kept = await alice.put_summary(thread.id, 1, clean_text("a, b"), timeline_id=thread.timeline_id, earlier=edited)
        assert await alice.summary(thread.id) == kept

    @pytest.mark.req("A-05")
    async def test_one_caller_at_a_time_may_summarise(self, alice: Transaction, clock: ManualClock) -> None:
        """Lets the caller alone summarise the thread for so long. False if another caller may. Ends the present
        claim."""
        thread = await create_thread_with(alice, "a", "b")
        assert await alice.claim_compaction(thread.id, seconds=60)
        assert not await alice.claim_compaction(thread.id, seconds=60)
        clock.advance(61)
        assert await alice.claim_compaction(thread.id, seconds=60)
        await alice.release_compaction(thread.id)
        assert await alice.claim_compaction(thread.id, seconds=60)
        for call in (alice.claim_compaction("nowhere", seconds=1), alice.release_compaction("nowhere")):
            with pytest.raises(NotFound):
                await call

    async def test_a_summary_needs_a_thread_and_a_point(self, alice: Transaction) -> None:
        """NotFound; InvalidInput if there is no such seq."""
        with pytest.raises(NotFound, match="nowhere"):
            await alice.put_summary("nowhere", 0, clean_text("x"))
        thread = await create_thread_with(alice, "a", "b")
        for seq in (2, 99, -1):
            with pytest.raises(InvalidInput):
                await alice.put_summary(thread.id, seq, clean_text("x"))
        assert await alice.summary(thread.id) is None
