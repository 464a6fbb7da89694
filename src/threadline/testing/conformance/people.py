"""Who asks: the fixtures every test of the suite is written with.

The store under test comes from the author's own fixture `store`. Each test works in a tenant nobody else uses, so one
database may serve the whole run. `bob` shares the tenant with `alice`; `abroad` is another tenant's user of the same
name; `root` is an administrator of alice's tenant and `house` is its system scope.
"""

from __future__ import annotations

import secrets

import pytest

from threadline.core.sealing import Limits
from threadline.core.threads import Scope, system_scope
from threadline.ports import Store, Transaction
from threadline.testing.clock import ManualClock

LIMITS = Limits(messages_per_thread=500)
"""What the store under test is to be opened with, so that its limit can be reached."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tenant_id() -> str:
    return f"t-{secrets.token_hex(8)}"


@pytest.fixture
def alice(store: Store, tenant_id: str) -> Transaction:
    return store.scoped(Scope(tenant_id, "alice"))


@pytest.fixture
def bob(store: Store, tenant_id: str) -> Transaction:
    return store.scoped(Scope(tenant_id, "bob"))


@pytest.fixture
def root(store: Store, tenant_id: str) -> Transaction:
    return store.scoped(Scope(tenant_id, "root", "admin"))


@pytest.fixture
def house(store: Store, tenant_id: str) -> Transaction:
    return store.scoped(system_scope(tenant_id))


@pytest.fixture
def abroad(store: Store, tenant_id: str) -> Transaction:
    return store.scoped(Scope(f"{tenant_id}-abroad", "alice"))
