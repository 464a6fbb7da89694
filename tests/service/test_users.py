"""Users over HTTP: roles and access that administrators change count with the next request."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from jwt.algorithms import OKPAlgorithm

from tests.scripted_agent import ScriptedAgent
from tests.service.conftest import SERVICE, held
from tests.service.running_service import CHAT, THREADS, Client, serving
from tests.service.test_jwt_reader import SECRET, signed
from tests.service.token_clients import bearer, client_with, token_for
from threadline.bootstrap import Threadline
from threadline.core.errors import InvalidInput
from threadline.core.receipts import ReceiptSettings
from threadline.core.threads import Scope
from threadline.settings import JwtSettings, Settings
from threadline.signatures import new_signing_key, public_key_of, verify

USERS = "/api/v1/users"


@pytest.fixture
def settings() -> Settings:
    return Settings(
        database=":memory:", agent="scripted", service=msgspec.structs.replace(SERVICE, authentication=True)
    )


@pytest.fixture
async def root(threadline: Threadline, client: Client) -> AsyncIterator[Client]:
    async with client_with(client.url, await token_for(threadline, "root", "admin")) as root:
        yield root


@pytest.mark.req("K-09")
async def test_administrators_create_list_and_change_users(root: Client) -> None:
    created = await root.http.post(USERS, json={"id": "team/ada", "displayName": "Ada", "role": "viewer"})
    assert (created.status_code, created.json()) == (201, {"id": "team/ada", "displayName": "Ada", "role": "viewer"})
    assert (await root.http.post(USERS, json={"id": "team/ada"})).status_code == 409
    changed = await root.http.patch(f"{USERS}/team%2Fada", json={"role": "member", "displayName": ""})
    assert changed.json() == {"id": "team/ada", "role": "member"}
    assert (await root.http.get(f"{USERS}/team/ada")).json() == changed.json()
    listed = (await root.http.get(f"{USERS}?limit=1")).json()["users"]
    rest = (await root.http.get(USERS, params={"after": listed[-1]["id"]})).json()["users"]
    assert {user["id"] for user in listed + rest} >= {"root", "team/ada"}
    assert (await root.http.get(f"{USERS}/unknown")).status_code == 404
    acts = (await root.http.get("/api/v1/audit?limit=2")).json()["acts"]
    assert [(act["act"], act["target"]) for act in acts] == [("user.changed", "team/ada"), ("user.created", "team/ada")]


@pytest.mark.req("K-09")
async def test_a_disabled_user_loses_tokens_streams_and_turns_at_once(
    root: Client, threadline: Threadline, scripted_agent: ScriptedAgent
) -> None:
    async with client_with(root.url, await token_for(threadline, "ada")) as ada, held(scripted_agent):
        body = {"id": "key", "message": {"role": "user", "content": "Hi"}}
        async with ada.http.stream("POST", CHAT, json=body) as stream, asyncio.timeout(30):
            pieces = stream.aiter_text()
            assert await anext(pieces)
            disabled = await root.http.patch(f"{USERS}/ada", json={"disabled": True})
            assert disabled.json()["disabledAt"]
            assert (await ada.http.get(THREADS)).status_code == 401
            rest = "".join([piece async for piece in pieces])
        assert '"finishReason":"stop"' not in rest
    refused = await root.http.post("/api/v1/tokens", json={"user": "ada"})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert (await root.http.patch(f"{USERS}/ada", json={"disabled": False})).json() == {"id": "ada", "role": "member"}
    async with client_with(root.url, await token_for(threadline, "ada")) as ada:
        assert (await ada.messages("key"))[0][0] == "user"


@pytest.mark.req("K-09")
async def test_a_bot_cannot_act_for_a_disabled_user(root: Client, threadline: Threadline) -> None:
    bot = {**bearer(await token_for(threadline, "bot", acts_for_users=True)), "x-on-behalf-of": "ada"}
    assert (await root.http.get("/api/v1/me", headers=bot)).json()["user"] == "ada"
    await root.http.post(USERS, json={"id": "ada"})
    await root.http.patch(f"{USERS}/ada", json={"disabled": True})
    refused = await root.http.get("/api/v1/me", headers=bot)
    assert (refused.status_code, refused.json()["code"]) == (403, "impersonation_refused")
    assert "is disabled" in refused.json()["detail"]


@pytest.mark.req("K-09")
async def test_a_lower_role_counts_for_the_tokens_that_exist(root: Client, threadline: Threadline) -> None:
    async with client_with(root.url, await token_for(threadline, "eve", "admin")) as eve:
        assert (await eve.http.get(USERS)).status_code == 200
        await root.http.patch(f"{USERS}/eve", json={"role": "viewer"})
        assert (await eve.http.get(USERS)).status_code == 403
        assert (await eve.http.get("/api/v1/me")).json() == {"tenant": "local", "user": "eve", "role": "viewer"}


@pytest.mark.req("K-09")
async def test_administrators_cannot_lock_themselves_out(root: Client) -> None:
    for body in ({"disabled": True}, {"role": "viewer"}):
        refused = await root.http.patch(f"{USERS}/root", json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_input")
        assert "ask another administrator" in refused.json()["detail"]


@pytest.mark.req("K-09")
async def test_the_jwt_of_a_disabled_user_is_refused(threadline: Threadline) -> None:
    service = msgspec.structs.replace(SERVICE, jwt=JwtSettings(secret=SECRET, tenant="local", role="member"))
    with_jwt = Threadline(
        threadline.store, msgspec.structs.replace(threadline.settings, service=service), threadline.clock
    )
    text = signed(SECRET, "HS256", sub="ada", tenant="local", exp=int(time.time()) + 600)
    async with serving(with_jwt) as anyone:
        assert (await anyone.http.get(THREADS, headers=bearer(text))).status_code == 200
        root = bearer(await token_for(threadline, "root", "admin"))
        assert (await anyone.http.post(USERS, json={"id": "ada"}, headers=root)).status_code == 201
        await anyone.http.patch(f"{USERS}/ada", json={"disabled": True}, headers=root)
        assert (await anyone.http.get(THREADS, headers=bearer(text))).status_code == 401


@pytest.mark.req("K-09")
async def test_tokens_expire_after_90_days_unless_told_otherwise(root: Client) -> None:
    usual = (await root.http.post("/api/v1/tokens", json={"user": "ada"})).json()["token"]
    assert usual["expiresAt"] > usual["createdAt"]
    endless = (await root.http.post("/api/v1/tokens", json={"user": "ada", "expiresAt": None})).json()["token"]
    assert endless.get("expiresAt") is None


@pytest.mark.req("K-06")
async def test_users_erase_themselves_and_administrators_erase_others(root: Client, threadline: Threadline) -> None:
    async with client_with(root.url, await token_for(threadline, "ada")) as ada:
        await ada.ask("Hi", "key")
        for confirm in ("", "?confirm=", "?confirm=root"):
            assert (await ada.http.delete(f"/api/v1/me{confirm}")).status_code == 400
        assert len(await ada.messages("key")) == 2
        erased = (await ada.http.delete("/api/v1/me?confirm=ada")).json()
        assert (erased["user"], erased["requestedBy"], erased["rows"]["messages"]) == ("ada", "ada", 2)
        assert (await ada.http.get(THREADS)).status_code == 401
    assert (await root.http.delete(f"{USERS}/ada")).status_code == 404
    async with client_with(root.url, await token_for(threadline, "bob")) as bob:
        assert (await bob.http.delete(f"{USERS}/root")).status_code == 403
        erased = (await root.http.delete(f"{USERS}/bob")).json()
        assert (erased["requestedBy"], erased["rows"]) == ("root", {"api_tokens": 1, "users": 1})
        assert (await bob.http.get(THREADS)).status_code == 401
    acts = (await root.http.get("/api/v1/audit?limit=1")).json()["acts"]
    assert (acts[0]["who"], acts[0]["act"], acts[0]["details"]) == ("root", "user.purged", {"rows": erased["rows"]})


@pytest.mark.req("K-06")
async def test_a_receipt_is_verified_from_its_json_and_the_public_key_alone(threadline: Threadline) -> None:
    key = new_signing_key()
    signing = Threadline(
        threadline.store,
        msgspec.structs.replace(threadline.settings, receipts=ReceiptSettings(key=key)),
        threadline.clock,
    )
    await token_for(signing, "ada")
    receipt = await signing.administration(Scope("local", "root", "admin")).erasure.erase_user("ada")
    fields = json.loads(msgspec.json.encode(receipt))
    signature = base64.b64decode(fields.pop("signature"))
    told = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": base64.urlsafe_b64encode(base64.b64decode(public_key_of(key))).decode()}
    oracle = OKPAlgorithm()
    public = oracle.from_jwk({**jwk, "x": jwk["x"].rstrip("=")})
    assert oracle.verify(told, public, signature)
    assert not oracle.verify(told.replace(b"ada", b"bob"), public, signature)
    verify(receipt, public_key_of(key))
    for changed in (
        msgspec.structs.replace(receipt, user="bob"),
        msgspec.structs.replace(receipt, rows={}),
        msgspec.structs.replace(receipt, signature=None),
    ):
        with pytest.raises(InvalidInput):
            verify(changed, public_key_of(key))
    with pytest.raises(InvalidInput, match="another key"):
        verify(receipt, public_key_of(new_signing_key()))


@pytest.mark.req("K-06")
async def test_users_download_their_own_archive_and_administrators_everyones(
    root: Client, threadline: Threadline
) -> None:
    archives = "/api/v1/archives"
    async with client_with(root.url, await token_for(threadline, "ada", "viewer")) as ada:
        await threadline.as_user("ada").create_thread(title="Garden")
        own = await ada.http.get("/api/v1/me/archive")
        assert (own.status_code, own.headers["content-type"]) == (200, "application/jsonl")
        assert own.headers["cache-control"] == "no-store"
        names = [next(iter(json.loads(line))) for line in own.text.splitlines()]
        assert names[-3:] == ["threadline", "timeline", "end"]
        refused = await ada.http.get(f"{archives}/root")
        assert (refused.status_code, refused.json()["code"]) == (403, "role_refused")
    assert (await root.http.get(f"{archives}/ada")).text.count("Garden") == 1
    assert (await root.http.get(f"{archives}/nobody")).status_code == 404
    acts = (await root.http.get("/api/v1/audit?limit=1")).json()["acts"]
    assert [(act["act"], act["target"], act["who"]) for act in acts] == [("user.exported", "ada", "root")]
