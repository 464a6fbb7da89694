"""Retention through administration: policies per tenant, holds and audit."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.conftest import OpenStore
from threadline.administration.administration import Administration
from threadline.administration.retention import apply_policies
from threadline.core.errors import InvalidInput, NotFound, RoleRefused, UnderLegalHold
from threadline.core.retention import RetentionPolicy, RetentionSettings
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope, system_scope
from threadline.ports import Store
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import create_thread_with

DAY = 86_400


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return await open_store()


def administration(store: Store, clock: ManualClock, tenant_id: str, **policy: int) -> Administration:
    settings = RetentionSettings(tenants={tenant_id: RetentionPolicy(**policy)})
    return Administration(store, Sealer(), clock, Scope(tenant_id, "root", "admin"), retention=settings)


@pytest.mark.req("K-05")
@pytest.mark.parametrize("database", ["memory", "postgres"], indirect=True)
async def test_overdue_threads_are_purged_and_held_ones_stay(store: Store, tenant_id: str, clock: ManualClock) -> None:
    admin = administration(store, clock, tenant_id, age=30, deleted=1)
    alice = store.scoped(Scope(tenant_id, "alice"))
    old = [await create_thread_with(alice, f"old {number}") for number in range(25)]
    held, deleted = await create_thread_with(alice, "held"), await create_thread_with(alice, "deleted")
    await alice.delete_thread(deleted.id)
    hold = await admin.retention.add_hold("case 17", thread_id=held.id)
    clock.advance(2 * DAY)
    assert (await admin.retention.plan()).threads == {"deleted": 1}
    clock.advance(29 * DAY)
    fresh = await create_thread_with(alice, "fresh")
    assert (await admin.retention.plan()).threads == {"age": 25, "deleted": 1}
    assert await admin.retention.apply() == {"age": 25, "deleted": 1}
    assert {thread.id for thread in (await alice.threads()).items} == {held.id, fresh.id}
    assert await alice.thread(old[0].id, deleted=True) is None
    assert await admin.retention.apply() == {}
    acts = [act for act in await admin.acts() if act.act == "retention.applied"]
    assert sum(sum(act.details["threads"].values()) for act in acts) == 26
    with pytest.raises(UnderLegalHold):
        await admin.erasure.erase_user("alice")
    await admin.retention.release(hold.id)
    assert await admin.retention.apply() == {"age": 1}
    with pytest.raises(NotFound):
        await admin.retention.release(hold.id)


@pytest.mark.req("K-05")
@pytest.mark.parametrize("database", ["memory"], indirect=True)
async def test_each_tenant_has_its_own_policy_and_none_means_for_ever(store: Store, clock: ManualClock) -> None:
    settings = RetentionSettings(deleted=1, tenants={"kept": RetentionPolicy(), "short": RetentionPolicy(age=1)})
    for tenant_id in ("usual", "kept", "short"):
        await create_thread_with(store.scoped(Scope(tenant_id, "alice")), "hello")
    clock.advance(1_000 * DAY)
    await apply_policies(store, Sealer(), clock, settings)
    assert (await store.scoped(Scope("short", "alice")).threads()).items == ()
    for tenant_id in ("usual", "kept"):
        assert len((await store.scoped(Scope(tenant_id, "alice")).threads()).items) == 1
    (act,) = await store.scoped(system_scope("short")).acts()
    assert (act.actor_id, act.act, act.details) == ("system", "retention.applied", {"threads": {"age": 1}})


@pytest.mark.req("K-05")
@pytest.mark.parametrize("database", ["memory"], indirect=True)
async def test_audit_entries_are_dropped_and_wrong_holds_refused(
    store: Store, tenant_id: str, clock: ManualClock
) -> None:
    admin = administration(store, clock, tenant_id, audit=10)
    await admin.create_token("ada", name="laptop", expires_at=clock.now() + dt.timedelta(days=400))
    clock.advance(11 * DAY)
    await admin.retention.apply()
    assert await admin.acts() == []
    with pytest.raises(InvalidInput, match="not both"):
        await admin.retention.add_hold("case", user_id="ada", thread_id="t1")
    member = Administration(store, Sealer(), clock, Scope(tenant_id, "ada", "member"))
    for refused in (member.retention.plan(), member.retention.apply(), member.retention.holds()):
        with pytest.raises(RoleRefused):
            await refused
