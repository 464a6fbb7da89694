"""Threads: made, read, changed, hidden, brought back, pruned."""

from __future__ import annotations

import re

import pytest

from threadline.core.channels import User
from threadline.core.errors import DuplicateId, NotFound
from threadline.core.threads import NewThread, ThreadChanges
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import clean_text, create_thread_with, exchange, history

FULL = NewThread(
    id="thread-1",
    state_key="plans",
    title="Plans",
    title_by_person=True,
    agent_id="rehearsal",
    model="small",
    system_prompt="Be brief.",
    working_dir="/srv/work",
    metadata={"colour": "blue", "nested": [1, None, {"é": True}]},
)


class TestCreatingThreads:
    @pytest.mark.req("S4-02")
    async def test_a_thread_keeps_what_it_was_given(self, alice: Transaction, clock: ManualClock) -> None:
        """Creates an empty thread on a new timeline"""
        thread = await alice.create_thread(FULL)
        given = {field: getattr(thread, field) for field in FULL.__struct_fields__}
        assert given == {field: getattr(FULL, field) for field in FULL.__struct_fields__}
        assert (thread.owner_id, thread.message_count, thread.token_count) == ("alice", 0, 0)
        assert thread.created_at == thread.updated_at == clock.now()
        assert thread.archived_at is None
        assert thread.deleted_at is None
        assert await alice.thread("thread-1") == thread
        assert await alice.messages("thread-1") == []

    async def test_what_is_left_out_is_made_up(self, alice: Transaction) -> None:
        one, two = await alice.create_thread(NewThread()), await alice.create_thread(NewThread())
        assert len({one.id, two.id}) == len({one.state_key, two.state_key}) == 2
        assert one.timeline_id != two.timeline_id
        assert re.fullmatch(r"[a-zA-Z0-9_-]{21}", one.state_key)
        assert (one.title, one.agent_id, one.model, one.system_prompt, one.working_dir) == (None,) * 5
        assert one.metadata == {}

    async def test_a_first_thread_makes_its_tenant_and_user_known(
        self, store: Store, alice: Transaction, system: Transaction, tenant_id: str
    ) -> None:
        """An operation that stores a row also creates the rows of its tenant and owner if they do not exist."""
        assert tenant_id not in await store.tenants()
        await alice.create_thread(NewThread())
        assert tenant_id in await store.tenants()
        assert [user.id for user in await system.users()] == ["alice"]

    async def test_a_known_user_stays_as_they_were(self, alice: Transaction, system: Transaction) -> None:
        """An operation that stores a row also creates the rows of its tenant and owner if they do not exist."""
        known = await system.put_user(User("alice", display_name="Alice A.", role="admin"))
        await alice.create_thread(NewThread())
        assert await system.user("alice") == known

    @pytest.mark.req("S4-02")
    async def test_an_id_is_given_once_in_a_tenant(self, alice: Transaction, bob: Transaction) -> None:
        """DuplicateId if the tenant already has a thread with this id, or the owner a thread with this state key that
        is not deleted."""
        first = await alice.create_thread(NewThread(id="one"))
        for owner in (alice, bob):
            with pytest.raises(DuplicateId, match="thread 'one'"):
                await owner.create_thread(NewThread(id="one", title="another"))
        await alice.delete_thread("one")
        with pytest.raises(DuplicateId):
            await alice.create_thread(NewThread(id="one"))
        assert await alice.thread("one", deleted=True) != first
        assert (await bob.threads()).items == ()

    async def test_another_tenant_may_use_the_same_id(self, alice: Transaction, other_tenant: Transaction) -> None:
        here = await alice.create_thread(NewThread(id="one", title="here"))
        there = await other_tenant.create_thread(NewThread(id="one", title="there"))
        assert (await alice.thread("one"), await other_tenant.thread("one")) == (here, there)

    async def test_a_state_key_has_one_living_thread(self, alice: Transaction) -> None:
        """DuplicateId if the tenant already has a thread with this id, or the owner a thread with this state key that
        is not deleted."""
        await alice.create_thread(NewThread(state_key="plans"))
        with pytest.raises(DuplicateId, match="state key 'plans'"):
            await alice.create_thread(NewThread(state_key="plans"))

    @pytest.mark.req("S1-05")
    async def test_the_same_key_under_two_owners_is_two_threads(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        threads = [await create_thread_with(tx, new=NewThread(state_key="plans")) for tx in (alice, bob, other_tenant)]
        for tx, own in zip((alice, bob, other_tenant), threads, strict=True):
            await tx.append(own.id, exchange(f"{own.id} asks"))
        for tx, own in zip((alice, bob, other_tenant), threads, strict=True):
            found = await tx.thread_by_key("plans")
            assert found is not None
            assert found.id == own.id
            assert await history(tx, own.id) == [f"{own.id} asks"]
            assert [thread.id for thread in (await tx.threads()).items] == [own.id]


class TestReadingThreads:
    async def test_an_unknown_thread_is_none(self, alice: Transaction) -> None:
        """The thread with this id; None if there is none. A deleted thread is returned only with `deleted`."""
        assert await alice.thread("nowhere") is None
        assert await alice.thread("nowhere", deleted=True) is None

    async def test_a_state_key_leads_to_its_living_thread(self, alice: Transaction) -> None:
        """The thread with this state key that is not deleted; None if there is none."""
        thread = await alice.create_thread(NewThread(state_key="plans"))
        assert await alice.thread_by_key("plans") == thread
        assert await alice.thread_by_key("Plans") is None
        await alice.delete_thread(thread.id)
        assert await alice.thread_by_key("plans") is None


class TestChangingThreads:
    async def test_only_what_is_given_changes(self, alice: Transaction) -> None:
        """Changes only the given fields"""
        before = await alice.create_thread(FULL)
        after = await alice.update_thread(before.id, ThreadChanges(model="large", metadata={"new": 1}))
        assert (after.model, after.metadata) == ("large", {"new": 1})
        unchanged = set(before.__struct_fields__) - {"model", "metadata"}
        assert {f: getattr(after, f) for f in unchanged} == {f: getattr(before, f) for f in unchanged}
        assert await alice.thread(before.id) == after

    async def test_none_empties_a_field(self, alice: Transaction) -> None:
        """Changes only the given fields"""
        thread = await alice.create_thread(FULL)
        changes = ThreadChanges(title=None, agent_id=None, model=None, system_prompt=None, working_dir=None)
        after = await alice.update_thread(thread.id, changes)
        assert (after.title, after.agent_id, after.model, after.system_prompt, after.working_dir) == (None,) * 5

    async def test_a_changed_title_is_a_persons_and_stays(self, alice: Transaction) -> None:
        thread = await alice.create_thread(NewThread())
        after = await alice.update_thread(thread.id, ThreadChanges(title="Mine"))
        assert (after.title, after.title_by_person) == ("Mine", True)
        await alice.append(thread.id, exchange("hello"), title=clean_text("hello"))
        stored = await alice.thread(thread.id)
        assert stored is not None
        assert stored.title == "Mine"

    @pytest.mark.req("A-07")
    async def test_a_suggested_title_never_replaces_a_persons(self, alice: Transaction) -> None:
        """Sets the title, unless a person chose the present one. False if it was not set, also if there is no such
        thread."""
        thread = await alice.create_thread(NewThread())
        await alice.append(thread.id, exchange("hello"), title=clean_text("hello"))
        assert await alice.suggest_title(thread.id, clean_text("A greeting"))
        stored = await alice.thread(thread.id)
        assert stored is not None
        assert (stored.title, stored.title_by_person) == ("A greeting", False)
        await alice.update_thread(thread.id, ThreadChanges(title="Mine"))
        assert not await alice.suggest_title(thread.id, clean_text("Another"))
        assert not await alice.suggest_title("nowhere", clean_text("Another"))
        stored = await alice.thread(thread.id)
        assert stored is not None
        assert (stored.title, stored.title_by_person) == ("Mine", True)

    @pytest.mark.req("S1-09")
    async def test_a_change_touches_no_message_and_no_activity(self, alice: Transaction, clock: ManualClock) -> None:
        """never a message. The time of the last activity stays the same."""
        thread = await create_thread_with(alice, "hello", "hi")
        before = await alice.messages(thread.id)
        clock.advance()
        changes = ThreadChanges(title="x", model="y", metadata={"z": 1}, archived=True)
        assert (await alice.update_thread(thread.id, changes)).updated_at == thread.updated_at
        assert await alice.messages(thread.id) == before

    async def test_archiving_is_dated_and_can_be_taken_back(self, alice: Transaction, clock: ManualClock) -> None:
        thread = await alice.create_thread(NewThread())
        at = clock.advance()
        archived = await alice.update_thread(thread.id, ThreadChanges(archived=True))
        assert archived.archived_at == at
        assert await alice.thread(thread.id) == archived
        assert (await alice.update_thread(thread.id, ThreadChanges(archived=False))).archived_at is None

    @pytest.mark.req("S4-03")
    async def test_changing_a_missing_thread_names_it(self, alice: Transaction) -> None:
        """NotFound."""
        with pytest.raises(NotFound, match="nowhere"):
            await alice.update_thread("nowhere", ThreadChanges(title="x"))
        thread = await alice.create_thread(NewThread())
        await alice.delete_thread(thread.id)
        with pytest.raises(NotFound, match=thread.id):
            await alice.update_thread(thread.id, ThreadChanges(title="x"))


class TestDeletingThreads:
    @pytest.mark.req("SX-03")
    async def test_a_deleted_thread_is_hidden_from_every_read(self, alice: Transaction, clock: ManualClock) -> None:
        """Hides the thread from every read"""
        thread = await create_thread_with(alice, "a zebra", "two zebras", new=NewThread(state_key="zoo"))
        at = clock.advance()
        assert await alice.delete_thread(thread.id) is True
        assert await alice.thread(thread.id) is None
        assert await alice.thread_by_key("zoo") is None
        assert (await alice.threads(archived=None)).items == ()
        assert await alice.search("zebra") == []
        with pytest.raises(NotFound):
            await alice.messages(thread.id)
        with pytest.raises(NotFound):
            await alice.append(thread.id, exchange("more"))
        deleted = await alice.thread(thread.id, deleted=True)
        assert deleted is not None
        assert deleted.deleted_at == at

    async def test_its_state_key_is_free_again(self, alice: Transaction) -> None:
        """its state key can be used again"""
        old = await create_thread_with(alice, "old words", new=NewThread(state_key="plans"))
        await alice.delete_thread(old.id)
        new = await alice.create_thread(NewThread(state_key="plans"))
        assert new.id != old.id
        assert await history(alice, new.id) == []
        assert await alice.thread_by_key("plans") == new

    @pytest.mark.req("S4-03")
    async def test_deleting_what_is_not_there_is_no_error(self, alice: Transaction) -> None:
        """False if there is no such thread."""
        thread = await alice.create_thread(NewThread())
        assert await alice.delete_thread("nowhere") is False
        assert await alice.delete_thread(thread.id) is True
        assert await alice.delete_thread(thread.id) is False

    async def test_a_restored_thread_is_whole(self, alice: Transaction) -> None:
        """Restores a deleted thread."""
        before = await create_thread_with(alice, "hello", "hi", new=FULL)
        await alice.delete_thread(before.id)
        assert await alice.restore_thread(before.id) == before
        assert await alice.thread(before.id) == before
        assert await history(alice, before.id) == ["hello", "hi"]

    async def test_only_a_deleted_thread_can_be_restored(self, alice: Transaction) -> None:
        """NotFound if there is no deleted thread with this id; DuplicateId if another thread has its state key now."""
        with pytest.raises(NotFound, match="nowhere"):
            await alice.restore_thread("nowhere")
        old = await alice.create_thread(NewThread(state_key="plans"))
        await alice.delete_thread(old.id)
        new = await alice.create_thread(NewThread(state_key="plans"))
        with pytest.raises(DuplicateId):
            await alice.restore_thread(old.id)
        assert await alice.thread_by_key("plans") == new
        await alice.delete_thread(new.id)
        assert (await alice.restore_thread(old.id)).id == old.id

    @pytest.mark.req("S4-12")
    async def test_pruning_takes_empty_idle_threads_only(self, alice: Transaction, clock: ManualClock) -> None:
        """Removes the owner's threads that never had a message and have had no activity since `idle_since`. Returns how
        many."""
        idle = [await alice.create_thread(NewThread()) for _ in range(2)]
        used = await create_thread_with(alice, "hello")
        undone = await create_thread_with(alice, "hello")
        await alice.undo(undone.id)
        clock.advance()
        young = await alice.create_thread(NewThread())
        assert await alice.prune_threads(idle_since=clock.now()) == 2
        assert await alice.prune_threads(idle_since=clock.now()) == 0
        assert {thread.id for thread in (await alice.threads()).items} == {used.id, undone.id, young.id}
        assert [await alice.thread(thread.id, deleted=True) for thread in idle] == [None, None]

    async def test_pruning_spares_a_branch_that_wrote_nothing_of_its_own(
        self, alice: Transaction, clock: ManualClock
    ) -> None:
        """threads that never had a message"""
        source = await create_thread_with(alice, "hello")
        blank = await alice.branch(source.id, NewThread(), at=-1)
        branch = await alice.branch(source.id, NewThread())
        clock.advance()
        assert await alice.prune_threads(idle_since=clock.now()) == 1
        assert await alice.thread(blank.id) is None
        assert await history(alice, branch.id) == ["hello"]

    async def test_pruning_is_the_owners_own(self, alice: Transaction, bob: Transaction, clock: ManualClock) -> None:
        """Removes the owner's threads that never had a message and have had no activity since `idle_since`."""
        theirs = await bob.create_thread(NewThread())
        clock.advance()
        assert await alice.prune_threads(idle_since=clock.now()) == 0
        assert await bob.thread(theirs.id) == theirs
