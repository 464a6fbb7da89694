"""Users who are disabled and enabled, and tokens that are limited to a role."""

from __future__ import annotations

import pytest

from threadline.core.access import NewToken, TokenRole
from threadline.core.channels import User
from threadline.core.errors import RoleRefused
from threadline.core.threads import Scope
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import add_turn, create_thread_with, history

CODE = b"\x00\xff" * 16


class TestDisabledUsers:
    async def test_disabling_ends_tokens_links_codes_and_turns(
        self, store: Store, system: Transaction, alice: Transaction, clock: ManualClock, tenant_id: str
    ) -> None:
        """Ends the access of a user: revokes their tokens, sign-ins and links, removes their link codes and stops
        their turns."""
        admin = store.scoped(Scope(tenant_id, "root", "admin"))
        await admin.create_token(NewToken("t1", b"h" * 32, "alice", "laptop", "member"))
        await admin.create_token(NewToken("t2", b"o" * 32, "bob", "laptop", "member"))
        await alice.put_link("slack", "U1", "alice", "verified")
        await alice.put_link_code(CODE, None, clock.after(60))
        thread = await create_thread_with(alice, "hello")
        turn = await add_turn(alice, "turn-1", thread.id)
        assert await alice.lease_turn(turn.id, worker="w", seconds=30) is not None
        disabled = await admin.disable_user("alice")
        assert disabled == User("alice", disabled_at=clock.now())
        assert [(token.id, token.revoked_at is None) for token in await admin.tokens()] == [("t2", True), ("t1", False)]
        sender = await system.sender("slack", "U1")
        assert sender is not None
        assert sender.state == "revoked"
        assert await system.redeem_link_code(CODE, "slack", clock.now()) is None
        assert await alice.is_stop_requested(turn.id) is True
        assert await history(alice, thread.id) == ["hello", "Is it far?"]

    async def test_a_user_is_disabled_since_the_first_time_until_enabled(
        self, system: Transaction, alice: Transaction, clock: ManualClock
    ) -> None:
        """A disabled user stays disabled since the first time. Creates or replaces a user; `disabled_at` does not
        change. Ends the disabling; tokens, sign-ins and links stay revoked."""
        await alice.put_link("slack", "U1", "alice", "verified")
        first = clock.now()
        await system.disable_user("alice")
        clock.advance(5)
        assert await system.disable_user("alice") == User("alice", disabled_at=first)
        await system.put_user(User("alice", "Alice"))
        assert await system.user("alice") == User("alice", "Alice", disabled_at=first)
        assert await system.enable_user("alice") == User("alice", "Alice")
        sender = await system.sender("slack", "U1")
        assert sender is not None
        assert sender.state == "revoked"

    async def test_a_link_of_a_disabled_user_counts_as_revoked(self, system: Transaction) -> None:
        """The sender of a message: the owner of the link, its state (`revoked` if the owner is disabled), and the
        owner's role."""
        await system.put_user(User("alice"))
        await system.disable_user("alice")
        await system.put_link("slack", "U1", "alice", "verified")
        sender = await system.sender("slack", "U1")
        assert sender is not None
        assert sender.state == "revoked"

    async def test_unknown_users_and_other_roles(self, system: Transaction, alice: Transaction) -> None:
        """None if there is no such user. Admin and system scopes only (RoleRefused)."""
        assert await system.disable_user("unknown") is None
        assert await system.enable_user("unknown") is None
        assert await system.limit_tokens("unknown", "viewer") == 0
        for refused in (alice.disable_user("alice"), alice.enable_user("alice"), alice.limit_tokens("alice", "admin")):
            with pytest.raises(RoleRefused):
                await refused

    async def test_tokens_are_limited_to_a_role(self, store: Store, tenant_id: str) -> None:
        """Gives the user's tokens and sign-ins that have a higher role this one. How many."""
        admin = store.scoped(Scope(tenant_id, "root", "admin"))
        roles: tuple[TokenRole, ...] = ("viewer", "member", "admin")
        for number, role in enumerate(roles):
            await admin.create_token(NewToken(f"t{number}", bytes([number]) * 32, "alice", "laptop", role))
        await admin.create_token(NewToken("t3", b"3" * 32, "bob", "laptop", "admin"))

        async def current() -> list[str]:
            return [token.role for token in reversed(await admin.tokens())]

        assert await admin.limit_tokens("alice", "admin") == 0
        assert await admin.limit_tokens("alice", "member") == 1
        assert await current() == ["viewer", "member", "member", "admin"]
        assert await admin.limit_tokens("alice", "viewer") == 2
        assert await current() == ["viewer", "viewer", "viewer", "admin"]

    async def test_users_are_listed_in_pages(self, system: Transaction) -> None:
        """Every user of the tenant, by id; with `after_id` those that follow it."""
        for user_id in ("ada", "bob", "eve"):
            await system.put_user(User(user_id))
        listed = [user.id for user in await system.users(limit=2)]
        following = await system.users(after_id=listed[-1], limit=2)
        assert (listed, [user.id for user in following if user.id != "system"]) == (["ada", "bob"], ["eve"])
