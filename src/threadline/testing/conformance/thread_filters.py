"""Filters of thread lists: by metadata, tag, agent, surface and time; and the list of a whole tenant."""

from __future__ import annotations

import datetime as dt
from typing import Any, Unpack

import pytest

from threadline.core.errors import InvalidCursor, RoleRefused
from threadline.core.messages import to_us
from threadline.core.thread_filters import ThreadFilterFields, thread_filter
from threadline.core.threads import NewThread, ThreadChanges
from threadline.core.turns import Surface
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn
from threadline.testing.conformance.thread_lists import ids

ODD: list[dict[str, Any]] = [
    {"k": ["x"]}, {"k": {"x": 1}}, {"k": 1.5}, {"k": "x" * 300}, {"k": 10**30}, {"tags": "t"},
    {"tags": [1, None, ["t"]]}, {"": ""}, {"a=b": "c'\"\\"}, {"日本": "語"},
]  # fmt: skip


async def matching(tx: Transaction, **fields: Unpack[ThreadFilterFields]) -> set[str]:
    return set(ids(await tx.threads(matching=thread_filter(fields), archived=None)))


async def one_with(tx: Transaction, id: str, **metadata: Any) -> str:
    return (await tx.create_thread(NewThread(id=id, metadata=metadata))).id


class TestFilteringThreads:
    @pytest.mark.req("G-10")
    async def test_metadata_is_compared_by_type_and_value(self, alice: Transaction) -> None:
        """`matching` lists only threads that have every label, a turn from the surface, and their last activity in the
        time."""
        await one_with(alice, "s", k="1", other="x")
        await one_with(alice, "i", k=1, other="x")
        await one_with(alice, "b", k=True)
        await one_with(alice, "n", k=None)
        await one_with(alice, "none")
        for value, expected in (("1", "s"), (1, "i"), (True, "b"), (None, "n")):
            assert await matching(alice, where={"k": value}) == {expected}
        assert await matching(alice, where={"k": 1, "other": "x"}) == {"i"}
        assert await matching(alice, where={"k": 1, "other": "y"}) == set()
        assert await matching(alice, where={"other": "x"}) == {"s", "i"}
        assert await matching(alice, where={}) == {"s", "i", "b", "n", "none"}

    @pytest.mark.parametrize("metadata", ODD, ids=range(len(ODD)))
    async def test_metadata_of_any_shape_is_stored(self, alice: Transaction, metadata: dict[str, Any]) -> None:
        """`matching` lists only threads that have every label"""
        await one_with(alice, "odd", **metadata)
        found = await alice.thread("odd")
        assert found is not None
        assert found.metadata == metadata
        assert await matching(alice, tag="t") == set()
        for key, value in metadata.items():
            if isinstance(value, str) and len(value) < 200:
                assert await matching(alice, where={key: value}) == {"odd"}

    async def test_tags_are_a_list_in_the_metadata(self, alice: Transaction) -> None:
        """`matching` lists only threads that have every label"""
        await one_with(alice, "both", tags=["red", "blue", "red"])
        await one_with(alice, "red", tags=["red"])
        assert await matching(alice, tag="red") == {"both", "red"}
        assert await matching(alice, tag="blue") == {"both"}
        assert await matching(alice, tag="re") == set()

    async def test_a_change_changes_what_a_filter_finds(self, alice: Transaction) -> None:
        """`matching` lists only threads that have every label"""
        await one_with(alice, "a", project="x")
        await alice.update_thread("a", ThreadChanges(title="new title", archived=True))
        assert await matching(alice, where={"project": "x"}) == {"a"}
        await alice.update_thread("a", ThreadChanges(metadata={"project": "y"}, agent_id="bot"))
        assert await matching(alice, where={"project": "x"}) == set()
        assert await matching(alice, where={"project": "y"}, agent="bot") == {"a"}
        await alice.update_thread("a", ThreadChanges(metadata={}, agent_id=None))
        assert await matching(alice, where={"project": "y"}) == await matching(alice, agent="bot") == set()

    async def test_a_branch_has_labels_of_its_own(self, alice: Transaction) -> None:
        """`matching` lists only threads that have every label"""
        await alice.create_thread(NewThread(id="source", agent_id="bot", metadata={"k": "v"}))
        await alice.branch("source", NewThread(id="branch", metadata={"k": "w"}))
        assert await matching(alice, agent="bot") == {"source", "branch"}
        assert await matching(alice, where={"k": "w"}) == {"branch"}

    async def test_a_surface_is_that_of_any_turn(self, alice: Transaction) -> None:
        """a turn from the surface"""
        surfaces: tuple[Surface, ...] = ("slack", "api")
        for surface in surfaces:
            await alice.create_thread(NewThread(id=surface))
            await add_turn(alice, f"turn-{surface}", surface, surface)
        await alice.create_thread(NewThread(id="quiet"))
        assert await matching(alice, surface="slack") == {"slack"}
        assert await matching(alice, surface="api") == {"api"}
        assert await matching(alice, surface="matrix") == set()

    async def test_times_are_those_of_the_last_activity(self, alice: Transaction, clock: ManualClock) -> None:
        """and their last activity in the time"""
        for _ in range(4):
            await alice.create_thread(NewThread())
            clock.advance()
        created = {thread.updated_at: thread.id for thread in (await alice.threads()).items}
        times = sorted(created)
        assert await matching(alice, since=times[2]) == {created[times[2]], created[times[3]]}
        assert await matching(alice, until=times[2]) == {created[times[0]], created[times[1]]}
        assert await matching(alice, since=times[1], until=times[2]) == {created[times[1]]}
        assert await matching(alice, since=clock.now() + dt.timedelta(days=1)) == set()

    @pytest.mark.parametrize("deleted", [False, True])
    async def test_filtered_lists_have_pages(self, alice: Transaction, clock: ManualClock, deleted: bool) -> None:
        """A cursor costs the same at any depth, and the page after it never repeats a thread. InvalidCursor if the
        cursor was not issued for this list."""
        for number in range(9):
            clock.advance()
            await one_with(alice, f"n{number}", even=number % 2 == 0)
            await (alice.delete_thread if deleted else alice.thread)(f"n{number}")
        wanted = thread_filter({"where": {"even": True}})
        seen, cursor = [], None
        for _ in range(3):
            page = await alice.threads(limit=2, cursor=cursor, deleted=deleted, matching=wanted)
            seen += ids(page)
            cursor = page.next_cursor or cursor
        assert seen == ["n8", "n6", "n4", "n2", "n0"]
        assert ids(await alice.threads(limit=2, offset=4, deleted=deleted, matching=wanted)) == ["n0"]
        with pytest.raises(InvalidCursor):
            await alice.threads(cursor=cursor, deleted=deleted)
        within = thread_filter({"since": clock.now() - dt.timedelta(seconds=3), "until": clock.now()})
        assert ids(await alice.threads(limit=9, deleted=deleted, matching=within)) == ["n7", "n6", "n5"]
        assert within.until_us == to_us(clock.now())

    async def test_labels_of_purged_threads_are_gone(self, alice: Transaction) -> None:
        await one_with(alice, "a", k="v")
        await alice.purge_thread("a")
        assert await matching(alice, where={"k": "v"}) == set()
        await one_with(alice, "b")
        assert await matching(alice, where={"k": "v"}) == set()

    @pytest.mark.req("SX-03")
    async def test_a_filter_finds_only_ones_own(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        for tx in (alice, bob, other_tenant):
            await one_with(tx, f"of-{tx.scope.user_id}", k="v", tags=["t"])
        assert (
            await matching(alice, where={"k": "v"}) == await matching(alice, tag="t") == {f"of-{alice.scope.user_id}"}
        )


class TestTenantThreads:
    async def test_the_system_lists_the_threads_of_every_user(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction, system: Transaction
    ) -> None:
        """Threads of every user of the tenant, the greatest id first: generated ids are in order of creation."""
        for number, tx in enumerate((alice, bob, alice, other_tenant)):
            await one_with(tx, f"n{number}", k=number)
        page = await system.tenant_threads(limit=2)
        assert ids(page) == ["n2", "n1"]
        rest = await system.tenant_threads(limit=2, cursor=page.next_cursor)
        assert (ids(rest), rest.next_cursor) == (["n0"], None)
        assert {thread.owner_id for thread in page.items} == {alice.scope.user_id, bob.scope.user_id}

    async def test_the_filters_are_those_of_a_list(
        self, alice: Transaction, bob: Transaction, system: Transaction
    ) -> None:
        """The filters are those of `threads`."""
        await one_with(alice, "a", k="v", tags=["t"])
        await one_with(bob, "b", k="v")
        await bob.update_thread("b", ThreadChanges(archived=True))
        await one_with(bob, "c", k="w")
        await add_turn(bob, "turn-1", "c", "slack")
        await bob.delete_thread("c")

        async def found(archived: bool | None, deleted: bool, **fields: Unpack[ThreadFilterFields]) -> list[str]:
            wanted = thread_filter(fields)
            return ids(await system.tenant_threads(archived=archived, deleted=deleted, matching=wanted))

        assert await found(None, False, where={"k": "v"}) == ["b", "a"]
        assert await found(False, False, where={"k": "v"}) == ["a"]
        assert await found(None, False, where={"k": "v"}, tag="t") == ["a"]
        assert await found(None, True, surface="slack") == ["c"]
        assert await found(None, True, surface="api") == []

    async def test_only_the_system_lists_them(
        self, alice: Transaction, admin: Transaction, system: Transaction, store: Store
    ) -> None:
        """InvalidCursor. System scope only (RoleRefused)."""
        for tx in (alice, admin):
            with pytest.raises(RoleRefused):
                await tx.tenant_threads()
        with pytest.raises(InvalidCursor):
            await system.tenant_threads(cursor="nonsense")
