"""Places and pins: bindings of rooms and chats to threads, context snapshots, agents and users.

Links between platforms' users and ours, and the codes that make them.
"""

from __future__ import annotations

import asyncio

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
        """The owner's own, by agent id."""
        for tx in (alice, bob, other_tenant):
            for agent_id in ("helper", "other"):
                await tx.set_context(agent_id, clean_text(f"{tx.scope} {agent_id}"))
        for tx in (alice, bob, other_tenant):
            for agent_id in ("helper", "other"):
                snapshot = await tx.context(agent_id)
                assert snapshot is not None
                assert snapshot.context == f"{tx.scope} {agent_id}"
            assert [each.context for each in await tx.contexts()] == [f"{tx.scope} {id}" for id in ("helper", "other")]


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


CODE = b"\x00\xff" * 16


class TestLinks:
    async def test_a_link_is_created_and_changed(
        self, system: Transaction, alice: Transaction, clock: ManualClock
    ) -> None:
        """Creates or changes the link of a platform's user."""
        made = await alice.put_link("slack", "U1", "alice", "pending")
        assert (made.platform, made.platform_user_id, made.owner_id, made.state) == ("slack", "U1", "alice", "pending")
        assert made.created_at == made.updated_at == clock.now()
        at = clock.advance()
        changed = await alice.put_link("slack", "U1", "alice", "verified")
        assert (changed.state, changed.created_at, changed.updated_at) == ("verified", made.created_at, at)
        assert await alice.link("slack", "U1") == changed
        assert await alice.link("telegram", "U1") is None
        assert await alice.links() == [changed]

    async def test_only_the_system_scope_names_another_owner(
        self, system: Transaction, alice: Transaction, bob: Transaction
    ) -> None:
        """Only the system scope may name another owner (RoleRefused) or take over a link that another owner has
        (DuplicateId for everyone else)."""
        with pytest.raises(RoleRefused):
            await bob.put_link("slack", "U1", "alice", "verified")
        made = await system.put_link("slack", "U1", "alice", "verified")
        with pytest.raises(DuplicateId):
            await bob.put_link("slack", "U1", "bob", "verified")
        assert await system.link("slack", "U1") == made
        assert (await system.put_link("slack", "U1", "bob", "verified")).owner_id == "bob"
        assert await alice.link("slack", "U1") is None

    async def test_the_system_scope_sees_every_link_a_user_their_own(
        self, system: Transaction, alice: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        """The system scope sees every link of its tenant; a user sees their own."""
        mine = await alice.put_link("slack", "U1", "alice", "verified")
        theirs = await bob.put_link("slack", "U2", "bob", "verified")
        foreign = await other_tenant.put_link("slack", "U1", "alice", "revoked")
        assert await system.link("slack", "U1") == mine
        assert await system.link("slack", "U2") == theirs
        assert sorted(link.platform_user_id for link in await system.links()) == ["U1", "U2"]
        assert await alice.links() == [mine]
        assert await alice.link("slack", "U2") is None
        assert await other_tenant.links() == [foreign]

    async def test_a_link_can_be_removed(self, alice: Transaction) -> None:
        await alice.put_link("slack", "U1", "alice", "verified")
        assert await alice.delete_link("slack", "U1") is True
        assert await alice.delete_link("slack", "U1") is False
        assert await alice.link("slack", "U1") is None


class TestLinkCodes:
    async def test_a_code_names_its_owner_once(
        self, system: Transaction, alice: Transaction, clock: ManualClock
    ) -> None:
        """Redeems the code and returns its owner; None if it is unknown, expired, used, or for another platform."""
        await alice.put_link_code(CODE, "slack", clock.after(60))
        assert await system.redeem_link_code(b"\x00" * 32, "slack", clock.now()) is None
        assert await system.redeem_link_code(CODE, "telegram", clock.now()) is None
        assert await system.redeem_link_code(CODE, "slack", clock.now()) == "alice"
        assert await system.redeem_link_code(CODE, "slack", clock.now()) is None

    async def test_redeeming_a_code_uses_no_other_up(
        self, system: Transaction, alice: Transaction, bob: Transaction, clock: ManualClock
    ) -> None:
        """Redeems the code and returns its owner"""
        await alice.put_link_code(CODE, "slack", clock.after(60))
        await bob.put_link_code(CODE[::-1], "slack", clock.after(60))
        assert await system.redeem_link_code(CODE, "slack", clock.now()) == "alice"
        assert await system.redeem_link_code(CODE[::-1], "slack", clock.now()) == "bob"

    async def test_a_code_expires(self, system: Transaction, alice: Transaction, clock: ManualClock) -> None:
        """None if it is unknown, expired, used, or for another platform."""
        await alice.put_link_code(CODE, "slack", clock.after(60))
        assert await system.redeem_link_code(CODE, "slack", clock.after(60)) is None
        assert await system.redeem_link_code(CODE, "slack", clock.after(59)) == "alice"

    async def test_a_code_is_put_once(
        self, system: Transaction, alice: Transaction, bob: Transaction, clock: ManualClock
    ) -> None:
        """DuplicateId if a code with this hash exists."""
        await alice.put_link_code(CODE, "slack", clock.after(60))
        for tx in (alice, bob):
            with pytest.raises(DuplicateId):
                await tx.put_link_code(CODE, "slack", clock.after(600))
        assert await system.redeem_link_code(CODE, "slack", clock.now()) == "alice"

    async def test_a_code_for_no_platform_is_for_any(
        self, system: Transaction, alice: Transaction, clock: ManualClock
    ) -> None:
        """Stores the hash of a code of this user."""
        await alice.put_link_code(CODE, None, clock.after(60))
        assert await system.redeem_link_code(CODE, "telegram", clock.now()) == "alice"

    async def test_of_many_at_once_one_redeems(
        self, system: Transaction, alice: Transaction, clock: ManualClock
    ) -> None:
        """Redeems the code and returns its owner"""
        await alice.put_link_code(CODE, "slack", clock.after(60))
        tries = [system.redeem_link_code(CODE, "slack", clock.now()) for _ in range(20)]
        assert sorted(map(str, await asyncio.gather(*tries))) == ["None"] * 19 + ["alice"]

    async def test_only_the_system_scope_redeems(
        self, alice: Transaction, other_tenant: Transaction, clock: ManualClock
    ) -> None:
        """System scope."""
        await alice.put_link_code(CODE, "slack", clock.after(60))
        for tx in (alice, other_tenant):
            with pytest.raises(RoleRefused):
                await tx.redeem_link_code(CODE, "slack", clock.now())
