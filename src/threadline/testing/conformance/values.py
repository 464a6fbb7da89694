"""Values: versions, atomic changes, large values, order of lists, expiry, and whose they are."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from threadline.core.errors import InvalidInput, NotFound, RoleRefused, ValueChanged
from threadline.core.messages import to_us
from threadline.core.threads import NewThread, Scope, system_scope
from threadline.core.values import PAGE_BYTES, PIECE_BYTES, ValueAddress, ValueScope, ValueWrite
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history

CALLERS = 32


def put(
    scope: ValueScope,
    scope_id: str,
    key: str,
    data: bytes = b"data",
    *,
    expected: int | None = None,
    expires_us: int | None = None,
    namespace: str = "tests",
) -> ValueWrite:
    address = ValueAddress(scope, scope_id, namespace, key)
    return ValueWrite(address, data, len(data), None, expected, expires_us)


def drop(scope: ValueScope, scope_id: str, key: str, *, expected: int | None = None) -> ValueWrite:
    return ValueWrite(ValueAddress(scope, scope_id, "tests", key), None, expected_version=expected)


async def read(tx: Transaction, scope: ValueScope, scope_id: str, *keys: str) -> dict[str, bytes | None]:
    return {row.key: row.data for row in await tx.read_values(scope, scope_id, "tests", keys)}


class TestValues:
    @pytest.mark.req("G-09")
    async def test_a_value_is_read_as_it_was_written(self, alice: Transaction, clock: ManualClock) -> None:
        """Those of the values that exist, with their data, ordered by key."""
        thread = await create_thread_with(alice)
        expires_us = to_us(clock.after(600))
        (version,) = await alice.write_values([put("thread", thread.id, "k", b"\x00\xff", expires_us=expires_us)])
        (row,) = await alice.read_values("thread", thread.id, "tests", ["k", "missing"])
        assert row == ("tests", "k", version, 2, None, to_us(clock.now()), expires_us, b"\x00\xff")
        assert await alice.read_values("thread", thread.id, "other", ["k"]) == []

    @pytest.mark.req("G-09")
    async def test_versions_grow_and_are_never_used_again(self, alice: Transaction, clock: ManualClock) -> None:
        """A new version is greater than every earlier one of the same value."""
        user = alice.scope.user_id
        versions = []
        for _ in range(3):
            versions += await alice.write_values([put("user", user, "k")])
        assert await alice.write_values([drop("user", user, "k")]) == [versions[-1]]
        assert await alice.write_values([drop("user", user, "k")]) == [0]
        clock.advance(1)
        versions += await alice.write_values([put("user", user, "k")])
        assert versions == sorted(set(versions))

    @pytest.mark.req("G-09")
    async def test_a_stale_version_changes_nothing(self, alice: Transaction) -> None:
        """Makes all the changes or none, and returns a version for each: the new one of a value that was stored, the
        last one of a value that was removed, 0 if there was none to remove. ValueChanged: a version is not the expected
        one, where 0 means no value."""
        thread = await create_thread_with(alice)
        (version,) = await alice.write_values([put("thread", thread.id, "a", b"1", expected=0)])
        for wrong in (0, version + 1):
            with pytest.raises(ValueChanged) as caught:
                await alice.write_values(
                    [put("thread", thread.id, "0", b"x"), put("thread", thread.id, "a", b"2", expected=wrong)]
                )
            assert (caught.value.current_version, caught.value.expected_version) == (version, wrong)
        with pytest.raises(ValueChanged):
            await alice.write_values([drop("thread", thread.id, "missing", expected=5)])
        assert await read(alice, "thread", thread.id, "0", "a") == {"a": b"1"}
        await alice.write_values([drop("thread", thread.id, "a", expected=version)])
        assert await read(alice, "thread", thread.id, "a") == {}

    @pytest.mark.req("G-09")
    async def test_of_concurrent_writes_with_one_version_one_succeeds(self, alice: Transaction) -> None:
        """ValueChanged: a version is not the expected one"""
        user = alice.scope.user_id
        for expected in (0, None):
            if expected is None:
                (expected,) = await alice.write_values([put("user", user, "k")])
            results = await asyncio.gather(
                *(
                    alice.write_values([put("user", user, "k", str(n).encode(), expected=expected)])
                    for n in range(CALLERS)
                ),
                return_exceptions=True,
            )
            assert sorted(type(result).__name__ for result in results) == ["ValueChanged"] * (CALLERS - 1) + ["list"]

    @pytest.mark.req("G-09")
    async def test_writes_of_the_same_values_in_any_order_all_succeed(self, alice: Transaction) -> None:
        """Makes all the changes or none"""
        user, keys = alice.scope.user_id, ["a", "b", "c"]
        await asyncio.gather(
            *(
                alice.write_values([put("user", user, key, str(n).encode()) for key in (keys if n % 2 else keys[::-1])])
                for n in range(CALLERS)
            )
        )
        assert len(set((await read(alice, "user", user, *keys)).values())) == 1

    @pytest.mark.req("G-09")
    async def test_a_large_value_is_whole_and_can_become_small(self, alice: Transaction) -> None:
        """Those of the values that exist, with their data"""
        thread = await create_thread_with(alice)
        large = bytes(range(256)) * (3 * PIECE_BYTES // 256) + b"end"
        for data in (large, large[: 2 * PIECE_BYTES], b"", large[:PIECE_BYTES]):
            await alice.write_values([put("thread", thread.id, "k", data)])
            assert await read(alice, "thread", thread.id, "k") == {"k": data}
        await alice.write_values([drop("thread", thread.id, "k")])
        assert (await alice.row_counts())["stored_values"] == 0

    async def test_one_call_changes_a_value_once(self, alice: Transaction) -> None:
        """InvalidInput: two changes of one value."""
        user = alice.scope.user_id
        with pytest.raises(InvalidInput):
            await alice.write_values([put("user", user, "k"), drop("user", user, "k")])

    @pytest.mark.req("G-09")
    async def test_a_value_and_a_message_are_stored_together(
        self, store: Store, alice: Transaction, tenant_id: str
    ) -> None:
        """Runs `work` in one write transaction: if it raises, nothing is stored."""
        thread = await create_thread_with(alice, "a")
        scope = Scope(tenant_id, alice.scope.user_id)

        async def work(tx: Transaction) -> None:
            await tx.append(thread.id, exchange("b"))
            await tx.write_values([put("thread", thread.id, "k", b"with b", expected=0)])

        await store.transact(scope, work)
        with pytest.raises(ValueChanged):
            await store.transact(scope, work)
        assert await history(alice, thread.id) == ["a", "b"]
        assert await read(alice, "thread", thread.id, "k") == {"k": b"with b"}


class TestListingValues:
    @pytest.mark.req("G-09")
    async def test_lists_are_ordered_by_code_points_and_paged(self, alice: Transaction) -> None:
        """The values whose key begins with `prefix`, ordered by the code points of their keys, from the one after
        `after`; at most `limit`."""
        user = alice.scope.user_id
        keys = ["a", "a/1", "a/10", "a/2", "a/é", "a/\ud7ff", "a/\U0010ffff", "a0", "B", "%", "_"]
        await alice.write_values([put("user", user, key) for key in keys])

        async def listed(prefix: str = "", *, descending: bool = False, with_data: bool = False) -> list[str]:
            found: list[str] = []
            while page := await alice.list_values(
                "user",
                user,
                "tests",
                prefix=prefix,
                after=found[-1] if found else None,
                limit=2,
                descending=descending,
                with_data=with_data,
            ):
                found += [row.key for row in page]
            return found

        assert await listed() == sorted(keys)
        assert await listed(descending=True) == sorted(keys, reverse=True)
        for prefix in ("a", "a/", "a/1", "a/\ud7ff", "a/\U0010ffff", "%", "_", "x"):
            expected = [key for key in sorted(keys) if key.startswith(prefix)]
            assert await listed(prefix) == expected
            assert await listed(prefix, descending=True) == expected[::-1]
            assert await listed(prefix, with_data=True) == expected

    @pytest.mark.req("G-09")
    async def test_a_list_with_data_is_bounded_in_bytes(self, alice: Transaction) -> None:
        """With data, a list also ends at the value that would make it larger than `core.values.PAGE_BYTES`, if it has
        one already; that one comes without its data."""
        user = alice.scope.user_id
        sizes = {"a": PAGE_BYTES + 1, "b": PAGE_BYTES // 2, "c": PAGE_BYTES // 2, "d": 1}
        for key, size in sizes.items():
            await alice.write_values([put("user", user, key, bytes(size))])
        pages: list[tuple[str, ...]] = []
        after = None
        while page := await alice.list_values("user", user, "tests", after=after, with_data=True):
            whole = [row for row in page if row.data is not None]
            assert all(row.data == bytes(sizes[row.key]) for row in whole)
            pages.append((*(row.key for row in whole), *(f"then {row.key}" for row in page if row.data is None)))
            after = whole[-1].key
        assert pages == [("a", "then b"), ("b", "c", "then d"), ("d",)]
        without = await alice.list_values("user", user, "tests")
        assert [(row.key, row.size, row.data) for row in without] == [(key, sizes[key], None) for key in sizes]

    async def test_the_namespaces_of_values_are_listed(
        self, alice: Transaction, bob: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """The namespaces that have values, in their order. NotFound as in `write_values`."""
        thread = await alice.create_thread(NewThread(id="holder"))
        assert await alice.value_namespaces("thread", thread.id) == []
        for namespace in ("b", "a", "ä", "B"):
            for key in ("one", "two"):
                address = ValueAddress("thread", thread.id, namespace, key)
                await alice.write_values([ValueWrite(address, b"data", 4)])
        await bob.write_values([put("user", "bob", "one")])
        assert await alice.value_namespaces("thread", thread.id) == ["B", "a", "b", "ä"]
        assert await alice.value_namespaces("user", "alice") == []
        for scope, scope_id in (("thread", thread.id), ("user", "alice")):
            with pytest.raises(NotFound):
                await bob.value_namespaces(scope, scope_id)  # type: ignore[arg-type]  # both are scopes
        gone = ValueAddress("thread", thread.id, "gone", "one")
        await alice.write_values([ValueWrite(gone, b"data", 4, expires_us=to_us(clock.now()) + 1)])
        clock.advance()
        assert "gone" not in await alice.value_namespaces("thread", thread.id)


class TestExpiringValues:
    @pytest.mark.req("G-09")
    async def test_an_expired_value_does_not_exist(
        self, alice: Transaction, system: Transaction, clock: ManualClock
    ) -> None:
        """A value that has expired does not exist. Removes values that have expired; returns how many rows."""
        user = alice.scope.user_id
        await alice.write_values(
            [
                put("user", user, "soon", bytes(PIECE_BYTES + 1), expires_us=to_us(clock.after(10))),
                put("user", user, "later", expires_us=to_us(clock.after(100))),
            ]
        )
        await system.drop_expired_values()
        assert [row.key for row in await alice.list_values("user", user, "tests")] == ["later", "soon"]
        clock.advance(10)
        assert [row.key for row in await alice.list_values("user", user, "tests")] == ["later"]
        assert await read(alice, "user", user, "soon") == {}
        assert await system.drop_expired_values() == 2
        assert await system.drop_expired_values() == 0
        assert (await alice.row_counts())["stored_values"] == 1

    async def test_an_expired_value_can_be_stored_again(self, alice: Transaction, clock: ManualClock) -> None:
        """ValueChanged: a version is not the expected one, where 0 means no value."""
        user = alice.scope.user_id
        (old,) = await alice.write_values([put("user", user, "k", expires_us=to_us(clock.after(1)))])
        clock.advance(1)
        with pytest.raises(ValueChanged):
            await alice.write_values([put("user", user, "k", expected=old)])
        assert await alice.write_values([drop("user", user, "k")]) == [0]
        await alice.write_values([put("user", user, "k", expires_us=to_us(clock.after(1)))])
        clock.advance(1)
        (new,) = await alice.write_values([put("user", user, "k", b"new", expected=0)])
        assert new > old
        assert await read(alice, "user", user, "k") == {"k": b"new"}

    async def test_only_the_system_scope_drops_values(self, alice: Transaction, admin: Transaction) -> None:
        """System scope only (RoleRefused)."""
        for tx in (alice, admin):
            with pytest.raises(RoleRefused):
                await tx.drop_expired_values()


class TestOwnersOfValues:
    @pytest.mark.req("G-09")
    async def test_a_threads_values_are_hidden_and_purged_with_it(self, alice: Transaction) -> None:
        """A value of a thread exists as long as the thread and is not found while the thread is deleted. NotFound as in
        `write_values`."""
        thread, other = await create_thread_with(alice, "a"), await create_thread_with(alice, "b")
        for each in (thread, other):
            await alice.write_values([put("thread", each.id, "k", each.id.encode())])
        await alice.delete_thread(thread.id)
        with pytest.raises(NotFound):
            await read(alice, "thread", thread.id, "k")
        with pytest.raises(NotFound):
            await alice.list_values("thread", thread.id, "tests")
        with pytest.raises(NotFound):
            await alice.write_values([put("thread", thread.id, "k")])
        await alice.restore_thread(thread.id)
        assert await read(alice, "thread", thread.id, "k") == {"k": thread.id.encode()}
        await alice.purge_thread(thread.id)
        assert (await alice.row_counts())["stored_values"] == 1
        assert await read(alice, "thread", other.id, "k") == {"k": other.id.encode()}

    @pytest.mark.req("G-09")
    async def test_a_users_values_are_theirs_alone(
        self, alice: Transaction, bob: Transaction, admin: Transaction
    ) -> None:
        """A value of a user is that user's alone, also for administrators. NotFound: there is no such thread, or the
        values are another user's."""
        user = alice.scope.user_id
        await alice.write_values([put("user", user, "k")])
        for tx in (bob, admin):
            with pytest.raises(NotFound):
                await read(tx, "user", user, "k")
            with pytest.raises(NotFound):
                await tx.list_values("user", user, "tests")
            with pytest.raises(NotFound):
                await tx.write_values([put("user", user, "k", b"forged")])
        assert await read(alice, "user", user, "k") == {"k": b"data"}

    @pytest.mark.req("G-09")
    async def test_a_tenants_values_are_written_by_administrators_and_read_by_all(
        self, alice: Transaction, admin: Transaction, bob: Transaction, other_tenant: Transaction
    ) -> None:
        """A value of the tenant can be read by all its users and written by admin and system scopes. RoleRefused: the
        tenant's values, without the role."""
        await admin.write_values([put("tenant", "", "k", b"for all")])
        for tx in (alice, bob):
            assert await read(tx, "tenant", "", "k") == {"k": b"for all"}
            with pytest.raises(RoleRefused):
                await tx.write_values([put("tenant", "", "k", b"forged")])
        assert await read(other_tenant, "tenant", "", "k") == {}

    async def test_values_are_purged_with_their_user_and_tenant(
        self, store: Store, alice: Transaction, admin: Transaction, bob: Transaction, tenant_id: str
    ) -> None:
        """Removes everything of this user in the tenant"""
        system = store.scoped(system_scope(tenant_id))
        thread = await alice.create_thread(NewThread())
        await alice.write_values([put("thread", thread.id, "k"), put("user", alice.scope.user_id, "k")])
        await bob.write_values([put("user", bob.scope.user_id, "k", bytes(PIECE_BYTES + 1))])
        await admin.write_values([put("tenant", "", "k")])
        await system.purge_user(alice.scope.user_id)
        assert (await system.row_counts())["stored_values"] == 3
        await system.purge_tenant()
        assert (await system.row_counts())["stored_values"] == 0

    async def test_the_system_scope_writes_for_a_user_who_is_new(self, system: Transaction, clock: ManualClock) -> None:
        """An operation that stores a row also creates the rows of its tenant and owner if they do not exist."""
        assert clock.now().tzinfo is dt.UTC
        await system.write_values([put("user", "new", "k")])
        assert [user.id for user in await system.users()] == ["new"]
