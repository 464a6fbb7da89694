"""Links between platforms' users and ours, and the codes that make them."""

from __future__ import annotations

import asyncio

import pytest

from threadline.core.errors import DuplicateId, RoleRefused
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock

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
