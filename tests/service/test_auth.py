"""Authentication over HTTP: malformed headers, revoked tokens, and JWTs with keys from the network."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import pytest
from jwt.algorithms import RSAAlgorithm

from tests.conftest import OpenStore
from tests.scripted_agent import ScriptedAgent, make_threadline
from tests.service.conftest import SERVICE, held
from tests.service.running_service import CHAT, THREADS, Client, serving, wait_until_idle
from tests.service.test_jwt_reader import RSA, a_set, jwk, signed
from tests.service.token_clients import bearer, client_with, token_for
from tests.stores.sqlite.disk import a_disk
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.access import NewToken, make_token, parse_token
from threadline.core.errors import InvalidName
from threadline.core.ids import new_id
from threadline.core.threads import Scope, system_scope
from threadline.service.auth.authentication import check_address
from threadline.service.auth.jwt_reader import jwt_reader
from threadline.settings import JwtSettings, Settings
from threadline.testing.clock import ManualClock

ASKING = msgspec.structs.replace(SERVICE, authentication=True)


@pytest.fixture
def settings() -> Settings:
    return Settings(database=":memory:", agent="scripted", service=ASKING)


@pytest.fixture
async def ada(threadline: Threadline, client: Client) -> AsyncIterator[Client]:
    async with client_with(client.url, await token_for(threadline, "ada")) as ada:
        yield ada


async def test_a_token_authenticates_its_user(ada: Client, threadline: Threadline) -> None:
    await ada.ask("Hi", "key")
    threads = await threadline.threads(Scope("local", "ada")).page()
    assert [thread.state_key for thread in threads.items] == ["key"]


async def test_an_open_stream_ends_soon_after_its_token_is_revoked(
    client: Client, threadline: Threadline, scripted_agent: ScriptedAgent
) -> None:
    administration = threadline.administration(Scope("local", "root", "admin"))
    token, text = await administration.create_token("ada", name="laptop")
    async with client_with(client.url, text) as ada, held(scripted_agent):
        body = {"id": "key", "message": {"role": "user", "content": "Hi"}}
        async with ada.http.stream("POST", CHAT, json=body) as stream, asyncio.timeout(30):
            pieces = stream.aiter_text()
            assert await anext(pieces)
            await administration.revoke_token(token.id)
            rest = "".join([piece async for piece in pieces])
        assert "[DONE]" not in rest
        assert (await ada.http.get(THREADS)).status_code == 401
    # The turn belongs to the user, not to the connection.
    async with client_with(client.url, await token_for(threadline, "ada")) as ada:
        async with asyncio.timeout(30):
            while len(await ada.messages("key")) < 2:
                await wait_until_idle(threadline)


async def test_no_token_is_for_the_user_of_the_system(threadline: Threadline, client: Client) -> None:
    administration = threadline.administration(Scope("local", "root", "admin"))
    with pytest.raises(InvalidName, match="'system' is reserved"):
        await administration.create_token("system", name="laptop")
    async with client_with(client.url, await token_for(threadline, "root", "admin")) as root:
        answer = await root.http.post("/api/v1/tokens", json={"user": "system", "name": "x"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_name")


async def test_a_stored_token_of_the_system_user_is_refused(threadline: Threadline, client: Client) -> None:
    """Such as one that an earlier version created."""
    text = make_token("local")
    found = parse_token(text)
    assert found is not None
    new = NewToken(new_id(), found.token_hash, "system", "old", "admin")
    await threadline.store.scoped(Scope("local", "root", "admin")).create_token(new)
    async with client_with(client.url, text) as system:
        assert (await system.http.get(THREADS)).status_code == 401


async def raw_response(client: Client, head: bytes) -> bytes:
    """The raw response to a request with these header lines."""
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /api/v1/ai/threads HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" + head + b"\r\n\r\n")
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"authorization: Bearer \xc3\xa9\xff\xfe", 401),
        (b"authorization: Bearer tl_local_\xe9" + b"0" * 63, 401),
        (b"authorization: Bearer ", 401),
        (b"authorization:", 401),
        (b"authorization: Basic YTpi", 401),
        (b"authorization: Bearer", 401),
        (b"authorization: tl_local_" + b"0" * 64, 401),
        (b"authorization: Bearer a b c", 401),
        (b"authorization: Bearer one\r\nauthorization: Bearer two", 400),
        (b"authorization: Bearer " + b"a" * 20_000, 431),
        (b"authorization: Bearer " + b"a" * 1_000_000, 431),
        (b"authorization: Bearer tl_" + b"a" * 9_000 + b"_" + b"0" * 64, 401),
    ],
)
async def test_a_hostile_header_is_a_problem_and_not_a_crash(client: Client, head: bytes, status: int) -> None:
    answer = await raw_response(client, head)
    assert answer.startswith(b"HTTP/1.1 %d" % status), answer[:200]
    assert b"application/problem+json" in answer


async def test_a_token_in_the_url_is_not_accepted(ada: Client, client: Client) -> None:
    text = ada.http.headers["authorization"].removeprefix("Bearer ")
    for url in (f"{THREADS}?token={text}", f"{THREADS}?access_token={text}"):
        assert (await client.http.get(url)).status_code == 401
    assert (await client.http.get(THREADS, headers={"authorization": f"bEaReR {text}"})).status_code == 200


async def test_a_revoked_token_is_refused_from_the_next_request_on(ada: Client, threadline: Threadline) -> None:
    assert (await ada.http.get(THREADS)).status_code == 200
    administration = threadline.administration(Scope("local", "root", "admin"))
    await administration.revoke_token((await administration.tokens())[0].id)
    assert (await ada.http.get(THREADS)).json()["code"] == "invalid_token"


async def test_a_token_is_not_valid_in_another_tenant(ada: Client, client: Client, threadline: Threadline) -> None:
    text = ada.http.headers["authorization"].removeprefix("Bearer ")
    await token_for(threadline, "ada", tenant="other")
    answer = await client.http.get(THREADS, headers=bearer(text.replace("tl_local_", "tl_other_")))
    assert answer.status_code == 401


@pytest.mark.parametrize("database", ["memory", "postgres"], indirect=True)
async def test_the_last_use_is_stored_once_a_minute_without_delaying_requests(
    open_store: OpenStore, clock: ManualClock, scripted_agent: ScriptedAgent, tenant_id: str
) -> None:
    store = await open_store()
    threadline = make_threadline(
        store, Settings(tenant=tenant_id, agent="scripted", service=ASKING), clock, scripted_agent
    )
    text = await token_for(threadline, "ada", tenant=tenant_id)
    first = clock.now()
    async with serving(threadline) as anyone, client_with(anyone.url, text) as ada:
        for seconds in (0, 20, 20, 30):
            clock.advance(seconds)
            assert (await ada.http.get(THREADS)).status_code == 200
    tokens = await store.scoped(system_scope(tenant_id)).tokens()
    assert [token.last_used_at for token in tokens] == [clock.now()]
    assert (clock.now() - first).total_seconds() == 70


async def test_without_a_database_the_error_is_not_about_the_token(ada: Client, threadline: Threadline) -> None:
    await threadline.store.close()
    answer = await ada.http.get(THREADS)
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert (await ada.http.get("/openapi.json")).status_code == 200


def test_with_authentication_any_address_may_be_served() -> None:
    assert check_address("0.0.0.0", is_authenticated=True) == "0.0.0.0"


async def test_with_authentication_any_host_name_is_accepted(ada: Client) -> None:
    assert (await ada.http.get(THREADS, headers={"host": "threads.example"})).status_code == 200


@contextmanager
def an_issuer(answers: dict[str, tuple[int, dict[str, str], bytes]]) -> Iterator[str]:
    """The URL of a web server with these responses by path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answers[self.path]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


async def test_keys_are_fetched_from_a_url_without_following_redirects() -> None:
    published = a_set(jwk(RSAAlgorithm, RSA, kid="one"))
    answers = {"/keys": (200, {}, published), "/moved": (302, {"Location": "/keys"}, b""), "/": (200, {}, b"<html>")}
    token = signed(RSA, "RS256", headers={"kid": "one"})
    with an_issuer(answers) as url:
        found = await jwt_reader(JwtSettings(jwks=f"{url}/keys")).read(token)
        assert found == Scope("acme", "ada", "member")
        for place in ("/moved", "/"):
            with pytest.raises(Exception, match="cannot be loaded"):
                await jwt_reader(JwtSettings(jwks=f"{url}{place}")).read(token)


async def test_jwts_and_tokens_are_both_accepted(threadline: Threadline, tmp_path: Any) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(a_set(jwk(RSAAlgorithm, RSA, kid="one")))
    service = msgspec.structs.replace(SERVICE, jwt=JwtSettings(jwks=str(keys), audience="threadline"))
    with_jwt = Threadline(
        threadline.store, msgspec.structs.replace(threadline.settings, service=service), threadline.clock
    )
    token = await token_for(threadline, "ada", tenant="acme")
    signed_token = signed(RSA, "RS256", headers={"kid": "one"}, aud="threadline", role="viewer")
    async with serving(with_jwt) as anyone:
        for text, status in ((token, 200), (signed_token, 200), (signed(RSA, "RS256", headers={"kid": "one"}), 401)):
            assert (await anyone.http.get(THREADS, headers=bearer(text))).status_code == status
        refused = await anyone.http.post("/api/v1/ai/chat", json={}, headers=bearer(signed_token))
        assert (refused.status_code, refused.json()["code"]) == (403, "role_refused")


async def test_administrators_create_and_revoke_tokens_over_http(threadline: Threadline, client: Client) -> None:
    async with client_with(client.url, await token_for(threadline, "root", "admin")) as root:
        made = await root.http.post("/api/v1/tokens", json={"user": "ada", "name": "laptop", "role": "viewer"})
        assert made.status_code == 201
        token_id, text = made.json()["token"]["id"], made.json()["text"]
        assert (await client.http.get(THREADS, headers=bearer(text))).status_code == 200
        assert text not in (await root.http.get("/api/v1/tokens")).text
        assert (await root.http.delete(f"/api/v1/tokens/{token_id}")).status_code == 200
        assert (await root.http.delete(f"/api/v1/tokens/{token_id}")).status_code == 404
        assert (await client.http.get(THREADS, headers=bearer(text))).status_code == 401
        acts = (await root.http.get("/api/v1/audit?limit=2")).json()["acts"]
        assert [(act["who"], act["act"], act["target"]) for act in acts] == [
            ("root", "token.revoked", token_id),
            ("root", "token.created", token_id),
        ]
        earlier = (await root.http.get(f"/api/v1/audit?before={acts[1]['id']}")).json()["acts"]
        assert [act["act"] for act in earlier] == ["token.created"]
        for wrong in ({}, {"user": ""}, {"user": "ada", "role": "system"}, {"user": "a", "expiresAt": "2020-01-01"}):
            assert (await root.http.post("/api/v1/tokens", json=wrong)).status_code == 400, wrong


@pytest.mark.req("S0-10")
async def test_a_context_that_cannot_be_stored_is_not_reported_as_applied_with_authentication(
    tmp_path: Any, scripted_agent: ScriptedAgent
) -> None:
    settings = Settings(database=str(tmp_path / "t.db"), agent="scripted", service=SERVICE)
    with a_disk() as disk:
        async with open_threadline(settings=settings) as threadline, serving(threadline) as client:
            url = "/api/v1/agents/rehearsal/context"
            assert (await client.http.post(url, json={"context": "first"})).json() == {"status": "applied"}
            disk.is_full = True
            answer = await client.http.post(url, json={"context": "second"})
            disk.is_full = False
            assert answer.status_code == 507
            assert json.loads(answer.content)["code"] == "store_full"
            assert "applied" not in answer.text
            assert (await client.http.get(url)).json()["context"] == "first"
