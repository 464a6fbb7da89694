"""Sealed credentials: one set for each platform of a tenant, readable by the system scope only."""

from __future__ import annotations

import pytest

from threadline.core.errors import RoleRefused
from threadline.core.threads import Scope, system_scope
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock

SEALED = b"\x00\xff sealed"


class TestCredentials:
    @pytest.mark.req("S3-27")
    async def test_credentials_are_stored_and_replaced(self, system: Transaction, clock: ManualClock) -> None:
        """The tenant's secrets for a platform, encrypted by the caller. Stores or replaces the secrets. By platform."""
        first = await system.put_credentials("slack", "key-1", SEALED)
        assert (first.platform, first.key_id, first.sealed, first.updated_at) == (
            "slack",
            "key-1",
            SEALED,
            clock.now(),
        )
        at = clock.advance()
        second = await system.put_credentials("slack", "key-2", b"other")
        assert (second.key_id, second.sealed, second.updated_at) == ("key-2", b"other", at)
        telegram = await system.put_credentials("telegram", "key-1", SEALED)
        assert await system.credentials("slack") == second
        assert await system.credentials("whatsapp") is None
        assert await system.all_credentials() == [second, telegram]

    async def test_credentials_are_deleted(self, system: Transaction) -> None:
        """False if there are none."""
        await system.put_credentials("slack", "key-1", SEALED)
        assert await system.delete_credentials("slack") is True
        assert await system.delete_credentials("slack") is False
        assert await system.credentials("slack") is None

    @pytest.mark.req("S3-05", "S3-27")
    async def test_another_tenant_has_its_own(self, store: Store, system: Transaction, tenant_id: str) -> None:
        await system.put_credentials("slack", "key-1", SEALED)
        assert await store.scoped(system_scope(f"{tenant_id}-other")).all_credentials() == []

    @pytest.mark.req("S3-27")
    @pytest.mark.parametrize("role", ["member", "admin"])
    async def test_only_the_system_scope_sees_them(
        self, store: Store, system: Transaction, tenant_id: str, role: str
    ) -> None:
        """System scope only (RoleRefused)."""
        await system.put_credentials("slack", "key-1", SEALED)
        user = store.scoped(Scope(tenant_id, "alice", "admin" if role == "admin" else "member"))
        with pytest.raises(RoleRefused):
            await user.credentials("slack")
        with pytest.raises(RoleRefused):
            await user.all_credentials()
        with pytest.raises(RoleRefused):
            await user.put_credentials("slack", "mine", b"mine")
        with pytest.raises(RoleRefused):
            await user.delete_credentials("slack")
        assert (await user.row_counts())["credentials"] == 0
        found = await system.credentials("slack")
        assert found is not None
        assert found.key_id == "key-1"
