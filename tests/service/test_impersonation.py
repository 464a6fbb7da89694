"""Impersonation: what a token that acts for users may do, and that no other token can."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from jwt.algorithms import RSAAlgorithm

from tests.service.conftest import SERVICE
from tests.service.running_service import CHAT, THREADS, Client, serving, wait_until_idle
from tests.service.test_jwt_reader import RSA, a_set, jwk, signed
from tests.service.test_openapi import operations
from tests.service.test_who_may import questions
from tests.service.token_clients import bearer, client_with, token_for
from threadline.bootstrap import Threadline
from threadline.core.access import TOKEN_ROLES
from threadline.core.channels import User
from threadline.core.threads import Scope, system_scope
from threadline.ports import Clock
from threadline.service.app import build_app
from threadline.service.openapi.document import build_document
from threadline.settings import JwtSettings, RateLimits, ServiceSettings, Settings
from threadline.testing.clock import ManualClock

ASKING = msgspec.structs.replace(SERVICE, authentication=True)
OWN_DATA = ("chat", "threads", "saves", "agents", "openai", "mcp")
"""Tags of the operations on what belongs to the user."""
FOR_OTHERS_TOO = {"readMe", "readHome", "chooseHome", "listLinks", "removeLink", "listUsage"}
"""Beside chat, threads, saves, agents and the routes of OpenAI's clients."""
UNDO = f"{THREADS}/key/undo"


@pytest.fixture
def settings() -> Settings:
    return Settings(database=":memory:", agent="scripted", service=ASKING)


@pytest.fixture
async def bot(threadline: Threadline, client: Client) -> AsyncIterator[Client]:
    async with client_with(client.url, await token_for(threadline, "bot", acts_for_users=True)) as bot:
        yield bot


def acting_for(user: str, surface: str | None = None) -> dict[str, str]:
    return {"x-on-behalf-of": quote(user), **({} if surface is None else {"x-surface": surface})}


def changed(threadline: Threadline, service: ServiceSettings, clock: Clock | None = None) -> Threadline:
    """Another service on the same database, with these settings."""
    settings = msgspec.structs.replace(threadline.settings, service=service)
    return Threadline(threadline.store, settings, clock or threadline.clock)


async def keys_of(threadline: Threadline, user: str, tenant: str = "local") -> list[str]:
    return [thread.state_key for thread in (await threadline.threads(Scope(tenant, user)).page()).items]


async def counts(threadline: Threadline, tenant: str = "local") -> dict[str, int]:
    return await threadline.store.scoped(system_scope(tenant)).row_counts()


@pytest.mark.req("S2-03")
async def test_one_token_serves_many_users_with_separate_threads(bot: Client, threadline: Threadline) -> None:
    for user in ("ada", "@bob:example.org", "Žofie, the 1st / 50%"):
        await bot.ask("Hi", "key", headers=acting_for(user))
        assert await keys_of(threadline, user) == ["key"]
        assert len((await bot.http.get(THREADS, headers=acting_for(user))).json()["threads"]) == 1
    assert await keys_of(threadline, "bot") == []
    await bot.ask("Hi", "mine")
    assert await keys_of(threadline, "bot") == ["mine"]


@pytest.mark.req("S2-03")
async def test_a_turn_records_its_surface(bot: Client) -> None:
    for surface in (None, "matrix"):
        await bot.ask("Hi", "key", headers=acting_for("ada", surface))
    listed = (await bot.http.get(THREADS, headers=acting_for("ada"))).json()["threads"]
    assert [sorted(thread["surfaces"]) for thread in listed] == [["matrix", "web"]]
    turns = (await bot.http.get(f"{THREADS}/key/turns", headers=acting_for("ada"))).json()["turns"]
    assert [turn["surface"] for turn in turns] == ["matrix", "web"]


@pytest.mark.req("SX-04")
async def test_impersonation_grants_at_most_member_and_viewer_for_viewers(
    bot: Client, client: Client, threadline: Threadline
) -> None:
    system = threadline.store.scoped(system_scope("local"))
    for role in TOKEN_ROLES:
        await system.put_user(User(id=role, display_name=None, role=role))
    assert (await bot.post_chat("Hi", "key", headers=acting_for("admin"))).status_code == 200
    answers = [
        await bot.post_chat("Hi", "key", headers=acting_for("viewer")),
        await bot.http.post("/api/v1/agents", json={"id": "a", "provider": "rehearsal"}, headers=acting_for("admin")),
    ]
    reading = await token_for(threadline, "reader", "viewer", acts_for_users=True)
    async with client_with(client.url, reading) as reader:
        assert (await reader.http.get(f"{THREADS}/key", headers=acting_for("admin"))).json()["messageCount"] == 2
        answers.append(await reader.http.post(UNDO, headers=acting_for("admin")))
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (403, "role_refused")


@pytest.mark.req("SX-04")
async def test_administration_and_lasting_grants_are_refused_on_behalf_of_users(
    bot: Client, threadline: Threadline
) -> None:
    """Calls every route on behalf of an administrator: everything but a user's own data is refused."""
    await threadline.store.scoped(system_scope("local")).put_user(User(id="root", display_name=None, role="admin"))
    await bot.ask("Hi", "lisbon", headers=acting_for("root"))
    for question in questions(threadline):
        operation = question.operation
        if question.role is None:
            continue
        before = await counts(threadline)
        headers = {**acting_for("root"), **({} if question.body is None else {"content-type": question.media_type})}
        answer = await bot.http.request(question.method, question.url, content=question.body, headers=headers)
        if operation.tag not in OWN_DATA and operation.id not in FOR_OTHERS_TOO:
            assert (answer.status_code, answer.json()["code"]) == (403, "impersonation_refused"), question.url
            assert await counts(threadline) == before
        elif question.permission.role == "admin":
            assert (answer.status_code, answer.json()["code"]) == (403, "role_refused"), question.url
        else:
            assert answer.status_code not in (401, 403), (question.url, answer.text)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"x-on-behalf-of": "system"}, 403, "impersonation_refused"),
        ({"x-on-behalf-of": "%73ystem"}, 403, "impersonation_refused"),
        ({"x-surface": "matrix"}, 403, "impersonation_refused"),
        ({"x-on-behalf-of": ""}, 400, "invalid_name"),
        ({"x-on-behalf-of": "%20"}, 400, "invalid_name"),
        ({"x-on-behalf-of": "ada%"}, 400, "invalid_name"),
        ({"x-on-behalf-of": "ada%zz"}, 400, "invalid_name"),
        ({"x-on-behalf-of": "ada%00"}, 400, "invalid_name"),
        ({"x-on-behalf-of": "ada%0d%0ax-surface:%20matrix"}, 400, "invalid_name"),
        ({"x-on-behalf-of": "%ff%fe"}, 400, "invalid_name"),
        ({"x-on-behalf-of": "%ed%a0%80"}, 400, "invalid_name"),
        ({"x-on-behalf-of": "ada,bob"}, 400, "invalid_name"),
        ({"x-on-behalf-of": "a" * 257}, 400, "invalid_name"),
        ({"x-on-behalf-of": "a" * 4_000}, 431, "header_too_large"),
        ({"x-on-behalf-of": "ada", "x-surface": "slack"}, 400, "invalid_input"),
        ({"x-on-behalf-of": "ada", "x-surface": "cli"}, 400, "invalid_input"),
        ({"x-on-behalf-of": "ada", "x-surface": ""}, 400, "invalid_input"),
        ({"x-on-behalf-of": "ada", "x-surface": "Matrix"}, 400, "invalid_input"),
    ],
)
async def test_invalid_impersonation_headers_are_refused(
    bot: Client, threadline: Threadline, headers: dict[str, str], status: int, code: str
) -> None:
    before = await counts(threadline)
    answer = await bot.post_chat("Hi", "key", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert await counts(threadline) == before


async def test_the_log_names_the_impersonating_token_but_not_the_user(
    bot: Client, threadline: Threadline, caplog: pytest.LogCaptureFixture
) -> None:
    [token] = await threadline.administration(Scope("local", "root", "admin")).tokens()
    caplog.set_level(logging.INFO, "threadline.access")
    for headers in (acting_for("augusta@lovelace"), acting_for("system"), {}):
        await bot.http.get(THREADS, headers=headers)
    await wait_until_idle(threadline)
    lines = [vars(record) for record in caplog.records if record.name == "threadline.access"]
    assert [line["token_id"] for line in lines] == [token.id, token.id, None]
    assert "augusta@lovelace" not in str(lines)


@pytest.mark.parametrize("name", ["x-on-behalf-of", "x-surface"])
async def test_a_header_given_twice_is_refused(bot: Client, threadline: Threadline, name: str) -> None:
    given = [("x-on-behalf-of", "ada"), ("x-surface", "matrix"), (name, "bob")]
    answer = await bot.http.post(CHAT, json={"message": {"role": "user", "content": "Hi"}}, headers=given)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert await keys_of(threadline, "ada") == []


@pytest.mark.req("SX-04")
async def test_other_tokens_cannot_impersonate(threadline: Threadline, client: Client, tmp_path: Any) -> None:
    """A plain token, an administrator's, a JWT, a revoked one, and none."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(a_set(jwk(RSAAlgorithm, RSA, kid="one")))
    with_jwt = changed(threadline, msgspec.structs.replace(ASKING, jwt=JwtSettings(jwks=str(keys))))
    administration = threadline.administration(Scope("local", "root", "admin"))
    revoked = await administration.create_token("bot", name="lost", acts_for_users=True)
    await administration.revoke_token(revoked.token.id)
    presented = {
        await token_for(threadline, "ada"): (403, "impersonation_refused"),
        await token_for(threadline, "ada", "viewer"): (403, "impersonation_refused"),
        await token_for(threadline, "root", "admin"): (403, "impersonation_refused"),
        signed(RSA, "RS256", headers={"kid": "one"}, role="admin"): (403, "impersonation_refused"),
        revoked.text: (401, "invalid_token"),
        "hunter2": (401, "invalid_token"),
    }
    before = await counts(threadline)
    async with serving(with_jwt) as anyone:
        for text, (status, code) in presented.items():
            for headers in (acting_for("ada"), acting_for("ada", "matrix"), {"x-surface": "matrix"}):
                for url in (THREADS, "/api/v1/tokens", "/api/v1/channels/links"):
                    answer = await anyone.http.get(url, headers={**headers, **bearer(text)})
                    assert (answer.status_code, answer.json()["code"]) == (status, code), (url, answer.text)
                asked = await anyone.post_chat("Hi", "key", headers={**headers, **bearer(text)})
                assert (asked.status_code, asked.json()["code"]) == (status, code)
    assert await counts(threadline) == before


@pytest.mark.req("SX-04", "S3-15")
async def test_codes_are_redeemed_only_by_bots_on_their_own_account(
    bot: Client, client: Client, threadline: Threadline
) -> None:
    """With a code created on behalf of a user, a stolen token would give lasting access."""
    code = (await threadline.messaging.links.new_code(Scope("local", "ada"))).code
    other_tenant = (await threadline.messaging.links.new_code(Scope("other", "ada"))).code
    room = {"platform": "matrix", "platformUserId": "@eve:example.org"}
    redeem = "/api/v1/channels/links/redeem"
    for headers in (acting_for("ada"), acting_for("ada", "matrix")):
        for url, body in ((redeem, {**room, "code": code}), ("/api/v1/channels/links/code", {})):
            answer = await bot.http.post(url, json=body, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "impersonation_refused")
    plain = await token_for(threadline, "bob")
    viewing = await token_for(threadline, "bot", "viewer", acts_for_users=True)
    for text in (plain, viewing):
        answer = await client.http.post(redeem, json={**room, "code": code}, headers=bearer(text))
        assert (answer.status_code, answer.json()["code"]) == (403, "role_refused")
        listed = await client.http.get("/api/v1/tokens", headers=bearer(text))
        assert (listed.status_code, listed.json()["code"]) == (403, "role_refused")
    for wrong in ({"platform": "slack"}, {"platformUserId": ""}, {"code": "A" * 101}, {"more": 1}):
        assert (await bot.http.post(redeem, json={**room, "code": code, **wrong})).status_code == 400
    foreign = await bot.http.post(redeem, json={**room, "code": other_tenant})
    assert (foreign.status_code, foreign.json()["code"]) == (409, "link_refused")
    assert await threadline.store.scoped(system_scope("local")).links() == []
    assert (await bot.http.post(redeem, json={**room, "code": code})).json() == {"userId": "ada"}


@pytest.mark.req("S0-12")
async def test_only_bots_and_administrators_see_the_user_of_an_account(
    bot: Client, client: Client, threadline: Threadline
) -> None:
    root = Scope("local", "root", "admin")
    await threadline.messaging.links.put(root, "matrix", "@ada:example.org", "ada", revoked=False)
    await threadline.messaging.links.put(Scope("other", "root", "admin"), "matrix", "@a:b", "ada", revoked=False)
    links = "/api/v1/channels/links"
    which = {"platform": "matrix", "platformUserId": "@ada:example.org"}
    callers = {
        await token_for(threadline, "ada"): 1,
        await token_for(threadline, "bob"): 0,
        await token_for(threadline, "root", "admin"): 1,
    }
    for text, count in callers.items():
        found = await client.http.get(links, params=which, headers=bearer(text))
        assert len(found.json()["links"]) == count
    assert [each["userId"] for each in (await bot.http.get(links, params=which)).json()["links"]] == ["ada"]
    assert (await bot.http.get(links)).json() == {"links": []}
    assert (await bot.http.get(links, params={**which, "platformUserId": "@a:b"})).json() == {"links": []}
    assert (await bot.http.get(links, params=which, headers=acting_for("bob"))).json() == {"links": []}
    for wrong in ({"platform": "matrix"}, {"platformUserId": "x"}, {**which, "platform": "web"}):
        assert (await bot.http.get(links, params=wrong)).status_code == 400


@pytest.mark.req("SX-04")
async def test_impersonation_is_limited_to_the_tokens_tenant(
    bot: Client, client: Client, threadline: Threadline
) -> None:
    async with client_with(client.url, await token_for(threadline, "ada", tenant="other")) as ada:
        await ada.ask("Secret", "key")
        before = await counts(threadline, "other")
        for user in ("ada", "other/ada", "other:ada"):
            assert (await bot.http.get(THREADS, headers=acting_for(user))).json()["threads"] == []
            assert (await bot.http.post(UNDO, headers=acting_for(user))).status_code == 404
            assert (await bot.post_chat("Hi", "key", headers=acting_for(user))).status_code == 200
        text = bot.http.headers["authorization"].replace("tl_local_", "tl_other_")
        moved = await bot.http.get(THREADS, headers={**acting_for("ada"), "authorization": text})
        assert moved.status_code == 401
        assert await counts(threadline, "other") == before
        assert len(await ada.messages("key")) == 2


def test_the_headers_are_documented_exactly_where_they_are_accepted(threadline: Threadline) -> None:
    app = build_app(threadline)
    for signed_in in (True, False):
        for path, method, each in operations(build_document(app.routes, is_authenticated=signed_in)):
            named = {parameter["name"] for parameter in each["parameters"] if parameter["in"] == "header"}
            taken = signed_in and (each["tags"][0] in OWN_DATA or each["operationId"] in FOR_OTHERS_TOO)
            assert ({"X-On-Behalf-Of", "X-Surface"} <= named) is taken, (method, path)


async def test_without_authentication_impersonation_is_refused(threadline: Threadline) -> None:
    """Otherwise the request would be handled as the local user's."""
    before = await counts(threadline)
    async with serving(changed(threadline, SERVICE)) as anyone:
        for headers in (acting_for("ada"), {"x-surface": "matrix"}):
            for answer in (
                await anyone.http.get(THREADS, headers=headers),
                await anyone.post_chat("Hi", None, headers),
            ):
                assert (answer.status_code, answer.json()["code"]) == (403, "impersonation_refused")
    assert await counts(threadline) == before


async def test_impersonated_users_have_separate_limits_and_a_common_one(threadline: Threadline) -> None:
    service = msgspec.structs.replace(ASKING, rates=RateLimits(per_token=4, per_acting_token=12, per_address=0))
    text = await token_for(threadline, "bot", acts_for_users=True)

    async def asked(client: Client, user: str) -> list[int]:
        return [(await client.http.get(THREADS, headers=acting_for(user))).status_code for _ in range(5)]

    async with serving(changed(threadline, service, ManualClock())) as anyone, client_with(anyone.url, text) as bot:
        assert await asked(bot, "ada") == [200, 200, 200, 200, 429]
        assert await asked(bot, "bob") == [200, 200, 200, 200, 429]
        assert await asked(bot, "eve") == [200, 200, 429, 429, 429]
        assert (await bot.http.get(THREADS)).status_code == 200
