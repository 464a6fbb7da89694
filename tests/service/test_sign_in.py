"""Sign-in of people with links, and their sessions: cookies, expiry, revocation, and requests of other pages."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest

from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.conftest import SERVICE, held
from tests.service.running_service import CHAT, THREADS, Client, error_code, serving
from tests.service.token_clients import client_with, token_for
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.channels import User
from threadline.core.sign_ins import make_session_secret
from threadline.core.threads import Scope, system_scope
from threadline.service.auth.session_cookies import SESSION_COOKIE
from threadline.settings import Settings
from threadline.testing.clock import ManualClock

LINK = "/api/v1/sign-in/link"
SIGN_INS = "/api/v1/sign-ins"
DAY = 86_400


@pytest.fixture
def settings() -> Settings:
    return Settings(
        database=":memory:", agent="scripted", service=msgspec.structs.replace(SERVICE, authentication=True)
    )


@pytest.fixture
def manual_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def threadline(
    settings: Settings, scripted_agent: ScriptedAgent, manual_clock: ManualClock
) -> AsyncIterator[Threadline]:
    agents = {"scripted": make_agent(scripted_agent)}
    async with open_threadline(settings=settings, agents=agents, clock=manual_clock) as opened:
        for user in (User("ada", "Ada", "member"), User("root", None, "admin")):
            await opened.store.scoped(system_scope("local")).put_user(user)
        await opened.store.scoped(system_scope("other")).put_user(User("ada"))
        yield opened


async def link_for(threadline: Threadline, user: str = "ada", tenant: str = "local") -> str:
    sign_ins = threadline.administration(system_scope(tenant)).sign_ins
    return (await sign_ins.create_link(user, dt.timedelta(minutes=15))).secret


def own_page(client: Client) -> dict[str, str]:
    return {"origin": client.url, "sec-fetch-site": "same-origin"}


async def open_link(client: Client, link: str, **headers: str) -> httpx2.Response:
    return await client.http.post(LINK, json={"link": link}, headers={**own_page(client), **headers})


def cookie_of(response: httpx2.Response) -> str:
    assert response.status_code == 200, response.text
    name, _, rest = response.headers["set-cookie"].partition("=")
    assert name == SESSION_COOKIE
    return str(rest.partition(";")[0])


def with_cookie(secret: str) -> dict[str, str]:
    return {"cookie": f"{SESSION_COOKIE}={secret}"}


async def signed_in(client: Client, threadline: Threadline, user: str = "ada") -> dict[str, str]:
    """The headers of a page whose user just signed in."""
    return with_cookie(cookie_of(await open_link(client, await link_for(threadline, user)))) | own_page(client)


async def status(client: Client, headers: dict[str, str], path: str = "/api/v1/me") -> int:
    return (await client.http.get(path, headers=headers)).status_code


async def use_is_stored(threadline: Threadline, clock: ManualClock) -> None:
    """The time of use is written beside the request."""
    sign_ins = threadline.administration(system_scope("local")).sign_ins
    async with asyncio.timeout(60):
        while (await sign_ins.list("ada"))[0].last_seen_at != clock.now():  # noqa: ASYNC110 - nothing to await
            await asyncio.sleep(0.01)


@pytest.mark.req("K-08")
async def test_a_link_signs_its_user_in_once(client: Client, threadline: Threadline) -> None:
    link = await link_for(threadline)
    response = await open_link(client, link, **{"user-agent": "Firefox on Linux"})
    assert response.json() == {"tenant": "local", "user": "ada"}
    attributes = {part.strip().lower() for part in response.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "secure", "samesite=lax", "path=/"} <= attributes
    assert not any(part.startswith("domain") for part in attributes)
    headers = with_cookie(cookie_of(response))
    me = (await client.http.get("/api/v1/me", headers=headers)).json()
    assert me == {"tenant": "local", "user": "ada", "role": "member", "displayName": "Ada"}
    devices = (await client.http.get(SIGN_INS, headers=headers)).json()["signIns"]
    assert [(each["device"], each["method"], each["isCurrent"]) for each in devices] == [
        ("Firefox on Linux", "link", True)
    ]
    again = await open_link(client, link)
    assert (again.status_code, error_code(again)) == (410, "link_ended")
    assert "set-cookie" not in again.headers


@pytest.mark.req("K-08")
async def test_two_who_open_a_link_at_once_get_one_session(client: Client, threadline: Threadline) -> None:
    link = await link_for(threadline)
    responses = await asyncio.gather(*(open_link(client, link) for _ in range(6)))
    assert sorted(each.status_code for each in responses) == [200, 410, 410, 410, 410, 410]


@pytest.mark.req("K-08")
async def test_links_expire_and_can_be_revoked(
    client: Client, threadline: Threadline, manual_clock: ManualClock
) -> None:
    expired, revoked = await link_for(threadline), await link_for(threadline)
    sign_ins = threadline.administration(system_scope("local")).sign_ins
    await sign_ins.revoke("ada", (await sign_ins.list("ada"))[0].id)
    assert (await open_link(client, revoked)).status_code == 410
    manual_clock.advance(15 * 60)
    assert (await open_link(client, expired)).status_code == 410
    for wrong in ("", "tll_local_" + "0" * 64, "tls_local_" + "0" * 64, "x" * 200):
        assert (await open_link(client, wrong)).status_code == 410
    assert (await open_link(client, "x" * 201)).status_code == 400


@pytest.mark.req("K-08")
@pytest.mark.parametrize("what", ["idle", "absolute"])
async def test_sessions_end_when_unused_and_at_last(
    client: Client, threadline: Threadline, manual_clock: ManualClock, what: str
) -> None:
    headers = await signed_in(client, threadline)
    if what == "idle":
        manual_clock.advance(14 * DAY - 60)
        assert await status(client, headers) == 200
        # Used now, so another 14 days begin.
        await use_is_stored(threadline, manual_clock)
        manual_clock.advance(14 * DAY - 60)
        assert await status(client, headers) == 200
        manual_clock.advance(15 * DAY)
    else:
        for _ in range(8):
            manual_clock.advance(11 * DAY)
            assert await status(client, headers) == 200
            await use_is_stored(threadline, manual_clock)
        manual_clock.advance(2 * DAY)
    refused = await client.http.get("/api/v1/me", headers=headers)
    assert (refused.status_code, error_code(refused)) == (401, "session_ended")


@pytest.mark.req("K-08")
async def test_a_session_of_one_tenant_is_worth_nothing_in_another(client: Client, threadline: Threadline) -> None:
    headers = await signed_in(client, threadline)
    secret = headers["cookie"].partition("=")[2]
    await link_for(threadline, tenant="other")
    stolen = secret.replace("tls_local_", "tls_other_")
    assert stolen != secret
    for wrong in (stolen, make_session_secret("local"), secret[:-1], "x", "tll" + secret[3:]):
        assert await status(client, with_cookie(wrong)) == 401
    assert await status(client, headers) == 200


@pytest.mark.req("K-08")
async def test_a_stolen_database_has_no_secret(client: Client, threadline: Threadline) -> None:
    link = await link_for(threadline)
    unused = await link_for(threadline)
    secret = cookie_of(await open_link(client, link))
    rows = repr((await threadline.store.scoped(system_scope("local")).read_rows("sign_ins")).rows)
    audit = repr((await threadline.store.scoped(system_scope("local")).read_rows("audit")).rows)
    for text in (link, unused, secret):
        assert text.rpartition("_")[2] not in rows + audit


@pytest.mark.req("K-08")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://page", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "own", "sec-fetch-site": "cross-site"},
    ],
    ids=repr,
)
async def test_other_pages_cannot_change_anything_with_the_cookie(
    client: Client, threadline: Threadline, headers: dict[str, str]
) -> None:
    """`http://page` may call the API with a token, see the setting `origins`."""
    cookie = {"cookie": (await signed_in(client, threadline))["cookie"]}
    sent = {name: client.url if value == "own" else value for name, value in headers.items()}
    body = {"id": "forged", "message": {"role": "user", "content": "Hi"}}
    for method, path in (("POST", CHAT), ("DELETE", f"{THREADS}/x"), ("PATCH", f"{THREADS}/x"), ("DELETE", SIGN_INS)):
        refused = await client.http.request(method, path, json=body, headers=cookie | sent)
        assert (refused.status_code, error_code(refused)) == (403, "origin_refused"), (method, path)
    out = await client.http.post("/api/v1/sign-out", headers=cookie | sent)
    assert out.status_code == 403
    assert await status(client, cookie) == 200
    threads = (await client.http.get(THREADS, headers=cookie)).json()["threads"]
    assert threads == []


@pytest.mark.req("K-08")
async def test_the_own_page_chats_with_the_cookie(client: Client, threadline: Threadline) -> None:
    headers = await signed_in(client, threadline)
    for sent in ({"origin": client.url}, {"sec-fetch-site": "same-origin"}, own_page(client)):
        answer = await client.post_chat("Hi", "key", headers={"cookie": headers["cookie"], **sent})
        assert answer.status_code == 200, answer.text
    threads = await threadline.threads(Scope("local", "ada")).page()
    assert [thread.state_key for thread in threads.items] == ["key"]


@pytest.mark.req("K-08")
async def test_signing_out_ends_this_session_or_all(client: Client, threadline: Threadline) -> None:
    first, second, third = [await signed_in(client, threadline) for _ in range(3)]
    out = await client.http.post("/api/v1/sign-out", headers=first)
    assert out.status_code == 204
    assert "max-age=0" in out.headers["set-cookie"].lower()
    assert [await status(client, each) for each in (first, second, third)] == [401, 200, 200]
    link = await link_for(threadline)
    assert (await client.http.post("/api/v1/sign-out", json={"everywhere": True}, headers=second)).status_code == 204
    assert [await status(client, each) for each in (second, third)] == [401, 401]
    assert (await open_link(client, link)).status_code == 410


@pytest.mark.req("K-08")
async def test_users_end_only_their_own_devices(client: Client, threadline: Threadline) -> None:
    mine, other, roots = (
        await signed_in(client, threadline),
        await signed_in(client, threadline),
        await signed_in(client, threadline, "root"),
    )
    (roots_id,) = [each["id"] for each in (await client.http.get(SIGN_INS, headers=roots)).json()["signIns"]]
    devices = (await client.http.get(SIGN_INS, headers=mine)).json()["signIns"]
    (others_id,) = [each["id"] for each in devices if "isCurrent" not in each]
    assert (await client.http.delete(f"{SIGN_INS}/{roots_id}", headers=mine)).status_code == 404
    assert (await client.http.delete(f"{SIGN_INS}/{others_id}", headers=mine)).status_code == 204
    assert [await status(client, each) for each in (mine, other, roots)] == [200, 401, 200]
    for method, path in (("GET", SIGN_INS), ("DELETE", SIGN_INS), ("DELETE", f"{SIGN_INS}/{roots_id}")):
        refused = await client.http.request(method, f"{path}?user=root", headers=mine)
        assert (refused.status_code, error_code(refused)) == (403, "role_refused")
    assert (await client.http.post(f"{SIGN_INS}/links", json={"user": "root"}, headers=mine)).status_code == 403


@pytest.mark.req("K-08", "K-09")
async def test_administrators_create_links_and_sign_users_out(client: Client, threadline: Threadline) -> None:
    async with client_with(client.url, await token_for(threadline, "root", "admin")) as root:
        made = await root.http.post(f"{SIGN_INS}/links", json={"user": "ada", "minutes": 5})
        assert made.status_code == 201, made.text
        url, _, link = made.json()["url"].partition("#sign-in=")
        assert url == f"{client.url}/"
        headers = with_cookie(cookie_of(await open_link(client, link)))
        listed = (await root.http.get(SIGN_INS, params={"user": "ada"})).json()["signIns"]
        assert [each["id"] for each in listed] == [made.json()["id"]]
        gone = await root.http.delete(f"{SIGN_INS}/{listed[0]['id']}", params={"user": "ada"})
        assert (gone.status_code, await status(client, headers)) == (204, 401)
        await signed_in(client, threadline)
        assert (await root.http.delete(SIGN_INS, params={"user": "ada"})).json() == {"revoked": 1}
        assert (await root.http.post(f"{SIGN_INS}/links", json={"user": "nobody"})).status_code == 404
        await root.http.patch("/api/v1/users/ada", json={"disabled": True})
        assert (await root.http.post(f"{SIGN_INS}/links", json={"user": "ada"})).status_code == 409
        acts = {act["act"] for act in (await root.http.get("/api/v1/audit")).json()["acts"]}
    assert {"sign_in.link_created", "sign_in.opened", "sign_in.revoked", "sign_in.all_revoked"} <= acts


@pytest.mark.req("K-08", "K-09")
@pytest.mark.parametrize("how", ["disabled", "revoked"])
async def test_open_streams_end_with_the_session(
    client: Client, threadline: Threadline, scripted_agent: ScriptedAgent, manual_clock: ManualClock, how: str
) -> None:
    headers = await signed_in(client, threadline)
    administration = threadline.administration(system_scope("local"))
    async with held(scripted_agent):
        body = {"id": "key", "message": {"role": "user", "content": "Hi"}}
        async with client.http.stream("POST", CHAT, json=body, headers=headers) as stream:
            pieces = stream.aiter_text()
            await anext(pieces)
            if how == "disabled":
                await administration.users.disable("ada")
            else:
                await administration.sign_ins.revoke_all("ada")
            async with asyncio.timeout(60):
                text = "".join([piece async for piece in pieces])
    assert "[DONE]" not in text or how == "disabled"
    assert await status(client, headers) == 401


@pytest.mark.req("K-08")
async def test_signing_in_again_ends_the_former_session_of_the_browser(client: Client, threadline: Threadline) -> None:
    former = await signed_in(client, threadline)
    response = await open_link(client, await link_for(threadline), cookie=former["cookie"])
    assert await status(client, former) == 401
    assert await status(client, with_cookie(cookie_of(response))) == 200


async def test_a_token_goes_before_the_cookie(client: Client, threadline: Threadline) -> None:
    headers = await signed_in(client, threadline, "root")
    async with client_with(client.url, await token_for(threadline, "grace")) as grace:
        me: dict[str, Any] = (await grace.http.get("/api/v1/me", headers={"cookie": headers["cookie"]})).json()
    assert me["user"] == "grace"


async def test_a_lower_role_counts_for_sessions_at_once(client: Client, threadline: Threadline) -> None:
    headers = await signed_in(client, threadline)
    await threadline.administration(system_scope("local")).users.change("ada", role="viewer")
    refused = await client.http.post(THREADS, json={}, headers=headers)
    assert (refused.status_code, error_code(refused)) == (403, "role_refused")


async def test_without_authentication_there_is_no_sign_in(threadline: Threadline) -> None:
    plain = Settings(database=":memory:", service=SERVICE)
    async with open_threadline(settings=plain) as opened, serving(opened) as client:
        options = (await client.http.get("/api/v1/sign-in")).json()
        assert options == {"isRequired": False, "providers": []}
        refused = await open_link(client, await link_for(threadline))
        assert (refused.status_code, error_code(refused)) == (404, "sign_in_off")
