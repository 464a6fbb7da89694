"""The inbox: each arrival is claimed once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from threadline.core.errors import RoleRefused
from threadline.core.threads import NewThread
from threadline.core.turns import Surface
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn, clean_text
from threadline.testing.conformance.outbox import ids, waiting


class TestInbox:
    async def test_the_first_claim_gets_the_row(self, system: Transaction, clock: ManualClock) -> None:
        """Claims the arrival with this key: the new row, with status `claimed`; None if it was claimed before.
        `reply_to` is the place to which the answer is sent."""
        row = await system.claim_inbox(
            "slack", "Ev1", fingerprint="f", correlation_id="c", reply_to="C1", owner_id="alice"
        )
        assert row is not None
        assert (row.platform, row.key, row.status, row.decision) == ("slack", "Ev1", "claimed", None)
        assert (row.fingerprint, row.correlation_id, row.reply_to, row.owner_id) == ("f", "c", "C1", "alice")
        assert row.created_at == row.updated_at == clock.now()
        assert await system.inbox_row("slack", "Ev1") == row
        assert await system.claim_inbox("slack", "Ev1", fingerprint="g") is None
        assert await system.inbox_row("slack", "Ev1") == row
        assert await system.inbox_row("slack", "Ev2") is None

    @pytest.mark.req("S3-18")
    async def test_a_key_is_the_platforms_and_the_tenants(self, system: Transaction, other_tenant: Transaction) -> None:
        """Claims what arrived under this key"""
        assert await system.claim_inbox("slack", "1") is not None
        assert await system.claim_inbox("telegram", "1") is not None
        assert await other_tenant.claim_inbox("slack", "1", owner_id="alice") is not None

    @pytest.mark.req("S3-17")
    async def test_of_a_hundred_claims_at_once_one_gets_the_row(self, system: Transaction) -> None:
        """Claims are exclusive: only one of any number of workers gets a row."""
        claims = await asyncio.gather(*(system.claim_inbox("slack", "Ev1") for _ in range(100)))
        assert sum(claim is not None for claim in claims) == 1

    async def test_what_came_of_it_is_recorded(self, system: Transaction, clock: ManualClock) -> None:
        await system.claim_inbox("slack", "Ev1", owner_id="alice")
        at = clock.advance()
        assert await system.settle_inbox("slack", "Ev1", status="done", decision="executed", turn_id="turn-1") is True
        row = await system.inbox_row("slack", "Ev1")
        assert row is not None
        assert (row.status, row.decision, row.turn_id, row.updated_at) == ("done", "executed", "turn-1", at)
        assert await system.settle_inbox("slack", "Ev2", status="done") is False
        assert await system.claim_inbox("slack", "Ev1") is None

    async def test_a_row_is_its_owners_and_the_system_scopes(
        self, system: Transaction, alice: Transaction, bob: Transaction
    ) -> None:
        """The system scope sees the tenant's rows, a user their own"""
        row = await system.claim_inbox("slack", "Ev1", owner_id="alice")
        await system.claim_inbox("slack", "Ev2")
        assert await alice.inbox_row("slack", "Ev1") == row
        assert [await bob.inbox_row("slack", key) for key in ("Ev1", "Ev2")] == [None, None]
        assert await bob.settle_inbox("slack", "Ev1", status="stolen") is False

    async def test_rows_are_listed_by_status_and_platform(
        self, system: Transaction, alice: Transaction, bob: Transaction, clock: ManualClock
    ) -> None:
        """Newest first."""
        platforms: tuple[Surface, ...] = ("slack", "telegram", "slack")
        for number, platform in enumerate(platforms):
            await system.claim_inbox(platform, f"Ev{number}", owner_id="alice")
            clock.advance()
        await system.claim_inbox("slack", "broken", fingerprint="no event")
        await system.settle_inbox("slack", "broken", status="dead", decision="broken")

        async def keys(tx: Transaction, **wanted: Any) -> list[str]:
            return [row.key for row in await tx.inbox(**wanted)]

        assert await keys(system) == ["broken", "Ev2", "Ev1", "Ev0"]
        assert await keys(system, limit=2) == ["broken", "Ev2"]
        assert await keys(system, status="dead") == ["broken"]
        assert await keys(system, status="claimed", platform="slack") == ["Ev2", "Ev0"]
        assert await keys(alice) == ["Ev2", "Ev1", "Ev0"]
        assert await keys(bob) == []

    async def test_only_the_system_scope_names_another_owner(self, system: Transaction, bob: Transaction) -> None:
        """only the system scope may name another owner (RoleRefused)"""
        with pytest.raises(RoleRefused):
            await bob.claim_inbox("slack", "Ev1", owner_id="alice")
        with pytest.raises(RoleRefused):
            await bob.enqueue("slack", "C1", clean_text("x"), turn_id=None, owner_id="alice")
        assert await system.inbox_row("slack", "Ev1") is None
        assert await system.outbox() == []

    @pytest.mark.req("S3-23")
    async def test_what_was_accepted_and_not_answered_is_found(
        self, system: Transaction, alice: Transaction, clock: ManualClock
    ) -> None:
        """Rows with status `accepted` whose turn has ended or does not exist, oldest first. System scope."""
        thread = await alice.create_thread(NewThread())
        for name in ("runs", "ended", "gone", "answered"):
            await system.claim_inbox("slack", name, owner_id="alice")
            status = "done" if name == "answered" else "accepted"
            await system.settle_inbox("slack", name, status=status, turn_id=f"turn-{name}")
            clock.advance()
        for name in ("ended", "runs"):
            await add_turn(alice, f"turn-{name}", thread.id, "slack")
        assert await alice.request_stop("turn-ended")
        assert [row.key for row in await system.unanswered()] == ["ended", "gone"]
        assert [row.key for row in await system.unanswered(limit=1)] == ["ended"]
        with pytest.raises(RoleRefused):
            await alice.unanswered()

    @pytest.mark.req("S3-25")
    async def test_what_is_settled_can_be_dropped(self, system: Transaction, clock: ManualClock) -> None:
        """Removes arrivals and deliveries from before `before`; those not answered or delivered stay. Returns how many
        rows. Histories do not depend on them."""
        await system.claim_inbox("slack", "old", reply_to="C1", owner_id="alice")
        await system.claim_inbox("slack", "open")
        await system.settle_inbox("slack", "old", status="done", decision="executed")
        await waiting(system, clock, "sent", "dead", "kept")
        await system.claim_outbox("w", until=clock.after(30), limit=2)
        await system.settle_outbox("sent", "w", status="sent")
        await system.settle_outbox("dead", "w", status="dead")
        at = clock.advance(10)
        await system.claim_inbox("slack", "new")
        await system.settle_inbox("slack", "new", status="done")
        assert await system.drop_settled(before=at) == 2
        assert [await system.inbox_row("slack", key) is None for key in ("old", "open", "new")] == [True, False, False]
        assert ids(await system.outbox()) == ["kept", "dead"]

    async def test_only_the_system_scope_drops(self, alice: Transaction, clock: ManualClock) -> None:
        """System scope."""
        with pytest.raises(RoleRefused):
            await alice.drop_settled(before=clock.now())
