"""Places and pins: bindings of rooms and chats to threads, context snapshots, agents and users."""

from __future__ import annotations

import pytest

from threadline.core.channels import Agent, User
from threadline.core.errors import DuplicateId, NotFound, RoleRefused
from threadline.core.threads import NewThread, Scope
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import clean_json, clean_text, create_thread_with, history


class TestBinding:
    async def test_a_place_leads_to_its_thread(self, alice: Transaction, clock: ManualClock) -> None:
        """Binds the place to the thread and replaces its previous binding."""
        thread = await alice.create_thread(NewThread())
        made = await alice.bind("matrix", "!room:x", thread.id, label="C7", metadata=clean_json({"n": 1}))
        assert (made.surface, made.place, made.owner_id, made.thread_id) == ("matrix", "!room:x", "alice", thread.id)
        assert (made.label, made.metadata) == ("C7", {"n": 1})
        assert made.created_at == made.updated_at == clock.now()
        assert await alice.binding("matrix", "!room:x") == made
        assert await alice.binding("slack", "!room:x") is None
        assert await alice.binding("matrix", "!ROOM:x") is None

    async def test_a_place_can_be_bound_again(self, alice: Transaction, clock: ManualClock) -> None:
        """instead of what it was bound to. A label or metadata that is left out stays the same."""
        one, two = await alice.create_thread(NewThread()), await alice.create_thread(NewThread())
        first = await alice.bind("matrix", "room", one.id, label="C7", metadata=clean_json({"n": 1}))
        at = clock.advance()
        again = await alice.bind("matrix", "room", two.id)
        assert (again.thread_id, again.label, again.metadata) == (two.id, "C7", {"n": 1})
        assert (again.created_at, again.updated_at) == (first.created_at, at)
        renamed = await alice.bind("matrix", "room", two.id, label="C8")
        assert (renamed.label, renamed.metadata) == ("C8", {"n": 1})
        assert await alice.bindings() == [renamed]

    async def test_a_binding_needs_a_living_thread(self, alice: Transaction) -> None:
        """NotFound for an unknown thread."""
        thread = await alice.create_thread(NewThread())
        await alice.delete_thread(thread.id)
        for thread_id in ("nowhere", thread.id):
            with pytest.raises(NotFound, match=thread_id):
                await alice.bind("matrix", "room", thread_id)
        assert await alice.bindings() == []

    async def test_another_owners_place_stays_theirs(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        """A place has one binding in a tenant, so another owner's place is DuplicateId."""
        mine, theirs, foreign = [await create_thread_with(tx) for tx in (alice, bob, other_tenant)]
        made = await alice.bind("matrix", "room", mine.id)
        with pytest.raises(DuplicateId):
            await bob.bind("matrix", "room", theirs.id)
        assert await alice.binding("matrix", "room") == made
        assert (await other_tenant.bind("matrix", "room", foreign.id)).thread_id == foreign.id

    async def test_bindings_are_listed_by_surface_and_thread(self, alice: Transaction) -> None:
        one, two = await alice.create_thread(NewThread()), await alice.create_thread(NewThread())
        a = await alice.bind("matrix", "a", one.id)
        b = await alice.bind("slack", "b", one.id)
        c = await alice.bind("slack", "c", two.id)

        def places(bindings: list[object]) -> list[object]:
            return sorted(bindings, key=repr)

        assert places([*await alice.bindings()]) == places([a, b, c])
        assert places([*await alice.bindings(surface="slack")]) == places([b, c])
        assert places([*await alice.bindings(thread_id=one.id)]) == places([a, b])
        assert await alice.bindings(surface="slack", thread_id=one.id) == [b]
        assert await alice.bindings(surface="telegram") == []

    async def test_a_place_can_be_unbound(self, alice: Transaction) -> None:
        thread = await alice.create_thread(NewThread())
        await alice.bind("matrix", "room", thread.id)
        assert await alice.unbind("matrix", "room") is True
        assert await alice.unbind("matrix", "room") is False
        assert await alice.binding("matrix", "room") is None
        assert await alice.thread(thread.id) == thread

    async def test_a_purged_thread_leaves_no_binding(self, alice: Transaction) -> None:
        thread = await alice.create_thread(NewThread())
        await alice.bind("matrix", "room", thread.id)
        await alice.purge_thread(thread.id)
        assert await alice.binding("matrix", "room") is None


class TestContextSnapshots:
    @pytest.mark.req("S0-02")
    async def test_a_second_snapshot_replaces_the_first(
        self, alice: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """Stores or replaces the owner's snapshot for the agent; `created_at` stays the same, `updated_at` changes."""
        first = await alice.set_context("helper", clean_text("I live in Oslo."))
        assert (first.agent_id, first.owner_id, first.context) == ("helper", "alice", "I live in Oslo.")
        assert first.created_at == first.updated_at == clock.now()
        at = clock.advance()
        second = await alice.set_context("helper", clean_text("I live in Rome."))
        assert (second.created_at, second.updated_at, second.context) == (first.created_at, at, "I live in Rome.")
        assert await alice.context("helper") == second
        assert (await alice.row_counts())["context_snapshots"] == 1

    @pytest.mark.req("S0-03")
    async def test_a_snapshot_can_be_cleared(self, alice: Transaction) -> None:
        assert await alice.context("helper") is None
        await alice.set_context("helper", clean_text("hello"))
        assert await alice.clear_context("helper") is True
        assert await alice.clear_context("helper") is False
        assert await alice.context("helper") is None

    async def test_a_snapshot_needs_no_stored_agent(self, alice: Transaction) -> None:
        """The agent needs no row, because built-in agents have none."""
        assert await alice.agent("rehearsal") is None
        assert (await alice.set_context("rehearsal", clean_text("hello"))).context == "hello"

    async def test_each_owner_and_agent_has_its_own(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        for tx in (alice, bob, other_tenant):
            for agent_id in ("helper", "other"):
                await tx.set_context(agent_id, clean_text(f"{tx.scope} {agent_id}"))
        for tx in (alice, bob, other_tenant):
            for agent_id in ("helper", "other"):
                snapshot = await tx.context(agent_id)
                assert snapshot is not None
                assert snapshot.context == f"{tx.scope} {agent_id}"


class TestAgents:
    async def test_an_agent_is_created_and_replaced(self, system: Transaction) -> None:
        """Creates or replaces an agent of the tenant."""
        full = Agent("helper", "Helper", "openai", "small", {"temperature": 0.5}, "Be brief.", enabled=False)
        assert await system.put_agent(full) == full
        assert await system.agent("helper") == full
        plain = Agent("helper", "Helper", "rehearsal")
        assert await system.put_agent(plain) == plain
        assert await system.agent("helper") == plain

    async def test_agents_are_listed_by_id(
        self, system: Transaction, alice: Transaction, other_tenant: Transaction
    ) -> None:
        """By id."""
        made = [await system.put_agent(Agent(id, id.upper(), "rehearsal")) for id in ("b", "a", "c")]
        assert await alice.agents() == sorted(made, key=lambda agent: agent.id)
        assert await other_tenant.agents() == []
        assert await other_tenant.agent("a") is None

    @pytest.mark.req("S0-15")
    async def test_deleting_an_agent_unpins_everyones_snapshots(
        self, system: Transaction, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        """Removes the agent and every context snapshot for it; threads keep their history."""
        for tx in (system, other_tenant):
            await tx.put_agent(Agent("helper", "Helper", "rehearsal"))
        for tx in (alice, bob, other_tenant):
            await tx.set_context("helper", clean_text("pinned"))
        await alice.set_context("other", clean_text("kept"))
        thread = await create_thread_with(alice, "hello", "hi", new=NewThread(agent_id="helper"))
        assert await system.delete_agent("helper") is True
        assert await system.delete_agent("helper") is False
        assert await system.agent("helper") is None
        assert [await tx.context("helper") for tx in (alice, bob)] == [None, None]
        assert await alice.context("other") is not None
        assert await history(alice, thread.id) == ["hello", "hi"]
        assert await other_tenant.context("helper") is not None
        assert await other_tenant.agent("helper") is not None


class TestUsers:
    async def test_a_user_is_created_and_replaced(self, system: Transaction) -> None:
        """Creates or replaces a user."""
        assert await system.user("carol") is None
        made = await system.put_user(User("carol", "Carol", "admin"))
        assert await system.user("carol") == made == User("carol", "Carol", "admin")
        await system.put_user(User("carol"))
        assert await system.user("carol") == User("carol", None, "member")

    async def test_users_are_listed_by_id_for_the_system_scope_and_admins(
        self, store: Store, system: Transaction, alice: Transaction, tenant_id: str
    ) -> None:
        """Every user of the tenant, by id. System and admin scopes only; others see themselves."""
        made = [await system.put_user(User(id)) for id in ("bob", "alice", "carol")]
        admin = store.scoped(Scope(tenant_id, "carol", "admin"))
        assert await system.users() == await admin.users() == sorted(made, key=lambda user: user.id)
        assert await alice.users() == [User("alice")]
        assert await alice.user("alice") == User("alice")
        assert await alice.user("bob") is None

    async def test_only_the_system_scope_and_admins_put_others(
        self, store: Store, system: Transaction, alice: Transaction, tenant_id: str
    ) -> None:
        """Only system and admin scopes may name another user (RoleRefused)."""
        await system.put_user(User("bob"))
        for named in ("bob", "carol"):
            with pytest.raises(RoleRefused):
                await alice.put_user(User(named, "Mallory", "admin"))
        assert await system.users() == [User("bob")]
        assert await alice.put_user(User("alice", "Alice")) == User("alice", "Alice")
        admin = store.scoped(Scope(tenant_id, "alice", "admin"))
        assert await admin.put_user(User("bob", "Bob")) == User("bob", "Bob")
