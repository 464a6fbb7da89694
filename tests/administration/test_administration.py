"""Administration: tokens, purges and agents, each with an audit entry; a token's text is not stored."""

from __future__ import annotations

import pytest

from tests.conftest import OpenStore
from threadline.administration.administration import Administration
from threadline.administration.tenant_agents import TenantAgents
from threadline.agents.function import as_agent
from threadline.agents.setting_secrets import SettingSecrets
from threadline.core.access import parse_token
from threadline.core.channels import Agent
from threadline.core.errors import InvalidInput, InvalidName, NotFound, RoleRefused
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope, system_scope
from threadline.ports import Store
from threadline.testing.clock import ManualClock
from threadline.vault import Vault, new_key

pytestmark = pytest.mark.parametrize("database", ["memory", "postgres"], indirect=True)


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return await open_store()


@pytest.fixture
def admin(store: Store, tenant_id: str, clock: ManualClock) -> Administration:
    return Administration(store, Sealer(), clock, Scope(tenant_id, "root", "admin"))


async def told(admin: Administration) -> list[tuple[str, str, str]]:
    return [(act.actor_id, act.act, act.target) for act in await admin.acts()]


async def test_a_token_is_found_by_its_text_which_is_not_stored(
    admin: Administration, store: Store, tenant_id: str
) -> None:
    token, text = await admin.create_token("ada", name="laptop", role="viewer")
    read = parse_token(text)
    assert read is not None
    assert read.tenant_id == tenant_id
    system = store.scoped(system_scope(tenant_id))
    assert await system.token_by_hash(read.token_hash) == token
    stored = repr([await system.read_rows(table) for table in ("api_tokens", "audit", "users")])
    assert text not in stored
    assert text.rpartition("_")[2] not in stored


async def test_creating_and_revoking_have_audit_entries(admin: Administration) -> None:
    token, _ = await admin.create_token("ada", name="laptop")
    await admin.revoke_token(token.id)
    assert await told(admin) == [("root", "token.revoked", token.id), ("root", "token.created", token.id)]
    with pytest.raises(NotFound):
        await admin.revoke_token(token.id)
    with pytest.raises(NotFound):
        await admin.revoke_token("nowhere")
    assert len(await told(admin)) == 2


async def test_invalid_tokens_are_refused_without_audit_entries(admin: Administration, clock: ManualClock) -> None:
    with pytest.raises(InvalidInput, match="must be in the future"):
        await admin.create_token("ada", name="laptop", expires_at=clock.now())
    with pytest.raises(InvalidInput, match="role"):
        await admin.create_token("ada", name="laptop", role="system")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="must be member or viewer"):
        await admin.create_token("ada", name="laptop", role="admin", acts_for_users=True)
    for user, name in (("", "laptop"), ("ada", " "), ("ada", "a\nb")):
        with pytest.raises(InvalidName):
            await admin.create_token(user, name=name)
    for limit in (0, 101):
        with pytest.raises(InvalidInput, match="limit"):
            await admin.acts(limit=limit)
    assert (await admin.tokens(), await told(admin)) == ([], [])


@pytest.mark.parametrize("role", ["viewer", "member"])
async def test_only_administrators_may_administer(store: Store, tenant_id: str, clock: ManualClock, role: str) -> None:
    member = Administration(store, Sealer(), clock, Scope(tenant_id, "ada", role))  # type: ignore[arg-type]
    for refused in (
        member.create_token("ada", name="laptop"),
        member.tokens(),
        member.revoke_token("t"),
        member.acts(),
        member.erasure.erase_user("ada"),
    ):
        with pytest.raises(RoleRefused):
            await refused


async def test_a_purged_user_leaves_only_the_audit_entry(
    admin: Administration, store: Store, tenant_id: str, clock: ManualClock
) -> None:
    operator = Administration(store, Sealer(), clock, system_scope(tenant_id), actor_id="operator:root")
    await admin.create_token("ada", name="laptop")
    receipt = await operator.erasure.erase_user("ada")
    assert (receipt.user, receipt.rows) == ("ada", {"api_tokens": 1, "users": 1})
    assert (await told(admin))[0] == ("operator:root", "user.purged", "ada")
    assert await admin.tokens() == []
    with pytest.raises(NotFound):
        await operator.erasure.erase_user("ada")


async def test_changes_of_agents_have_audit_entries_without_keys(
    admin: Administration, store: Store, tenant_id: str, clock: ManualClock
) -> None:
    secrets = SettingSecrets(Vault({"k1": new_key()}))
    scope = Scope(tenant_id, "root", "admin")
    agents = TenantAgents(store, Sealer(), lambda row, *, trusted: as_agent(repr), secrets, scope)
    await agents.create(Agent("porter", "Porter", "remote", settings={"token": "hunter2"}))
    await agents.change("porter", settings={"token": "hunter2hunter2"})
    assert await agents.delete("porter")
    assert not await agents.delete("porter")
    assert [act for _, act, _ in await told(admin)] == ["agent.deleted", "agent.changed", "agent.created"]
    assert "hunter2" not in repr(await admin.acts())
