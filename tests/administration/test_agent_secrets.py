"""Keys and tokens of tenants' agents: encrypted in the database, used by the agent, rotated, refused without a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.service.running_service import serving
from threadline import maintenance
from threadline.agents.setting_secrets import shown_settings
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import SettingsInvalid
from threadline.core.threads import Scope, system_scope
from threadline.settings import Settings, VaultSettings
from threadline.testing.postgres import shared_server
from threadline.vault import new_key

pytestmark = [pytest.mark.req("K-07"), pytest.mark.parametrize("database", ["file", "postgres"], indirect=True)]

AGENTS = "/api/v1/agents"
KEY = "sk-proj-" + "A1b2C3d4" * 6
TOKEN = "no pattern would find me"
OLD, NEW = new_key(), new_key()
REMOTE = {"url": "https://agents.example/", "token": TOKEN}
OPENAI = {"api_key": KEY, "options": {"user": "acme"}}


@pytest.fixture
async def address(database: str) -> str:
    """A database of its own: every tenant of it is read."""
    return await shared_server().create_database() if database.startswith("postgresql://") else database


def settings(address: str, **keys: str) -> Settings:
    current = list(keys)[-1] if keys else ""
    return Settings(database=address, tenant="acme", vault=VaultSettings(keys=keys, key=current))


async def raw(address: str) -> bytes:
    """What a copy of the database's files, or a dump of the table, contains."""
    if address.startswith("postgresql://"):
        connection = await asyncpg.connect(shared_server().admin_dsn(address))
        try:
            found = await connection.fetch("SELECT a::text, convert_from(settings, 'UTF8') FROM threadline.agents a")
            return repr(found).encode()
        finally:
            await connection.close()
    files = Path(address).parent.glob(f"{Path(address).name}*")
    return b"".join(path.read_bytes() for path in files if path.is_file())


async def store_in_clear(threadline: Threadline, tenant_id: str, row: AgentRow) -> None:
    """As earlier versions did."""
    await threadline.store.scoped(Scope(tenant_id, "root", "admin")).put_agent(row)


async def stored(threadline: Threadline, agent_id: str, tenant_id: str = "acme") -> AgentRow:
    found = await threadline.store.scoped(system_scope(tenant_id)).agent(agent_id)
    assert found is not None
    return found


async def decrypted(threadline: Threadline, agent_id: str) -> dict[str, Any]:
    return threadline.setting_secrets.decrypt("acme", await stored(threadline, agent_id)).settings


async def test_keys_and_tokens_are_encrypted_in_the_database_and_masked_over_http(address: str) -> None:
    async with open_threadline(settings=settings(address, k1=OLD)) as threadline, serving(threadline) as client:
        for agent in ({"id": "gpt", "provider": "openai", "model": "gpt-5", "settings": OPENAI},
                      {"id": "far", "provider": "remote", "settings": REMOTE}):  # fmt: skip
            made = await client.http.post(AGENTS, json=agent)
            assert (made.status_code, KEY in made.text, TOKEN in made.text) == (201, False, False)
        listed = (await client.http.get(AGENTS)).json()["agents"]
        assert [each["settings"] for each in listed] == [
            {"url": "https://agents.example/", "token": "[masked:token]"},
            {"api_key": "[masked:api-key]", "options": {"user": "acme"}},
        ]
        assert await decrypted(threadline, "gpt") == OPENAI
        assert await decrypted(threadline, "far") == REMOTE
        await threadline.directory.find(Scope("acme", "ada"), "gpt")
        found = await raw(address)
        assert (KEY.encode() in found, TOKEN.encode() in found) == (False, False)


async def test_a_secret_is_refused_without_a_key_and_the_refusal_names_the_setting(address: str) -> None:
    async with open_threadline(settings=settings(address)) as threadline, serving(threadline) as client:
        refused = await client.http.post(AGENTS, json={"id": "far", "provider": "remote", "settings": REMOTE})
        assert (refused.status_code, refused.json()["code"]) == (409, "encryption_key_missing")
        assert "[vault.keys]" in refused.json()["detail"]
        assert TOKEN not in refused.text
        assert (await client.http.get(AGENTS)).json()["agents"] == []
        plain = {"id": "slow", "provider": "rehearsal", "settings": {"pace": 0.1}}
        assert (await client.http.post(AGENTS, json=plain)).status_code == 201
        await client.http.post(AGENTS, json={"id": "open", "provider": "remote", "settings": {"url": REMOTE["url"]}})
        changed = await client.http.patch(f"{AGENTS}/open", json={"settings": REMOTE})
        assert changed.json()["code"] == "encryption_key_missing"
    assert TOKEN.encode() not in await raw(address)


async def test_a_secret_that_is_sent_as_it_was_shown_stays(address: str) -> None:
    async with open_threadline(settings=settings(address, k1=OLD)) as threadline, serving(threadline) as client:
        await client.http.post(AGENTS, json={"id": "far", "provider": "remote", "settings": REMOTE})
        shown = (await client.http.get(AGENTS)).json()["agents"][0]["settings"]
        changed = await client.http.patch(f"{AGENTS}/far", json={"settings": {**shown, "attempts": 2}})
        assert changed.json()["settings"] == {**shown, "attempts": 2}
        assert await decrypted(threadline, "far") == {**REMOTE, "attempts": 2}
        again = await client.http.post(AGENTS, json={"id": "other", "provider": "remote", "settings": shown})
        assert (again.status_code, "settings.token" in again.json()["detail"]) == (400, True)


async def test_rows_in_clear_are_named_by_the_doctor_and_encrypted_when_the_service_starts(address: str) -> None:
    async with open_threadline(settings=settings(address)) as threadline:
        await store_in_clear(threadline, "acme", AgentRow("gpt", "gpt", "openai", settings=OPENAI))
        await store_in_clear(threadline, "umbrella", AgentRow("far", "far", "remote", settings=REMOTE))
    assert KEY.encode() in await raw(address)
    (finding,) = await maintenance.check(settings(address))
    assert (finding.level, "acme/gpt" in finding.what, "umbrella/far" in finding.what) == ("error", True, True)
    assert "[vault.keys]" in finding.remedy
    (finding,) = await maintenance.check(settings(address, k1=OLD))
    assert finding.remedy == "threadline vault rotate"
    async with open_threadline(settings=settings(address, k1=OLD)) as threadline, serving(threadline):
        assert await decrypted(threadline, "gpt") == OPENAI
        assert shown_settings(await stored(threadline, "far", "umbrella"))["token"] == "[masked:token]"
    found = await raw(address)
    assert (KEY.encode() in found, TOKEN.encode() in found) == (False, False)
    assert await maintenance.check(settings(address, k1=OLD)) == []


async def test_rotation_encrypts_everything_with_the_current_key(address: str) -> None:
    async with open_threadline(settings=settings(address, k1=OLD)) as threadline:
        agents = threadline.tenant_agents(Scope("acme", "root", "admin"))
        await agents.create(AgentRow("gpt", "gpt", "openai", settings=OPENAI))
        await store_in_clear(threadline, "umbrella", AgentRow("far", "far", "remote", settings=REMOTE))
    both = settings(address, k1=OLD, k2=NEW)
    assert [finding.remedy for finding in await maintenance.check(both)] == ["threadline vault rotate"] * 2
    async with open_threadline(settings=both) as threadline:
        assert await threadline.agent_secrets.rotate() == (2, 0)
        assert await threadline.agent_secrets.rotate() == (0, 0)
    async with open_threadline(settings=settings(address, k2=NEW)) as threadline:
        assert await decrypted(threadline, "gpt") == OPENAI
    assert await maintenance.check(settings(address, k2=NEW)) == []
    (lost,) = await maintenance.check(settings(address, k3=new_key()))
    assert (lost.level, "cannot be decrypted" in lost.what) == ("error", True)


async def test_a_row_that_was_copied_to_another_agent_or_tenant_cannot_be_decrypted(address: str) -> None:
    async with open_threadline(settings=settings(address, k1=OLD)) as threadline:
        made = await threadline.tenant_agents(Scope("acme", "root", "admin")).create(
            AgentRow("far", "far", "remote", settings=REMOTE)
        )
        for tenant_id, agent_id in (("umbrella", "far"), ("acme", "other")):
            copied = AgentRow(agent_id, "far", "remote", settings=made.settings)
            await store_in_clear(threadline, tenant_id, copied)
            with pytest.raises(SettingsInvalid, match="cannot decrypt"):
                await threadline.directory.find(Scope(tenant_id, "ada"), agent_id)


async def test_an_agent_whose_key_is_lost_can_be_disabled_and_given_new_settings(address: str) -> None:
    async with open_threadline(settings=settings(address, k1=OLD)) as threadline:
        agents = threadline.tenant_agents(Scope("acme", "root", "admin"))
        await agents.create(AgentRow("far", "far", "remote", settings=REMOTE))
    async with open_threadline(settings=settings(address, k2=NEW)) as threadline:
        agents = threadline.tenant_agents(Scope("acme", "root", "admin"))
        with pytest.raises(SettingsInvalid, match=r"'k1' is not in \[vault.keys\]"):
            await threadline.directory.find(Scope("acme", "ada"), "far")
        assert (await agents.change("far", enabled=False, name="Far away")).enabled is False
        await agents.change("far", settings=REMOTE, enabled=True)
        assert await decrypted(threadline, "far") == REMOTE
