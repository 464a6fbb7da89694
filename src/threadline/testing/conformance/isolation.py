"""Isolation: another user and another tenant learn nothing and change nothing, with any operation."""

from __future__ import annotations

import inspect

import pytest

from threadline.core.errors import ThreadlineError
from threadline.core.threads import Scope, UserRole, system_scope
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.history_probes import PROBES, Probe
from threadline.testing.conformance.sample_data import SECRET, UNKNOWN, Ids, populate, view

OUTSIDERS: dict[str, tuple[str, str, UserRole]] = {
    "another user of the tenant": ("", "mallory", "member"),
    "another admin of the tenant": ("", "mallory", "admin"),
    "the same user id in another tenant": ("-other", "alice", "member"),
    "an admin of another tenant": ("-other", "mallory", "admin"),
    "the system scope of another tenant": ("-other", "system", "system"),
}
THE_TENANTS = frozenset(("agent", "agents", "put_agent", "delete_agent"))
"""Agents belong to the tenant, so a neighbour shares them."""
THE_ADMINS = frozenset(
    (
        "user",
        "users",
        "put_user",
        "disable_user",
        "enable_user",
        "limit_tokens",
        "create_token",
        "tokens",
        "revoke_token",
        "add_sign_in",
        "sign_ins",
        "revoke_sign_in",
        "revoke_sign_ins",
        "acts",
        "usage",
    )
)
OF_THE_WHOLE = frozenset(
    (
        "put_user",
        "disable_user",
        "enable_user",
        "limit_tokens",
        "revoke_sign_ins",
        "purge_user",
        "purge_tenant",
        "requeue_all",
        "drop_acts",
    )
)
"""These change a user, with all their worlds, or a tenant."""
ENDS = frozenset(("finish_turn", "delete_thread", "restore_thread", "purge_thread"))
"""After these, other verbs would find nothing to do."""


def verbs() -> set[str]:
    return {name for name, _ in inspect.getmembers(Transaction, inspect.iscoroutinefunction)}


def outsider(store: Store, tenant_id: str, who: str) -> Transaction:
    other_tenant, user_id, role = OUTSIDERS[who]
    return store.scoped(Scope(tenant_id + other_tenant, user_id, role))


def skipped(tx: Transaction, tenant_id: str) -> frozenset[str]:
    """The operations whose data the port lets this outsider share with the victim."""
    if tx.scope.tenant_id != tenant_id:
        return frozenset()
    return THE_TENANTS | THE_ADMINS if tx.scope.role == "admin" else THE_TENANTS


async def answer(probe: Probe, tx: Transaction, ids: Ids) -> str:
    try:
        return repr(await probe.ask(tx, ids))
    except ThreadlineError as error:
        return f"{type(error).__name__}: {error}"


def as_unknown(answered: str, ids: Ids) -> str:
    """The answer with each of the victim's ids put as the unknown one, so that only what is learned differs."""
    pairs = [(str(getattr(ids, field)), str(getattr(UNKNOWN, field))) for field in Ids.__struct_fields__]
    for theirs, nobodys in sorted(pairs, key=lambda pair: -len(pair[0])):
        answered = answered.replace(theirs, nobodys)
    return answered


async def complaint(probe: Probe, tx: Transaction, ids: Ids, *, same_tenant: bool) -> str | None:
    unknown, theirs = await answer(probe, tx, UNKNOWN), await answer(probe, tx, ids)
    if SECRET in theirs:
        return f"{probe.verb} shows {theirs}"
    if probe.in_tenant is not None and same_tenant:
        expected = theirs.partition(":")[0]
        return None if expected == probe.in_tenant else f"{probe.verb} answers {theirs}, not {probe.in_tenant}"
    if as_unknown(theirs, ids) != as_unknown(unknown, ids):
        return f"{probe.verb} answers {theirs}, and to unknown ids {unknown}"
    return None


class TestIsolation:
    @pytest.mark.req("SX-04")
    def test_every_verb_has_a_probe(self) -> None:
        assert verbs() == {probe.verb for probe in PROBES}

    @pytest.mark.req("SX-04", "S1-05")
    @pytest.mark.parametrize("who", OUTSIDERS)
    async def test_an_outsider_learns_and_changes_nothing(
        self, store: Store, tenant_id: str, clock: ManualClock, who: str
    ) -> None:
        victim = Scope(tenant_id, "alice")
        ids = await populate(store, victim, clock)
        before = await view(store, victim, ids)
        tx = outsider(store, tenant_id, who)
        shared = skipped(tx, tenant_id)
        same_tenant = tx.scope.tenant_id == tenant_id
        asked = [probe for probe in PROBES if probe.verb not in shared]
        complaints = [await complaint(probe, tx, ids, same_tenant=same_tenant) for probe in asked]
        assert [found for found in complaints if found] == []
        assert await view(store, victim, ids) == before

    async def test_a_scope_belongs_to_one_tenant(self, store: Store, tenant_id: str) -> None:
        for scope in (Scope(tenant_id, "alice"), system_scope(tenant_id)):
            assert store.scoped(scope).scope == scope


class TestBystanders:
    @pytest.mark.parametrize("role", ["member", "system"])
    async def test_a_verb_touches_nothing_that_it_was_not_asked_to(
        self, store: Store, tenant_id: str, clock: ManualClock, role: UserRole
    ) -> None:
        """Every verb runs on one set of sample data, as its owner or as the system scope. The owner's second set,
        another user's and another tenant's stay unchanged."""
        alice, bob, other_tenant = (
            Scope(tenant_id, "alice"),
            Scope(tenant_id, "bob"),
            Scope(f"{tenant_id}-other", "alice"),
        )
        ids = await populate(store, alice, clock)
        others = [(alice, await populate(store, alice, clock, "second"))]
        others += [(scope, await populate(store, scope, clock)) for scope in (bob, other_tenant)]
        before = [await view(store, scope, theirs) for scope, theirs in others]
        tx = store.scoped(Scope(tenant_id, "alice" if role == "member" else "system", role))
        for probe in sorted(PROBES, key=lambda probe: probe.verb in ENDS):
            if probe.verb not in OF_THE_WHOLE:
                await answer(probe, tx, ids)
        assert [await view(store, scope, theirs) for scope, theirs in others] == before
