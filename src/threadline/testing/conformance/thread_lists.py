"""Lists of threads: order, pages by cursor and by offset, and which kinds are shown."""

from __future__ import annotations

import pytest

from threadline.core.errors import InvalidCursor
from threadline.core.threads import NewThread, Page, Thread, ThreadChanges
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import create_thread_with, user_message


def ids(page: Page[Thread]) -> list[str]:
    return [thread.id for thread in page.items]


async def one_a_second(tx: Transaction, clock: ManualClock, count: int) -> list[str]:
    """So many threads, a second between them; their ids, newest first."""
    made = []
    for number in range(count):
        clock.advance()
        made.append((await tx.create_thread(NewThread(id=f"n{number:03}"))).id)
    return made[::-1]


async def walk(tx: Transaction, limit: int, *, archived: bool | None = False, deleted: bool = False) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        page = await tx.threads(limit=limit, cursor=cursor, archived=archived, deleted=deleted)
        found += ids(page)
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor
    raise AssertionError("the pages never end")


class TestListingThreads:
    @pytest.mark.req("S4-04")
    async def test_an_append_moves_a_thread_up_and_counts(self, alice: Transaction, clock: ManualClock) -> None:
        """A page of threads: latest activity first, then the greater id first."""
        newest, middle, oldest = await one_a_second(alice, clock, 3)
        assert ids(await alice.threads()) == [newest, middle, oldest]
        at = clock.advance()
        await alice.append(oldest, [user_message("hello"), user_message("again")], tokens=7)
        page = await alice.threads()
        assert ids(page) == [oldest, newest, middle]
        moved = page.items[0]
        assert (moved.message_count, moved.token_count, moved.updated_at) == (2, 7, at)
        assert page.items == tuple([await alice.thread(id) for id in ids(page)])

    async def test_threads_of_the_same_instant_have_one_order(self, alice: Transaction) -> None:
        """A page of threads: latest activity first, then the greater id first."""
        made = [(await alice.create_thread(NewThread(id=id))).id for id in ("c", "a", "d", "b")]
        assert ids(await alice.threads()) == sorted(made, reverse=True)
        assert await walk(alice, 1) == sorted(made, reverse=True)

    @pytest.mark.req("S4-04")
    async def test_a_page_holds_fifty_unless_told_otherwise(self, alice: Transaction, clock: ManualClock) -> None:
        made = await one_a_second(alice, clock, 53)
        assert ids(await alice.threads()) == made[:50]
        assert ids(await alice.threads(limit=4)) == made[:4]
        assert ids(await alice.threads(limit=4, offset=51)) == made[51:]
        assert ids(await alice.threads(limit=4, offset=90)) == []

    @pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
    async def test_the_pages_of_a_cursor_are_the_whole_list(
        self, alice: Transaction, clock: ManualClock, limit: int
    ) -> None:
        """A cursor costs the same at any depth, and the page after it never repeats a thread."""
        made = await one_a_second(alice, clock, 21)
        for thread_id in made[7:14]:
            await alice.update_thread(thread_id, ThreadChanges(archived=True))
        for thread_id in made[14:]:
            await alice.delete_thread(thread_id)
        assert await walk(alice, limit) == made[:7]
        assert await walk(alice, limit, archived=True) == made[7:14]
        assert await walk(alice, limit, archived=None) == made[:14]
        assert await walk(alice, limit, deleted=True) == made[14:]

    async def test_a_page_after_a_cursor_repeats_nothing(self, alice: Transaction, clock: ManualClock) -> None:
        """A cursor costs the same at any depth, and the page after it never repeats a thread."""
        made = await one_a_second(alice, clock, 6)
        page = await alice.threads(limit=3)
        clock.advance()
        await alice.append(made[1], [user_message("seen, and now on top")])
        await alice.append(made[4], [user_message("not seen, and now on top")])
        await alice.delete_thread(made[2])
        rest = await alice.threads(limit=9, cursor=page.next_cursor)
        assert ids(rest) == [made[3], made[5]]
        assert rest.next_cursor is None

    async def test_an_invented_cursor_is_refused(
        self, alice: Transaction, bob: Transaction, clock: ManualClock
    ) -> None:
        """InvalidCursor if the cursor was not issued for this list."""
        await one_a_second(alice, clock, 3)
        cursor = (await alice.threads(limit=1)).next_cursor
        assert cursor is not None
        invented = ["", "0", "nonsense", "é", "\x00", "' OR 1=1 --", "AAAA", "e30", "W10", "a" * 10_000, cursor[1:]]
        for wrong in [*invented, cursor[:-1], f"{cursor}{cursor}"]:
            with pytest.raises(InvalidCursor):
                await alice.threads(cursor=wrong)
        with pytest.raises(InvalidCursor):
            await bob.threads(cursor=cursor)

    async def test_archived_threads_have_a_list_of_their_own(self, alice: Transaction, clock: ManualClock) -> None:
        """`archived` None lists archived and other threads"""
        new, old = await one_a_second(alice, clock, 2)
        await alice.update_thread(old, ThreadChanges(archived=True))
        assert ids(await alice.threads()) == [new]
        assert ids(await alice.threads(archived=True)) == [old]
        assert ids(await alice.threads(archived=None)) == [new, old]
        assert (await alice.thread(old)) is not None

    async def test_deleted_threads_have_a_list_of_their_own(self, alice: Transaction, clock: ManualClock) -> None:
        """`deleted` lists only deleted threads."""
        new, old = await one_a_second(alice, clock, 2)
        await alice.delete_thread(old)
        assert ids(await alice.threads(archived=None)) == [new]
        assert ids(await alice.threads(archived=None, deleted=True)) == [old]

    async def test_a_list_holds_only_ones_own(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        mine = await create_thread_with(alice, "hello")
        theirs = [await create_thread_with(tx, "hello") for tx in (bob, other_tenant)]
        for tx, own in ((alice, mine), (bob, theirs[0]), (other_tenant, theirs[1])):
            assert ids(await tx.threads(archived=None)) == [own.id]
