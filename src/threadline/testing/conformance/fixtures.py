"""Fixtures that every test of the suite uses.

The author of a store supplies the fixture `store`. Each test works in a new tenant, so one database can serve the whole
run. The other fixtures are sessions: `alice` and `bob` are members of that tenant, `admin` is an administrator of it,
`system` is its system scope, and `other_tenant` is a user named alice of a different tenant.
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
def admin(store: Store, tenant_id: str) -> Transaction:
    return store.scoped(Scope(tenant_id, "admin", "admin"))


@pytest.fixture
def system(store: Store, tenant_id: str) -> Transaction:
    return store.scoped(system_scope(tenant_id))


@pytest.fixture
def other_tenant(store: Store, tenant_id: str) -> Transaction:
    return store.scoped(Scope(f"{tenant_id}-other", "alice"))
