"""Retention: legal holds forbid purges, and overdue threads are found by their rule."""

from __future__ import annotations

import datetime as dt

import pytest

from threadline.core.errors import DuplicateId, RoleRefused, UnderLegalHold
from threadline.core.threads import ThreadChanges
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn, clean_text, create_thread_with, history

REASON = clean_text("a case")


class TestLegalHolds:
    async def test_a_held_thread_cannot_be_purged(self, system: Transaction, alice: Transaction) -> None:
        """While it exists, purges of the thread raise UnderLegalHold, and so does a purge of the tenant under any
        hold."""
        held, free = await create_thread_with(alice, "kept"), await create_thread_with(alice, "gone")
        hold = await system.add_hold("hold-1", REASON, "root", thread_id=held.id)
        assert (hold.reason, hold.created_by, hold.user_id, hold.thread_id) == ("a case", "root", None, held.id)
        for purge in (
            alice.purge_thread(held.id),
            system.purge_thread(held.id),
            alice.purge_user("alice"),
            system.purge_user("alice"),
            system.purge_tenant(),
        ):
            with pytest.raises(UnderLegalHold):
                await purge
        assert await alice.purge_thread(free.id) is True
        assert await history(alice, held.id) == ["kept"]
        assert await system.remove_hold("hold-1") is True
        assert await alice.purge_thread(held.id) is True

    async def test_a_held_user_and_a_held_tenant(
        self, system: Transaction, alice: Transaction, bob: Transaction
    ) -> None:
        """While it exists, purges of the thread, of the user or, if neither is named, of anything in the tenant raise
        UnderLegalHold, and so does a purge of the tenant under any hold."""
        hers, his = await create_thread_with(alice, "hers"), await create_thread_with(bob, "his")
        await system.add_hold("hold-1", REASON, "root", user_id="alice")
        with pytest.raises(UnderLegalHold):
            await alice.purge_thread(hers.id)
        assert await bob.purge_thread(his.id) is True
        await system.add_hold("hold-2", REASON, "root")
        with pytest.raises(UnderLegalHold):
            await bob.purge_user("bob")
        assert [hold.id for hold in await system.holds()] == ["hold-1", "hold-2"]

    async def test_holds_are_the_systems(self, system: Transaction, alice: Transaction) -> None:
        """System scope only (RoleRefused). DuplicateId if the id exists. False if there is none. By id, which is by
        time."""
        await system.add_hold("hold-1", REASON, "root")
        with pytest.raises(DuplicateId):
            await system.add_hold("hold-1", REASON, "root")
        assert await system.remove_hold("hold-2") is False
        for refused in (
            alice.add_hold("hold-3", REASON, "alice"),
            alice.holds(),
            alice.remove_hold("hold-1"),
            alice.overdue_threads(age=None, archived=None, deleted=None),
            alice.drop_acts(before=dt.datetime.now(dt.UTC)),
        ):
            with pytest.raises(RoleRefused):
                await refused


class TestOverdueThreads:
    async def test_threads_are_overdue_by_age_archive_and_deletion(
        self, system: Transaction, alice: Transaction, clock: ManualClock
    ) -> None:
        """Threads without a hold and without an active turn that were deleted or archived before these times, or had
        their last message before `age`; the longest unchanged first. None is no limit of that kind."""
        old, archived, deleted, held, busy = [await create_thread_with(alice, name) for name in "abcde"]
        await alice.update_thread(archived.id, ThreadChanges(archived=True))
        await alice.delete_thread(deleted.id)
        await system.add_hold("hold-1", REASON, "root", thread_id=held.id)
        await add_turn(alice, "turn-1", busy.id)
        later = clock.advance(86_400)
        fresh = await create_thread_with(alice, "fresh")

        async def overdue(
            age: dt.datetime | None = None, archived: dt.datetime | None = None, deleted: dt.datetime | None = None
        ) -> dict[str, str]:
            found = await system.overdue_threads(age=age, archived=archived, deleted=deleted)
            return {thread.id: thread.rule for thread in found}

        assert await overdue() == {}
        assert await overdue(archived=later) == {archived.id: "archived"}
        assert await overdue(deleted=later) == {deleted.id: "deleted"}
        assert await overdue(age=later) == dict.fromkeys((old.id, archived.id, deleted.id), "age")
        assert fresh.id in await overdue(age=clock.after(1))
        assert len(await system.overdue_threads(age=later, archived=None, deleted=None, limit=2)) == 2

    async def test_old_audit_entries_are_dropped(self, system: Transaction, clock: ManualClock) -> None:
        """Removes audit entries from before this time, unless the whole tenant is under a hold; how many."""
        await system.record_act("user.changed", "ada")
        later = clock.advance(60)
        await system.record_act("user.changed", "bob")
        await system.add_hold("hold-1", REASON, "root")
        assert await system.drop_acts(before=later) == 0
        await system.remove_hold("hold-1")
        assert await system.drop_acts(before=later) == 1
        assert [act.target for act in await system.acts()] == ["bob"]
