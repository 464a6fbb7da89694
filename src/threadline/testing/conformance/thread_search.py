"""Search for threads: titles, hits grouped by thread, pages and filters."""

from __future__ import annotations

import pytest

from threadline.core.errors import InvalidCursor
from threadline.core.messages import to_us
from threadline.core.thread_filters import ThreadFilter
from threadline.core.threads import NewThread, ThreadChanges
from threadline.ports import Store, Transaction
from threadline.testing.conformance.message_builders import clean_text, create_thread_with, user_message

pytestmark = pytest.mark.req("P-01")


async def ids(tx: Transaction, query: str, **more: object) -> list[str]:
    page = await tx.search_threads(query, **more)  # type: ignore[arg-type]  # keywords of each test
    return [found.thread_id for found in page]


class TestSearchingThreads:
    async def test_a_thread_is_found_by_its_title(self, alice: Transaction) -> None:
        """Threads that are not deleted: those whose title contains all the words"""
        thread = await create_thread_with(
            alice, "nothing of it", new=NewThread(state_key="z", title="Zebracorn drawing")
        )
        for query in ("zebracorn", "drawing zebra", "ZEBRA", "drawing "):
            (found,) = await alice.search_threads(query)
            assert (found.thread_id, found.state_key, found.title) == (thread.id, "z", "Zebracorn drawing")
            assert (found.is_title_match, found.hit_count, found.hits) == (True, 0, ())
            assert found.updated_at == thread.updated_at
        assert await alice.search("zebracorn") == []
        assert await ids(alice, "zebracorn nothing") == await ids(alice, "rawing") == []

    async def test_titles_are_found_as_they_are_now(self, alice: Transaction, store: Store) -> None:
        thread = await alice.create_thread(NewThread(title="Zebra"))
        assert await ids(alice, "zebra") == [thread.id]
        await alice.update_thread(thread.id, ThreadChanges(title="日本語のメール"))
        assert await ids(alice, "zebra") == []
        assert await ids(alice, "メール") == [thread.id]
        await alice.update_thread(thread.id, ThreadChanges(title=None))
        assert await ids(alice, "メール") == []
        other = await alice.create_thread(NewThread())
        await alice.append(other.id, [user_message("a giraffe")], title=clean_text("Giraffe"))
        assert [found.is_title_match for found in await alice.search_threads("giraffe")] == [True]
        await store.index_pending()
        assert await store.index_pending() == 0

    async def test_deleted_and_purged_titles_are_not_found(self, alice: Transaction) -> None:
        """Threads that are not deleted"""
        thread = await alice.create_thread(NewThread(title="Zebra"))
        await alice.delete_thread(thread.id)
        assert await ids(alice, "zebra") == []
        await alice.restore_thread(thread.id)
        assert await ids(alice, "zebra") == [thread.id]
        await alice.purge_thread(thread.id)
        assert await ids(alice, "zebra") == []
        again = await alice.create_thread(NewThread(title="Lion"))
        assert await ids(alice, "zebra") == []
        assert await ids(alice, "lion") == [again.id]

    async def test_titles_of_others_are_not_found(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        for tx in (alice, bob, other_tenant):
            thread = await tx.create_thread(NewThread(title="Zebra"))
            assert await ids(tx, "zebra") == [thread.id]

    async def test_hits_are_grouped_by_thread_with_their_number(self, alice: Transaction) -> None:
        """Each has the number of its messages that match and the best `passages` of them. Words and messages are those
        of `search`."""
        crowd = await create_thread_with(alice, *(f"the zebra {n} runs" for n in range(30)), "zebra!")
        quiet = await create_thread_with(alice, "hello", "a zebra sleeps in the shade of a tree near the river")
        page = {found.thread_id: found for found in await alice.search_threads("zebra")}
        assert set(page) == {crowd.id, quiet.id}
        assert (page[crowd.id].hit_count, page[quiet.id].hit_count) == (31, 1)
        assert page[crowd.id].hits[0].snippet == "zebra!"
        assert [hit.seq for hit in page[quiet.id].hits] == [1]
        assert len(page[crowd.id].hits) == 3
        (first, *_) = await alice.search_threads("zebra", passages=1)
        assert (first.thread_id, len(first.hits)) == (crowd.id, 1)
        assert all(found.hits == () for found in await alice.search_threads("zebra", passages=0))
        flat = await alice.search("zebra", limit=50)
        assert [hit for hit in flat if hit.thread_id == crowd.id][:3] == list(page[crowd.id].hits)

    async def test_titles_come_first_then_the_best_passages(self, alice: Transaction) -> None:
        """Threads that are not deleted: those whose title contains all the words, latest activity first, then those
        with a message that does, best match first."""
        words = " ".join(f"filler{n}" for n in range(40))
        poor = await create_thread_with(alice, f"zebra {words}")
        best = await create_thread_with(alice, "zebra")
        early = await create_thread_with(alice, "hello", new=NewThread(title="Zebra one"))
        late = await create_thread_with(alice, f"zebra {words}", new=NewThread(title="Zebra two"))
        await alice.append(early.id, [user_message("more")])
        latest_first = sorted((early, late), key=lambda thread: thread.id == early.id, reverse=True)
        found = await ids(alice, "zebra")
        assert sorted(found[:2]) == sorted(thread.id for thread in latest_first)
        assert found[2:] == [best.id, poor.id]
        shown = {each.thread_id: each for each in await alice.search_threads("zebra")}
        assert (shown[late.id].is_title_match, shown[late.id].hit_count) == (True, 1)

    async def test_pages_do_not_repeat_a_thread(self, alice: Transaction) -> None:
        """InvalidCursor if the cursor was not issued for this search."""
        made = {(await create_thread_with(alice, "zebra", "zebra")).id for _ in range(7)}
        made |= {(await alice.create_thread(NewThread(title=f"Zebra {n}"))).id for n in range(4)}
        seen: list[str] = []
        cursor = None
        while True:
            page = await alice.search_threads("zebra", limit=4, cursor=cursor)
            seen += [found.thread_id for found in page]
            cursor = page.next_cursor
            if cursor is None:
                break
            for other in ("lion", "zebra zebra"):
                with pytest.raises(InvalidCursor):
                    await alice.search_threads(other, limit=4, cursor=cursor)
        assert len(seen) == 11
        assert set(seen) == made
        with pytest.raises(InvalidCursor):
            await alice.search_threads("zebra", cursor="nonsense")

    async def test_searches_are_filtered(self, alice: Transaction) -> None:
        """`matching` applies to the thread that the hit is in."""
        one = await create_thread_with(alice, "zebra", new=NewThread(agent_id="ada", metadata={"tags": ["work"]}))
        two = await create_thread_with(alice, "zebra", new=NewThread(title="Zebra", metadata={"n": 2}))
        past, future = to_us(one.created_at) - 10**6, to_us(two.updated_at) + 10**12
        wanted = {
            ThreadFilter(labels=("aada",)): {one.id},
            ThreadFilter(labels=("twork",)): {one.id},
            ThreadFilter(labels=("in\x1f2",)): {two.id},
            ThreadFilter(labels=("in\x1f2", "twork")): set[str](),
            ThreadFilter(surface="slack"): set[str](),
            ThreadFilter(since_us=past): {one.id, two.id},
            ThreadFilter(since_us=future): set[str](),
            ThreadFilter(until_us=past): set[str](),
            ThreadFilter(until_us=future): {one.id, two.id},
        }
        for matching, expected in wanted.items():
            assert set(await ids(alice, "zebra", matching=matching)) == expected, matching
            assert {hit.thread_id for hit in await alice.search("zebra", matching=matching)} == expected, matching

    async def test_a_filter_looks_behind_the_newest(self, alice: Transaction) -> None:
        first = await create_thread_with(alice, "zebra", new=NewThread(agent_id="ada"))
        for _ in range(4):
            await create_thread_with(alice, *["zebra"] * 400)
        matching = ThreadFilter(labels=("aada",))
        assert await ids(alice, "zebra", matching=matching) == [first.id]
        assert {hit.thread_id for hit in await alice.search("zebra", matching=matching)} == {first.id}

    async def test_a_branch_is_found_once(self, alice: Transaction) -> None:
        source = await create_thread_with(alice, "zebra", "lion")
        branch = await alice.branch(source.id, NewThread())
        assert await ids(alice, "zebra") == [source.id]
        await alice.delete_thread(source.id)
        assert await ids(alice, "zebra") == [branch.id]

    @pytest.mark.parametrize("query", ['"', "*", "\\", "zebra OR lion", "日" * 3_000, "a b " * 300, "'*", "\u0e34"])
    async def test_no_query_is_a_fault(self, alice: Transaction, query: str) -> None:
        await create_thread_with(alice, "the zebra sleeps", new=NewThread(title="Zebra"))
        assert await ids(alice, query) == []
