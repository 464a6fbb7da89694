"""Access: tokens stored by their hash, rate limits across processes, and the audit record.

Sealed credentials: one set for each platform of a tenant, readable by the system scope only.
"""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from threadline.core.access import NewToken
from threadline.core.errors import DuplicateId, InvalidInput, RoleRefused
from threadline.core.threads import Scope, system_scope
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import clean_json

HASH, OTHER_HASH = b"h" * 32, b"o" * 32
MINUTE = dt.timedelta(minutes=1)


def token(id: str = "t1", token_hash: bytes = HASH, owner_id: str = "alice") -> NewToken:
    return NewToken(id, token_hash, owner_id, "laptop", "member")


class TestTokens:
    async def test_a_token_is_found_by_its_hash(
        self, admin: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """Stores the hash of a token, and the row of its owner if there is none."""
        expires_at = clock.after(60)
        made = await admin.create_token(NewToken("t1", HASH, "alice", "laptop", "viewer", expires_at))
        found = await system.token_by_hash(HASH)
        assert found == made
        assert (made.owner_id, made.name, made.role, made.expires_at) == ("alice", "laptop", "viewer", expires_at)
        assert (made.created_at, made.last_used_at, made.revoked_at) == (clock.now(), None, None)
        assert await system.token_by_hash(OTHER_HASH) is None
        assert "alice" in {user.id for user in await system.users()}

    async def test_a_token_acts_for_users_only_if_it_was_made_so(self, admin: Transaction, system: Transaction) -> None:
        """Stores the hash of a token, and the row of its owner if there is none."""
        plain, bot = token(), NewToken("t2", OTHER_HASH, "bot", "bot", "member", acts_for_users=True)
        for new in (plain, bot):
            assert (await admin.create_token(new)).acts_for_users is new.acts_for_users
            found = await system.token_by_hash(new.token_hash)
            assert found is not None
            assert found.acts_for_users is new.acts_for_users
        assert [each.acts_for_users for each in await admin.tokens()] == [True, False]

    @pytest.mark.parametrize("again", [token(), token("t1", OTHER_HASH), token("t2", HASH)])
    async def test_an_id_and_a_hash_are_taken_once(self, admin: Transaction, again: NewToken) -> None:
        """DuplicateId if the id or the hash exists."""
        await admin.create_token(token())
        with pytest.raises(DuplicateId):
            await admin.create_token(again)
        assert len(await admin.tokens()) == 1

    async def test_tokens_are_listed_newest_first(self, admin: Transaction, system: Transaction) -> None:
        """Every token of the tenant, also revoked and expired ones, newest first."""
        for number, owner_id in enumerate(("alice", "bob", "admin")):
            await admin.create_token(token(f"t{number}", bytes([number]) * 32, owner_id))
        await admin.revoke_token("t1")
        assert [each.id for each in await admin.tokens()] == ["t2", "t1", "t0"]
        assert await system.tokens() == await admin.tokens()

    async def test_a_token_is_revoked_once(self, admin: Transaction, system: Transaction, clock: ManualClock) -> None:
        """Revokes the token. False if there is none, or it is revoked already."""
        await admin.create_token(token())
        assert await admin.revoke_token("t1") is True
        when = clock.now()
        clock.advance(5)
        assert await admin.revoke_token("t1") is False
        assert await admin.revoke_token("nowhere") is False
        found = await system.token_by_hash(HASH)
        assert found is not None
        assert found.revoked_at == when

    async def test_the_last_use_never_goes_back(
        self, admin: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """Stores when the token was last used; an earlier time changes nothing."""
        await admin.create_token(token())
        await system.note_use("t1", clock.after(10))
        await system.note_use("t1", clock.after(5))
        await system.note_use("nowhere", clock.after(5))
        assert [each.last_used_at for each in await admin.tokens()] == [clock.after(10)]

    async def test_tokens_are_for_administrators(self, alice: Transaction, admin: Transaction) -> None:
        """Admin and system scopes only (RoleRefused)."""
        await admin.create_token(token())
        for refused in (alice.create_token(token("t2", OTHER_HASH)), alice.tokens(), alice.revoke_token("t1")):
            with pytest.raises(RoleRefused):
                await refused
        assert [each.revoked_at for each in await admin.tokens()] == [None]

    async def test_only_the_system_scope_looks_up_and_notes(self, alice: Transaction, admin: Transaction) -> None:
        """Also revoked and expired tokens: the caller checks. System scope only (RoleRefused), because the user is not
        known before the token is read."""
        for tx in (alice, admin):
            for refused in (tx.token_by_hash(HASH), tx.note_use("t1", dt.datetime.now(dt.UTC))):
                with pytest.raises(RoleRefused):
                    await refused

    async def test_a_token_goes_with_its_user(self, admin: Transaction, system: Transaction) -> None:
        """Everything of this user in the tenant"""
        await admin.create_token(token())
        await system.purge_user("alice")
        assert await system.token_by_hash(HASH) is None


class TestPermits:
    async def test_no_more_is_given_than_the_limit(self, system: Transaction, clock: ManualClock) -> None:
        """Returns how many of the `wanted` permits are granted: at most `limit` under this key in the window that began
        at `window`, over all processes."""
        now = clock.now()
        given = [await system.take_permits("k", window=now, wanted=4, limit=10) for _ in range(4)]
        assert given == [4, 4, 2, 0]
        assert await system.take_permits("other", window=now, wanted=4, limit=10) == 4
        assert await system.take_permits("k", window=now + MINUTE, wanted=4, limit=10) == 4

    async def test_concurrent_requests_share_the_limit(
        self, store: Store, system: Transaction, clock: ManualClock
    ) -> None:
        """over all processes"""
        wishes = [system.take_permits("k", window=clock.now(), wanted=3, limit=20) for _ in range(16)]
        assert sum(await asyncio.gather(*wishes)) == 20

    async def test_a_window_that_a_faster_clock_began_counts(self, system: Transaction, clock: ManualClock) -> None:
        """If a process with a faster clock has begun a later window, that one counts instead."""
        assert await system.take_permits("k", window=clock.now() + MINUTE, wanted=9, limit=10) == 9
        assert await system.take_permits("k", window=clock.now(), wanted=9, limit=10) == 1

    async def test_old_windows_are_forgotten(self, system: Transaction, clock: ManualClock) -> None:
        """Removes windows that began before `before`; returns how many."""
        await system.take_permits("old", window=clock.now(), wanted=1, limit=10)
        await system.take_permits("new", window=clock.now() + MINUTE, wanted=10, limit=10)
        assert await system.drop_permits(before=clock.now() + MINUTE) == 1
        assert await system.take_permits("new", window=clock.now() + MINUTE, wanted=1, limit=10) == 0

    async def test_limits_are_the_system_scopes(self, store: Store, tenant_id: str, clock: ManualClock) -> None:
        """System scope only (RoleRefused)."""
        tx = store.scoped(Scope(tenant_id, "admin", "admin"))
        for refused in (
            tx.take_permits("k", window=clock.now(), wanted=1, limit=1),
            tx.drop_permits(before=clock.now()),
        ):
            with pytest.raises(RoleRefused):
                await refused


class TestActs:
    async def test_an_act_is_on_record(self, admin: Transaction, clock: ManualClock) -> None:
        """Records what the scope's user did: the act as `noun.verb`, for example `token.revoked`, and the id of its
        target."""
        made = await admin.record_act("token.created", "t1", clean_json({"role": "member"}))
        assert (made.actor_id, made.act, made.target, made.details) == (
            "admin",
            "token.created",
            "t1",
            {"role": "member"},
        )
        assert made.created_at == clock.now()
        assert await admin.acts() == [made]

    async def test_acts_are_read_page_by_page(self, admin: Transaction, system: Transaction) -> None:
        """Newest first, older than the act with the id `before`."""
        made = [await admin.record_act("agent.changed", f"a{number}") for number in range(5)]
        first = await admin.acts(limit=2)
        assert first == [made[4], made[3]]
        assert await admin.acts(limit=2, before=first[-1].id) == [made[2], made[1]]
        assert await system.acts() == made[::-1]

    async def test_only_the_system_scope_names_another_actor(
        self, admin: Transaction, system: Transaction, other_tenant: Transaction
    ) -> None:
        """Only the system scope may name another actor (RoleRefused)."""
        with pytest.raises(RoleRefused):
            await admin.record_act("token.created", "t1", actor_id="alice")
        await system.record_act("token.created", "t1", actor_id="operator:root")
        assert [act.actor_id for act in await admin.acts()] == ["operator:root"]

    async def test_a_record_is_made_with_its_act_or_not_at_all(
        self, store: Store, admin: Transaction, tenant_id: str
    ) -> None:
        """Call it in the transaction of the act itself, so that neither is stored alone."""

        async def work(tx: Transaction) -> None:
            await tx.create_token(token())
            await tx.record_act("token.created", "t1")
            raise InvalidInput("not after all")

        with pytest.raises(InvalidInput):
            await store.transact(Scope(tenant_id, "admin", "admin"), work)
        assert (await admin.tokens(), await admin.acts()) == ([], [])

    async def test_records_are_read_by_administrators(self, alice: Transaction, admin: Transaction) -> None:
        """Admin and system scopes only (RoleRefused)."""
        await alice.record_act("link.made", "slack:U1")
        with pytest.raises(RoleRefused):
            await alice.acts()
        assert [act.actor_id for act in await admin.acts()] == ["alice"]

    async def test_a_record_outlives_its_user(
        self, admin: Transaction, system: Transaction, alice: Transaction
    ) -> None:
        """The record is removed with its tenant, not with a user. `acts` lists one entry afterwards, that `actor_id`
        purged the tenant."""
        await alice.record_act("link.made", "slack:U1")
        await system.purge_user("alice")
        assert [act.actor_id for act in await admin.acts()] == ["alice"]
        assert (await system.users()) == []
        await system.purge_tenant(actor_id="operator:root")
        (entry,) = await admin.acts()
        assert (entry.actor_id, entry.act, entry.target) == ("operator:root", "tenant.purged", admin.scope.tenant_id)
        assert entry.details["rows"]["audit"] == 1


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
