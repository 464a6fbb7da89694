"""Purging: what is removed for good, what another thread still shows, and that nothing else stays behind.

Whether free pages keep text is for each database's own tests to look at; here it is rows, reads and search.

Copying: whole tables out of one tenant and into another, page by page, until both show the same.
"""

from __future__ import annotations

import msgspec
import pytest

from threadline.core.channels import Agent, User
from threadline.core.errors import NotFound, RoleRefused, StoreFailed
from threadline.core.portable import TABLES, Row
from threadline.core.threads import NewThread, Scope, system_scope
from threadline.ports import Store, Transaction
from threadline.ports.administration import TableCopyOperations
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import clean_text, create_thread_with, exchange, history
from threadline.testing.conformance.sample_data import SECRET, Ids, names_for, populate, view


class TestPurgingThreads:
    @pytest.mark.req("S4-03", "SX-03")
    async def test_a_purged_thread_is_gone_with_its_messages(self, alice: Transaction) -> None:
        """Removes the thread, deleted or not, and the points saved in it. Permanent removal: afterwards no row, index
        entry or free page contains the text."""
        await alice.create_thread(NewThread(id="other"))
        before = await alice.row_counts()
        thread = await create_thread_with(alice, "a zebra", "b", "c")
        await alice.append(thread.id, exchange("d"), key="k1")
        await alice.move(thread.id, 1)
        await alice.save(thread.id, "here")
        assert await alice.purge_thread(thread.id) is True
        assert await alice.row_counts() == before
        assert await alice.thread(thread.id, deleted=True) is None
        assert await alice.saved_points() == []
        assert await alice.search("zebra") == []
        with pytest.raises(NotFound):
            await alice.restore_thread(thread.id)

    async def test_a_deleted_thread_can_be_purged(self, alice: Transaction) -> None:
        """Removes the thread, deleted or not"""
        thread = await create_thread_with(alice, "a")
        await alice.delete_thread(thread.id)
        assert await alice.purge_thread(thread.id) is True
        assert (await alice.row_counts())["messages"] == 0

    async def test_purging_what_is_not_there_says_so(self, alice: Transaction) -> None:
        """False if there was none."""
        thread = await create_thread_with(alice, "a")
        assert await alice.purge_thread("nowhere") is False
        assert await alice.purge_thread(thread.id) is True
        assert await alice.purge_thread(thread.id) is False

    @pytest.mark.req("S4-11")
    async def test_what_a_branch_shows_stays_and_no_more(self, alice: Transaction) -> None:
        """Its timelines that no other thread or saved point needs are removed; messages that are in a branch stay"""
        source = await create_thread_with(alice, "a", "b", "zebra c")
        branch = await alice.branch(source.id, NewThread(), at=1)
        await alice.append(branch.id, exchange("B"))
        await alice.move(source.id, 0)
        await alice.append(source.id, exchange("zebra 2", "zebra 3"))
        await alice.purge_thread(source.id)
        assert await history(alice, branch.id) == ["a", "b", "B"]
        assert await alice.search("zebra") == []
        assert {hit.thread_id for hit in await alice.search("a")} == {branch.id}
        await alice.purge_thread(branch.id)
        counts = await alice.row_counts()
        assert (counts["messages"], counts["timelines"], counts["threads"]) == (0, 0, 0)

    async def test_a_deleted_branch_can_be_restored(self, alice: Transaction) -> None:
        """messages that are in a branch stay, also in a deleted branch, which can be restored"""
        source = await create_thread_with(alice, "a", "b")
        branch = await alice.branch(source.id, NewThread())
        await alice.delete_thread(branch.id)
        await alice.purge_thread(source.id)
        await alice.restore_thread(branch.id)
        assert await history(alice, branch.id) == ["a", "b"]

    async def test_what_a_point_saved_elsewhere_reaches_stays(self, alice: Transaction) -> None:
        """Its timelines that no other thread or saved point needs are removed"""
        source, other = await create_thread_with(alice, "a", "b"), await create_thread_with(alice, "x")
        branch = await alice.branch(source.id, NewThread())
        await alice.append(branch.id, exchange("c"))
        await alice.save(branch.id, "kept")
        await alice.save(source.id, "gone")
        await alice.purge_thread(source.id)
        assert [point.name for point in await alice.saved_points()] == ["kept"]
        await alice.load(other.id, "kept")
        assert await history(alice, other.id) == ["a", "b", "c"]

    async def test_a_thread_that_stood_on_a_purged_threads_point_keeps_it(self, alice: Transaction) -> None:
        """messages that are in a branch stay"""
        source, other = await create_thread_with(alice, "a", "b", "c"), await create_thread_with(alice, "x")
        await alice.save(source.id, "here", at=1)
        loaded = await alice.load(other.id, "here")
        await alice.switch(other.id, other.timeline_id)
        await alice.purge_thread(source.id)
        assert await history(alice, other.id) == ["x"]
        await alice.switch(other.id, loaded.timeline_id)
        assert await history(alice, other.id) == ["a", "b"]

    async def test_the_middle_of_a_lineage_can_be_purged(self, alice: Transaction) -> None:
        """messages that are in a branch stay"""
        admin = await create_thread_with(alice, "r0", "r1")
        middle = await alice.branch(admin.id, NewThread())
        await alice.append(middle.id, exchange("m2", "m3"))
        leaf = await alice.branch(middle.id, NewThread(), at=2)
        await alice.append(leaf.id, exchange("l3"))
        for gone in (middle, admin):
            await alice.purge_thread(gone.id)
            assert await history(alice, leaf.id) == ["r0", "r1", "m2", "l3"]
        grandchild = await alice.branch(leaf.id, NewThread(), at=1)
        await alice.purge_thread(leaf.id)
        assert await history(alice, grandchild.id) == ["r0", "r1"]


class TestPurgingUsers:
    @pytest.mark.req("SX-03", "S0-15")
    async def test_nothing_of_a_purged_user_stays(
        self, store: Store, system: Transaction, tenant_id: str, clock: ManualClock
    ) -> None:
        """Removes everything of this user in the tenant, including the user's row; returns how many rows of each table.
        The record of their acts stays."""
        bob = Scope(tenant_id, "bob")
        theirs = await populate(store, bob, clock)
        # Agents are the tenant's and stay, so the one that alice's world brings is there before.
        await system.put_agent(Agent(names_for("alice").agent_id, "Agent", "rehearsal", system_prompt="Be brief."))
        alone, bobs_view = await system.row_counts(), await view(store, bob, theirs)
        await populate(store, Scope(tenant_id, "alice"), clock)
        alone["audit"] += 1
        both = await system.row_counts()
        expected = {table: rows - alone[table] for table, rows in both.items() if rows != alone[table]}
        assert await system.purge_user("alice") == expected
        assert await system.row_counts() == alone
        assert await view(store, bob, theirs) == bobs_view
        assert await system.user("alice") is None
        assert await store.scoped(Scope(tenant_id, "alice")).search(SECRET) == []

    async def test_users_may_purge_themselves_only(
        self, alice: Transaction, bob: Transaction, other_tenant: Transaction, system: Transaction
    ) -> None:
        """Own user, or system scope."""
        kept = [await create_thread_with(tx, "kept") for tx in (bob, other_tenant)]
        await create_thread_with(alice, "gone")
        with pytest.raises(RoleRefused):
            await alice.purge_user("bob")
        assert (await alice.purge_user("alice"))["messages"] == 1
        assert (await alice.threads()).items == ()
        for tx, thread in zip((bob, other_tenant), kept, strict=True):
            assert await history(tx, thread.id) == ["kept"]
        assert [user.id for user in await system.users()] == ["bob"]

    async def test_purging_an_unknown_user_removes_nothing(self, system: Transaction) -> None:
        """how many rows of each table"""
        await system.put_user(User("bob"))
        assert await system.purge_user("unknown") == {}
        assert [user.id for user in await system.users()] == ["bob"]

    async def test_a_purged_user_can_begin_again(self, alice: Transaction) -> None:
        thread = await create_thread_with(alice, "a", new=NewThread(id="one", state_key="plans"))
        await alice.purge_user("alice")
        again = await create_thread_with(alice, "b", new=NewThread(id="one", state_key="plans"))
        assert again.id == thread.id
        assert await history(alice, "one") == ["b"]


class TestPurgingTenants:
    async def test_the_world_has_a_row_in_every_table(self, store: Store, tenant_id: str, clock: ManualClock) -> None:
        """Rows per table that this scope can see."""
        await populate(store, Scope(tenant_id, "alice"), clock)
        counts = await store.scoped(system_scope(tenant_id)).row_counts()
        # A hold would forbid the purges of these tests; those of retention have one.
        assert [table for table, rows in counts.items() if not rows] == ["legal_holds"]
        own = await store.scoped(Scope(tenant_id, "bob")).row_counts()
        assert own.keys() == counts.keys()
        assert {table for table, rows in own.items() if rows} <= {"tenants", "agents"}

    @pytest.mark.req("SX-03", "S0-15")
    async def test_nothing_of_a_purged_tenant_stays(self, store: Store, tenant_id: str, clock: ManualClock) -> None:
        """Removes everything of the tenant; returns how many rows of each table."""
        scopes = [Scope(tenant_id, "alice"), Scope(tenant_id, "bob"), Scope(f"{tenant_id}-other", "alice")]
        worlds = [await populate(store, scope, clock) for scope in scopes]
        other_tenant = await view(store, scopes[2], worlds[2])
        system = store.scoped(system_scope(tenant_id))
        stored = await system.row_counts()
        assert await system.purge_tenant() == {table: rows for table, rows in stored.items() if rows}
        assert set((await system.row_counts()).values()) == {0}
        assert tenant_id not in await store.tenants()
        assert await store.scoped(scopes[0]).search(SECRET) == []
        assert await view(store, scopes[2], worlds[2]) == other_tenant

    async def test_only_the_system_scope_purges_a_tenant(
        self, store: Store, alice: Transaction, tenant_id: str
    ) -> None:
        """System scope only (RoleRefused)."""
        thread = await create_thread_with(alice, "kept")
        for tx in (alice, store.scoped(Scope(tenant_id, "alice", "admin"))):
            with pytest.raises(RoleRefused):
                await tx.purge_tenant()
        assert await history(alice, thread.id) == ["kept"]


@pytest.fixture
async def populated(store: Store, tenant_id: str, clock: ManualClock) -> Ids:
    """A tenant with one of everything, and what can be asked for in it."""
    return await populate(store, Scope(tenant_id, "alice"), clock)


@pytest.fixture
def replica(store: Store, tenant_id: str) -> Transaction:
    return store.scoped(system_scope(f"{tenant_id}-copy"))


async def rows_of(tx: TableCopyOperations, table: str, *, limit: int = 2) -> list[Row]:
    found: list[Row] = []
    page = await tx.read_rows(table, limit=limit)
    while True:
        assert len(page.rows) <= limit
        found += page.rows
        if page.next_place is None:
            return found
        page = await tx.read_rows(table, place=page.next_place, limit=limit)


async def pour(source: Transaction, target: Transaction) -> None:
    for table in TABLES:
        await target.write_rows(table, await rows_of(source, table))
        if table == "threads":
            await target.write_rows("timelines", await rows_of(source, "timelines"))


class TestCopying:
    async def test_every_table_that_is_counted_can_be_read(self, system: Transaction, populated: Ids) -> None:
        """Copies of whole tables, tenant by tenant, in the form of `core.portable`."""
        await system.add_hold("hold-1", clean_text("a case"), "root")
        counts = await system.row_counts()
        assert counts.keys() == TABLES.keys()
        for table, columns in TABLES.items():
            rows = await rows_of(system, table)
            assert len(rows) == counts[table]
            assert {len(row) for row in rows} == {len(columns)}, table

    @pytest.mark.parametrize("limit", [1, 2, 1000])
    async def test_pages_add_up_to_the_table(self, system: Transaction, populated: Ids, limit: int) -> None:
        """The first rows of a table, or the rows from the `next_place` of the previous page on."""
        for table in TABLES:
            rows = await rows_of(system, table, limit=limit)
            assert len(set(map(msgspec.msgpack.encode, rows))) == len(rows)
            assert len(rows) == (await system.row_counts())[table]

    async def test_parents_stand_before_their_branches(self, system: Transaction, populated: Ids) -> None:
        """Timelines are ordered so that parents come before their branches."""
        seen: set[str] = set()
        lineage = TABLES["timelines"].index("lineage")
        for row in await rows_of(system, "timelines"):
            assert {timeline_id for timeline_id, _ in row[lineage]} <= seen
            seen.add(row[0])
        assert len(seen) > 3

    @pytest.mark.req("SX-05")
    async def test_a_copied_tenant_shows_the_same(
        self, store: Store, system: Transaction, replica: Transaction, populated: Ids, tenant_id: str
    ) -> None:
        """Rows they refer to must exist; timelines are written once before the threads and once after, which sets their
        thread."""
        await pour(system, replica)
        for table in TABLES:
            assert sorted(map(repr, await rows_of(replica, table))) == sorted(map(repr, await rows_of(system, table)))
        here, there = Scope(tenant_id, "alice"), Scope(replica.scope.tenant_id, "alice")
        assert await view(store, there, populated) == await view(store, here, populated)

    async def test_a_copy_can_be_made_again(self, system: Transaction, replica: Transaction, populated: Ids) -> None:
        """Adds the rows that do not exist yet."""
        await pour(system, replica)
        once = {table: await rows_of(replica, table) for table in TABLES}
        await pour(system, replica)
        assert {table: await rows_of(replica, table) for table in TABLES} == once

    async def test_a_copy_is_independent_of_its_source(
        self, store: Store, system: Transaction, replica: Transaction, populated: Ids, clock: ManualClock
    ) -> None:
        """Adds the rows that do not exist yet."""
        await pour(system, replica)
        alice = store.scoped(Scope(replica.scope.tenant_id, "alice"))
        before = await history(alice, populated.thread_id)
        said = exchange(*before[:3])
        replayed = await alice.append(populated.thread_id, said, key=populated.key)
        assert replayed.replayed
        await alice.append(populated.thread_id, exchange("only there"))
        await alice.set_context(populated.agent_id, clean_text("only there"))
        await alice.undo(populated.thread_id)
        assert await history(store.scoped(Scope(system.scope.tenant_id, "alice")), populated.thread_id) == before

    async def test_only_the_system_scope_copies(
        self, store: Store, alice: Transaction, tenant_id: str, populated: Ids
    ) -> None:
        """System scope only (RoleRefused)."""
        for tx in (alice, store.scoped(Scope(tenant_id, "alice", "admin"))):
            for table in TABLES:
                with pytest.raises(RoleRefused):
                    await tx.read_rows(table)
                with pytest.raises(RoleRefused):
                    await tx.write_rows(table, [])

    async def test_a_snapshot_does_not_see_what_is_written_later(
        self, store: Store, alice: Transaction, tenant_id: str, populated: Ids
    ) -> None:
        """One consistent state of all tenants, to read while others write; on a cluster, of each tenant. Nothing can be
        written."""
        async with store.snapshot() as snapshot:
            assert tenant_id in await snapshot.tenants()
            tables = await snapshot.enter(tenant_id)
            before = await rows_of(tables, "messages")
            await alice.append(populated.thread_id, exchange("later"))
            assert await rows_of(tables, "messages") == before
        with pytest.raises(StoreFailed):
            async with store.snapshot() as snapshot:
                await (await snapshot.enter(tenant_id)).write_rows("users", [("mallory", None, "admin", 0)])

    async def test_a_load_that_fails_stores_nothing(
        self, store: Store, system: Transaction, replica: Transaction, populated: Ids
    ) -> None:
        """Stores what is written inside the block when it ends: everything or, after an exception, nothing."""

        async def load(*, fails: bool) -> None:
            async with store.load() as loading:
                tables = await loading.enter(replica.scope.tenant_id)
                for table in ("tenants", "users"):
                    await tables.write_rows(table, rows[table])
                if fails:
                    raise InterruptedError

        rows = {table: await rows_of(system, table) for table in ("tenants", "users")}
        with pytest.raises(InterruptedError):
            await load(fails=True)
        assert set((await replica.row_counts()).values()) == {0}
        await load(fails=False)
        assert await rows_of(replica, "users") == rows["users"]
