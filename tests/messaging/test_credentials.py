"""Credentials of platforms: sealed, bound to their place, replaced by rotation, and never given out."""

from __future__ import annotations

import asyncio

import pytest

from tests.messaging.conftest import KEYS, Stage
from threadline.channel_wiring import Codecs
from threadline.core.errors import InvalidInput, NotFound, SettingsInvalid
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Surface
from threadline.messaging.credentials import Credentials
from threadline.ports import Store
from threadline.settings import ChannelsSettings
from threadline.vault import Vault, new_key

SECRETS = {"signing_secret": "s3cr3t-signing", "bot_token": "xoxb-s3cr3t"}
SLACK: Surface = "slack"


def keeper(store: Store, keys: dict[str, str], current: str = "") -> Credentials:
    return Credentials(store, Vault(keys, current), Codecs(ChannelsSettings()))


def admin(tenant_id: str) -> Scope:
    return Scope(tenant_id, "root", "admin")


@pytest.mark.req("S3-27")
async def test_what_is_stored_is_sealed_and_opens_for_its_tenant_alone(store: Store, tenant_id: str) -> None:
    credentials = keeper(store, {"k1": new_key()})
    await credentials.put(admin(tenant_id), "slack", SECRETS)
    assert await credentials.open(tenant_id, SLACK) == SECRETS
    system = store.scoped(system_scope(tenant_id))
    found = await system.credentials(SLACK)
    assert found is not None
    assert b"s3cr3t" not in found.sealed
    other_tenant = store.scoped(system_scope(f"{tenant_id}-abroad"))
    await other_tenant.put_credentials(SLACK, found.key_id, found.sealed)
    await system.put_credentials("telegram", found.key_id, found.sealed)
    for tenant, platform in ((f"{tenant_id}-abroad", SLACK), (tenant_id, "telegram")):
        with pytest.raises(SettingsInvalid, match="cannot decrypt"):
            await credentials.open(tenant, platform)


async def test_a_change_counts_at_once_here_and_soon_in_other_processes(store: Store, tenant_id: str) -> None:
    keys = {"k1": new_key()}
    here, elsewhere = keeper(store, keys), keeper(store, keys)
    await here.put(admin(tenant_id), "slack", SECRETS)
    assert await here.open(tenant_id, SLACK) == await elsewhere.open(tenant_id, SLACK) == SECRETS
    changed = {**SECRETS, "bot_token": "xoxb-new"}
    await here.put(admin(tenant_id), "slack", changed)
    assert await here.open(tenant_id, SLACK) == changed
    async with asyncio.timeout(30):
        # Credentials are kept for a moment, and no notification ends it.
        while await elsewhere.open(tenant_id, SLACK) != changed:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await here.delete(admin(tenant_id), "slack")
    with pytest.raises(NotFound):
        await here.open(tenant_id, SLACK)


@pytest.mark.req("S3-27")
async def test_rotation_encrypts_again_and_the_old_key_can_be_removed(store: Store, tenant_id: str) -> None:
    old, new = new_key(), new_key()
    await keeper(store, {"old": old}).put(admin(tenant_id), "slack", SECRETS)
    both = keeper(store, {"old": old, "new": new}, "new")
    assert await both.open(tenant_id, SLACK) == SECRETS
    mine = [found.key_id for found in await both.listed(admin(tenant_id))]
    assert mine == ["old"]
    assert (await both.rotate()).encrypted == 1, "the database may be shared with tests whose keys are gone"
    assert (await both.rotate()).encrypted == 0
    assert [found.key_id for found in await both.listed(admin(tenant_id))] == ["new"]
    assert await keeper(store, {"new": new}).open(tenant_id, SLACK) == SECRETS
    with pytest.raises(SettingsInvalid, match="'new' is not in"):
        await keeper(store, {"old": old}).open(tenant_id, SLACK)


@pytest.mark.parametrize("key", ["", "short", "A" * 43 + "!", "not base64 at all"])
def test_a_key_that_is_none_is_refused_by_name(key: str) -> None:
    with pytest.raises(SettingsInvalid, match="'k'") as refused:
        Vault({"k": key}).encrypt(b"x", ("here",))
    assert key == "" or key not in str(refused.value)


def test_which_key_is_current_has_to_be_said_when_there_are_several() -> None:
    with pytest.raises(SettingsInvalid, match="threadline vault key"):
        _ = Vault({}).key_id
    with pytest.raises(SettingsInvalid, match="current"):
        _ = Vault({"a": new_key(), "b": new_key()}).key_id
    assert Vault({"a": new_key()}).key_id == "a"
    vault = Vault({"a": "A-key-that-is-secret"})
    assert "secret" not in repr(vault)


def test_nothing_is_sealed_alike_twice_and_a_changed_byte_is_noticed() -> None:
    vault = Vault({"k": new_key()})
    first, second = vault.encrypt(b"same", ("here",)), vault.encrypt(b"same", ("here",))
    assert first != second
    assert vault.decrypt("k", first, ("here",)) == b"same"
    for wrong in (first[:-1], bytes([first[0] ^ 1]) + first[1:], b"", first[:12]):
        with pytest.raises(SettingsInvalid):
            vault.decrypt("k", wrong, ("here",))
    with pytest.raises(SettingsInvalid):
        vault.decrypt("k", first, ("elsewhere",))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"signing_secret": "x"},
        {**SECRETS, "more": "x"},
        {**SECRETS, "bot_token": ""},
        {**SECRETS, "bot_token": "two words"},
        {**SECRETS, "bot_token": "line\nbreak"},
        {**SECRETS, "bot_token": "x" * 5_000},
    ],
)
async def test_what_is_missing_unknown_or_no_secret_is_named_and_nothing_is_kept(
    small_stage: Stage, wrong: dict[str, str]
) -> None:
    credentials = small_stage.threadline.messaging.credentials
    before = await credentials.open(small_stage.tenant_id, SLACK)
    with pytest.raises(InvalidInput):
        await credentials.put(admin(small_stage.tenant_id), "slack", wrong)
    assert await credentials.open(small_stage.tenant_id, SLACK) == before


@pytest.mark.req("S3-27")
async def test_over_http_they_go_in_and_never_come_out(small_stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    path, caller = "/api/v1/channels/slack/credentials", small_stage.caller("root", "admin")
    kept = await small_stage.http.put(path, json={"secrets": SECRETS}, headers=caller)
    assert kept.status_code == 200
    assert kept.json()["keyId"] == next(iter(KEYS))
    assert (await small_stage.http.get(path, headers=caller)).status_code == 405
    listed = await small_stage.http.get("/api/v1/channels/credentials", headers=caller)
    assert [each["platform"] for each in listed.json()["credentials"]] == ["slack", "telegram", "whatsapp"]
    refused = await small_stage.http.put(path, json={"secrets": {**SECRETS, "more": "s3cr3t"}}, headers=caller)
    assert refused.status_code == 400
    assert "s3cr3t" not in kept.text + listed.text + refused.text + caplog.text
    for role in ("viewer", "member"):
        other = await small_stage.http.put(path, json={"secrets": SECRETS}, headers=small_stage.caller("alice", role))
        assert other.status_code == 403
    gone = await small_stage.http.delete(path, headers=caller)
    assert gone.json() == {"ok": True}
    with pytest.raises(NotFound):
        await small_stage.threadline.messaging.credentials.open(small_stage.tenant_id, SLACK)
    unknown = await small_stage.http.put("/api/v1/channels/fax/credentials", json={"secrets": {}}, headers=caller)
    assert unknown.status_code == 404
