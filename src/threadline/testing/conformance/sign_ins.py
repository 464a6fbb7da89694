"""Sign-ins: links that work once, sessions that end."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from threadline.core.channels import User
from threadline.core.errors import DuplicateId, RoleRefused
from threadline.core.sign_ins import NewSignIn
from threadline.ports import Transaction
from threadline.testing.clock import ManualClock

LINK, FIRST, SECOND = b"l" * 32, b"1" * 32, b"2" * 32


def session_of(clock: ManualClock, id: str, secret_hash: bytes, owner_id: str = "alice") -> NewSignIn:
    return NewSignIn(id, secret_hash, owner_id, "member", "example", clock.after(3_600), "Firefox on Linux")


def link_of(clock: ManualClock, id: str = "link-1", owner_id: str = "alice") -> NewSignIn:
    return NewSignIn(id, LINK, owner_id, "viewer", "link", clock.after(600), is_open=False)


class TestSignIns:
    @pytest.mark.req("K-08")
    async def test_a_session_is_found_by_its_hash(self, system: Transaction, clock: ManualClock) -> None:
        """Stores a session or a link, and the row of its owner if there is none. DuplicateId if the id or the hash
        exists. Also revoked and expired ones, and links: the caller checks."""
        added = await system.add_sign_in(session_of(clock, "s1", FIRST))
        assert (added.owner_id, added.role, added.method, added.device) == (
            "alice",
            "member",
            "example",
            "Firefox on Linux",
        )
        assert (added.created_at, added.opened_at, added.expires_at) == (clock.now(), clock.now(), clock.after(3_600))
        assert await system.sign_in_by_hash(FIRST) == added
        assert await system.sign_in_by_hash(SECOND) is None
        assert await system.user("alice") == User("alice")
        for taken in (session_of(clock, "s1", SECOND), session_of(clock, "s2", FIRST)):
            with pytest.raises(DuplicateId):
                await system.add_sign_in(taken)
        link = await system.add_sign_in(link_of(clock))
        await system.revoke_sign_in("alice", link.id)
        clock.advance(9_000)
        assert await system.sign_in_by_hash(FIRST) == added
        found = await system.sign_in_by_hash(LINK)
        assert found is not None
        assert (found.id, found.revoked_at is None) == (link.id, False)

    @pytest.mark.req("K-08")
    async def test_a_link_is_opened_once(self, system: Transaction, clock: ManualClock) -> None:
        """Makes a session of a link, once: from now on it has this secret and expiry. None, and nothing changes, if
        there is no such link, it was used, revoked or has expired, or its user is disabled."""
        link = await system.add_sign_in(link_of(clock))
        assert link.opened_at is None
        clock.advance(5)
        opened = await system.open_sign_in(LINK, secret_hash=FIRST, expires_at=clock.after(9_000), device="Phone")
        assert opened is not None
        assert (opened.id, opened.role, opened.device) == (link.id, "viewer", "Phone")
        assert (opened.opened_at, opened.last_seen_at, opened.expires_at) == (
            clock.now(),
            clock.now(),
            clock.after(9_000),
        )
        assert await system.sign_in_by_hash(LINK) is None
        assert await system.sign_in_by_hash(FIRST) == opened
        for used in (LINK, FIRST, b"unknown"):
            assert await system.open_sign_in(used, secret_hash=SECOND, expires_at=clock.after(9_000)) is None
        assert await system.sign_in_by_hash(FIRST) == opened

    @pytest.mark.req("K-08")
    async def test_a_link_opened_by_two_at_once_is_opened_by_one(self, system: Transaction, clock: ManualClock) -> None:
        """Makes a session of a link, once."""
        await system.add_sign_in(link_of(clock))
        results = await asyncio.gather(
            *(system.open_sign_in(LINK, secret_hash=bytes([n]) * 32, expires_at=clock.after(900)) for n in range(8))
        )
        assert len([result for result in results if result is not None]) == 1

    @pytest.mark.req("K-08")
    @pytest.mark.parametrize("fault", ["revoked", "expired", "disabled"])
    async def test_a_link_that_is_over_cannot_be_opened(
        self, system: Transaction, clock: ManualClock, fault: str
    ) -> None:
        """None, and nothing changes, if it was revoked or has expired, or its user is disabled."""
        await system.add_sign_in(link_of(clock))
        if fault == "revoked":
            await system.revoke_sign_in("alice", "link-1")
        elif fault == "expired":
            clock.advance(600)
        else:
            await system.disable_user("alice")
        assert await system.open_sign_in(LINK, secret_hash=FIRST, expires_at=clock.after(900)) is None
        assert [each.opened_at for each in await system.sign_ins("alice")] == [None]

    async def test_sign_ins_are_listed_and_revoked(
        self, system: Transaction, alice: Transaction, admin: Transaction, clock: ManualClock
    ) -> None:
        """Every sign-in of the user, newest first. False if the user has no such sign-in, or it is revoked already.
        Revokes all sign-ins of the user but this one, links too; how many."""
        await system.add_sign_in(session_of(clock, "s1", FIRST))
        await system.add_sign_in(session_of(clock, "s2", SECOND))
        await system.add_sign_in(link_of(clock, "s3"))
        await system.add_sign_in(session_of(clock, "s4", b"4" * 32, "bob"))
        assert [each.id for each in await alice.sign_ins("alice")] == ["s3", "s2", "s1"]
        assert [each.id for each in await admin.sign_ins("alice")] == ["s3", "s2", "s1"]
        assert await alice.revoke_sign_in("alice", "s4") is False
        assert await alice.revoke_sign_in("alice", "s1") is True
        assert await admin.revoke_sign_in("alice", "s1") is False
        found = await system.sign_in_by_hash(FIRST)
        assert found is not None
        assert found.revoked_at == clock.now()
        assert await alice.revoke_sign_ins("alice", except_id="s2") == 1
        assert await admin.revoke_sign_ins("alice") == 1
        assert await admin.revoke_sign_ins("alice") == 0
        assert [each.revoked_at for each in await admin.sign_ins("bob")] == [None]

    async def test_uses_are_noted_and_old_ones_dropped(self, system: Transaction, clock: ManualClock) -> None:
        """Stores when it was last used; an earlier time changes nothing. Removes sign-ins that expired or were revoked
        before this time; how many."""
        await system.add_sign_in(session_of(clock, "s1", FIRST))
        await system.add_sign_in(session_of(clock, "s2", SECOND))
        await system.note_sign_in_use("s1", clock.after(60))
        await system.note_sign_in_use("s1", clock.after(30))
        found = await system.sign_in_by_hash(FIRST)
        assert found is not None
        assert found.last_seen_at == clock.after(60)
        await system.revoke_sign_in("alice", "s2")
        assert await system.drop_sign_ins(before=clock.now()) == 0
        assert await system.drop_sign_ins(before=clock.after(1)) == 1
        assert await system.drop_sign_ins(before=clock.after(4_000)) == 1
        assert await system.sign_ins("alice") == []

    @pytest.mark.req("K-08")
    async def test_disabling_a_user_ends_their_sign_ins(self, system: Transaction, clock: ManualClock) -> None:
        """None if its user is disabled. Ends the access of a user: revokes their tokens, sign-ins and links."""
        await system.add_sign_in(session_of(clock, "s1", FIRST))
        await system.disable_user("alice")
        assert await system.sign_in_by_hash(FIRST) is None
        await system.enable_user("alice")
        found = await system.sign_in_by_hash(FIRST)
        assert found is not None
        assert found.revoked_at == clock.now()
        assert not found.is_valid(clock.now(), dt.timedelta(days=1))

    async def test_a_lower_role_counts_for_sign_ins(self, system: Transaction, clock: ManualClock) -> None:
        """Gives the user's tokens and sign-ins that have a higher role this one. How many."""
        await system.add_sign_in(session_of(clock, "s1", FIRST))
        assert await system.limit_tokens("alice", "admin") == 0
        assert await system.limit_tokens("alice", "viewer") == 1
        assert [each.role for each in await system.sign_ins("alice")] == ["viewer"]

    @pytest.mark.req("K-08")
    async def test_other_roles(self, alice: Transaction, admin: Transaction, clock: ManualClock) -> None:
        """Admin and system scopes only (RoleRefused). System scope only (RoleRefused), because the user is not known
        before it is read. Those of another user: admin and system scopes only (RoleRefused)."""
        for refused in (
            alice.add_sign_in(session_of(clock, "s1", FIRST)),
            alice.sign_in_by_hash(FIRST),
            admin.sign_in_by_hash(FIRST),
            admin.open_sign_in(LINK, secret_hash=FIRST, expires_at=clock.after(9)),
            alice.sign_ins("bob"),
            alice.revoke_sign_in("bob", "s1"),
            alice.revoke_sign_ins("bob"),
            admin.note_sign_in_use("s1", clock.now()),
            admin.drop_sign_ins(before=clock.now()),
        ):
            with pytest.raises(RoleRefused):
                await refused
