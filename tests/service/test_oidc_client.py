"""The client of identity providers against one whose every answer the test decides."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from jwt.algorithms import RSAAlgorithm

from tests.service.test_jwt_reader import P256, RSA, SECRET, a_set, jwk
from threadline.clock import SystemClock
from threadline.core.oidc import OidcProvider
from threadline.service.auth.identity_providers import ProviderUnavailable, SignInRefused
from threadline.service.auth.oidc_client import OidcClient
from threadline.service.auth.sign_in_flows import begin_flow, pack_flow, safe_path, unpack_flow

pytestmark = pytest.mark.req("K-08")


class FakeProvider:
    """`answers` are bodies by path; a function is called and may wait."""

    def __init__(self) -> None:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", "0")))
                status, body = provider.answers[self.path]()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self.document: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/auth?fixed=1",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/keys",
        }
        self.claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": "threadline",
            "sub": "42",
            "nonce": "the nonce",
            "iat": int(time.time()),
            "exp": int(time.time()) + 300,
        }
        self.key: Any = RSA
        self.algorithm = "RS256"
        self.userinfo: dict[str, Any] = {"sub": "42", "name": "Ada"}
        self.answers: dict[str, Callable[[], tuple[int, bytes]]] = {
            "/.well-known/openid-configuration": lambda: (200, json.dumps(self.document).encode()),
            "/keys": lambda: (200, a_set(jwk(RSAAlgorithm, RSA, kid="k"))),
            "/token": lambda: (200, json.dumps({"access_token": "a", "id_token": self.id_token()}).encode()),
            "/userinfo": lambda: (200, json.dumps(self.userinfo).encode()),
        }
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def id_token(self) -> str:
        return jwt.encode(self.claims, self.key, self.algorithm, headers={"kid": "k"})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    provider = FakeProvider()
    yield provider
    provider.stop()


@asynccontextmanager
async def client_of(fake: FakeProvider) -> AsyncIterator[OidcClient]:
    client = OidcClient(OidcProvider(fake.issuer, "threadline", "secret"), "http://localhost/sign-in/x/callback")
    try:
        yield client
    finally:
        await client.close()


async def test_missing_claims_come_from_userinfo(fake: FakeProvider) -> None:
    async with client_of(fake) as client:
        claims = await client.claims("code", "verifier", "the nonce")
        url = await client.authorization_url("s", "n", "v")
    assert (claims["sub"], claims["name"]) == ("42", "Ada")
    assert url.startswith(f"{fake.issuer}/auth?fixed=1&response_type=code&")
    assert "code_challenge_method=S256" in url
    assert "code_challenge=v&" not in url


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": ["threadline", "another"]},
        {"azp": "another"},
        {"exp": 1},
        {"iat": int(time.time()) + 3_600},
        {"sub": None},
    ],
    # Every worker of a parallel run must collect the same names: no time, no address in memory.
    ids=["nonce", "no nonce", "issuer", "audience", "audiences", "azp", "expired", "issued later", "no subject"],
)
async def test_an_id_token_for_something_else_is_refused(fake: FakeProvider, change: dict[str, Any]) -> None:
    fake.claims = {name: value for name, value in {**fake.claims, **change}.items() if value is not None}
    async with client_of(fake) as client:
        with pytest.raises(SignInRefused):
            await client.claims("code", "verifier", "the nonce")


@pytest.mark.parametrize(
    ("key", "algorithm"), [(P256, "ES256"), (SECRET, "HS256"), (None, "none")], ids=["ES256", "HS256", "none"]
)
async def test_an_id_token_signed_with_something_else_is_refused(fake: FakeProvider, key: Any, algorithm: str) -> None:
    fake.key, fake.algorithm = key, algorithm
    async with client_of(fake) as client:
        with pytest.raises(SignInRefused):
            await client.claims("code", "verifier", "the nonce")


async def test_userinfo_about_another_person_is_refused(fake: FakeProvider) -> None:
    fake.userinfo = {"sub": "43", "name": "Eve"}
    async with client_of(fake) as client:
        with pytest.raises(SignInRefused, match="another person"):
            await client.claims("code", "verifier", "the nonce")


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/.well-known/openid-configuration", 500, b"{}"),
        ("/.well-known/openid-configuration", 200, b"<html>"),
        ("/.well-known/openid-configuration", 200, b'{"issuer": "https://evil.example"}'),
        ("/.well-known/openid-configuration", 302, b"{}"),
        ("/keys", 200, b"no"),
        ("/keys", 404, b"{}"),
        ("/token", 500, b"{}"),
        ("/token", 200, b"x" * 1_100_000),
        ("/userinfo", 500, b"{}"),
    ],
    ids=repr,
)
async def test_a_provider_with_a_fault_is_unavailable(fake: FakeProvider, path: str, status: int, body: bytes) -> None:
    fake.answers[path] = lambda: (status, body)
    async with client_of(fake) as client:
        with pytest.raises(ProviderUnavailable):
            await client.claims("code", "verifier", "the nonce")


async def test_plain_http_on_another_machine_is_refused(fake: FakeProvider) -> None:
    fake.document["token_endpoint"] = "http://login.example.com/token"
    async with client_of(fake) as client:
        with pytest.raises(ProviderUnavailable, match="https"):
            await client.metadata()


async def test_a_used_code_is_refused(fake: FakeProvider) -> None:
    fake.answers["/token"] = lambda: (400, b'{"error": "invalid_grant"}')
    async with client_of(fake) as client:
        with pytest.raises(SignInRefused, match="invalid_grant"):
            await client.claims("code", "verifier", "the nonce")


async def test_a_silent_provider_costs_a_sign_in_some_seconds(fake: FakeProvider) -> None:
    may_answer = threading.Event()

    def wait() -> tuple[int, bytes]:
        may_answer.wait(120)
        return 200, b"{}"

    fake.answers["/.well-known/openid-configuration"] = wait
    try:
        async with client_of(fake) as client, asyncio.timeout(60):
            with pytest.raises(ProviderUnavailable):
                await client.metadata()
    finally:
        may_answer.set()


def test_only_the_flow_that_was_begun_is_accepted() -> None:
    now = SystemClock().now()
    flow = begin_flow("a", "/t/x", now)
    packed = pack_flow(flow, "key")
    assert unpack_flow(packed, "key", "a", flow.state, now) == flow
    later = flow.expires_at
    other = begin_flow("a", "/", now)
    body, _, signature = packed.partition(".")
    for wrong in (
        unpack_flow(packed, "another key", "a", flow.state, now),
        unpack_flow(packed, "key", "b", flow.state, now),
        unpack_flow(packed, "key", "a", other.state, now),
        unpack_flow(packed, "key", "a", flow.state, later),
        unpack_flow(f"{pack_flow(other, 'key').partition('.')[0]}.{signature}", "key", "a", other.state, now),
        unpack_flow(f"{body}.", "key", "a", flow.state, now),
        unpack_flow("", "key", "a", flow.state, now),
    ):
        assert wrong is None


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/", "/"),
        ("/t/x?y=1", "/t/x?y=1"),
        ("", "/"),
        ("t/x", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("/a\\b", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/x\r\nSet-Cookie: a=b", "/"),
        ("/" + "x" * 5_000, "/"),
    ],
)
def test_the_path_afterwards_stays_on_this_host(given: str, path: str) -> None:
    assert safe_path(given) == path
