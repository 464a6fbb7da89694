"""Copying: whole tables out of one tenant and into another, page by page, until both show the same."""

from __future__ import annotations

import msgspec
import pytest

from threadline.core.errors import RoleRefused
from threadline.core.portable import TABLES, Row
from threadline.core.threads import Scope, system_scope
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import clean_text, exchange, history
from threadline.testing.conformance.sample_data import Ids, populate, view


@pytest.fixture
async def populated(store: Store, tenant_id: str, clock: ManualClock) -> Ids:
    """A tenant with one of everything, and what can be asked for in it."""
    return await populate(store, Scope(tenant_id, "alice"), clock)


@pytest.fixture
def replica(store: Store, tenant_id: str) -> Transaction:
    return store.scoped(system_scope(f"{tenant_id}-copy"))


async def rows_of(tx: Transaction, table: str, *, limit: int = 2) -> list[Row]:
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
        counts = await system.row_counts()
        assert counts.keys() == TABLES.keys()
        for table, columns in TABLES.items():
            rows = await rows_of(system, table)
            assert len(rows) == counts[table]
            assert {len(row) for row in rows} == {len(columns)}

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
        replayed = await alice.append(populated.thread_id, exchange(*before), key=populated.key)
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
