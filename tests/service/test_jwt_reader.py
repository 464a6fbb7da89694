"""JWTs: what is accepted, and what only looks valid."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from threadline.core.errors import SettingsInvalid, StoreUnavailable
from threadline.core.threads import Scope
from threadline.service.auth import jwt_keys as keys_
from threadline.service.auth.jwt_keys import KeySet, key_set
from threadline.service.auth.jwt_reader import jwt_reader
from threadline.settings import JwtSettings

SECRET = "correct horse battery staple, twice over"
RSA = rsa.generate_private_key(65537, 2048)
P256 = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
ADA = Scope("acme", "ada", "member")


def pem(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def claims(**more: Any) -> dict[str, Any]:
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=5)
    return {"sub": "ada", "tenant": "acme", "role": "member", "exp": ends, **more}


def signed(key: Any = SECRET, algorithm: str = "HS256", headers: dict[str, Any] | None = None, **more: Any) -> str:
    return jwt.encode(claims(**more), key, algorithm, headers=headers)


def ago(seconds: float) -> dt.datetime:
    return dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)


@pytest.fixture
def public_pem(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_bytes(pem(RSA))
    return path


async def test_a_signed_token_is_read_as_a_scope() -> None:
    reader = jwt_reader(JwtSettings(secret=SECRET))
    assert await reader.read(signed()) == ADA
    assert await reader.read(signed(role="admin", tenant="globex")) == Scope("globex", "ada", "admin")


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "RS256"), (RSA, "PS512"), (P256, "ES256"), (ED, "EdDSA")],
)
async def test_each_type_of_public_key_verifies_its_own_algorithms(tmp_path: Path, key: Any, algorithm: str) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(pem(key))
    reader = jwt_reader(JwtSettings(public_key_file=str(file)))
    assert await reader.read(signed(key, algorithm)) == ADA
    for other, its in ((RSA, "RS256"), (P256, "ES256"), (ED, "EdDSA"), (SECRET, "HS256")):
        if other is not key:
            assert await reader.read(signed(other, its)) is None


def forged(header: dict[str, Any], payload: dict[str, Any], secret: bytes | None) -> str:
    """A token built by hand, because PyJWT would refuse to."""
    body = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, payload))
    mark = b"" if secret is None else hmac.new(secret, body, hashlib.sha256).digest()
    return (body + b"." + base64.urlsafe_b64encode(mark).rstrip(b"=")).decode()


async def test_a_public_key_is_never_used_as_a_shared_secret(public_pem: Path) -> None:
    reader = jwt_reader(JwtSettings(public_key_file=str(public_pem)))
    payload = {**claims(), "exp": 4_000_000_000}
    assert await reader.read(forged({"alg": "HS256", "typ": "JWT"}, payload, pem(RSA))) is None


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "HS999", None, 1, ["HS256"]])
async def test_a_token_cannot_choose_its_algorithm(algorithm: Any) -> None:
    reader = jwt_reader(JwtSettings(secret=SECRET))
    payload = {**claims(), "exp": 4_000_000_000}
    for mark in (None, b"", SECRET.encode()):
        assert await reader.read(forged({"alg": algorithm}, payload, mark)) is None
    assert await reader.read(forged({"alg": "HS256"}, payload, SECRET.encode())) == ADA


async def test_times_are_checked_with_a_leeway() -> None:
    reader = jwt_reader(JwtSettings(secret=SECRET, leeway_seconds=30))
    assert await reader.read(signed(exp=ago(10))) == ADA
    assert await reader.read(signed(exp=ago(60))) is None
    assert await reader.read(signed(nbf=ago(-10))) == ADA
    assert await reader.read(signed(nbf=ago(-60))) is None
    assert await reader.read(signed(iat=ago(-600))) is None
    endless = claims()
    del endless["exp"]
    assert await reader.read(jwt.encode(endless, SECRET, "HS256")) is None


async def test_issuer_and_audience_are_checked_if_configured() -> None:
    reader = jwt_reader(JwtSettings(secret=SECRET, issuer="https://id.example", audience="threadline"))
    assert await reader.read(signed(iss="https://id.example", aud=["other", "threadline"])) == ADA
    wrongs: tuple[dict[str, Any], ...] = (
        {},
        {"iss": "https://id.example"},
        {"aud": "threadline"},
        {"iss": "https://id.example", "aud": "other"},
        {"iss": "https://evil.example", "aud": "threadline"},
    )
    for wrong in wrongs:
        assert await reader.read(signed(**wrong)) is None


async def test_claims_are_read_by_the_configured_names() -> None:
    settings = JwtSettings(
        secret=SECRET,
        tenant_claim="https://acme.example/tenant",
        user_claim="preferred_username",
        role_claim="realm_access.roles",
    )
    said: dict[str, Any] = {
        "https://acme.example/tenant": "globex",
        "preferred_username": "Ada L.",
        "realm_access": {"roles": ["x", "viewer", "admin"]},
    }
    assert await jwt_reader(settings).read(signed(**said)) == Scope("globex", "Ada L.", "admin")


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "system"},
        {"role": None},
        {"role": "owner"},
        {"role": {"admin": True}},
        {"role": ["system"]},
        {"tenant": "Not A Slug"},
        {"tenant": None},
        {"tenant": ["acme"]},
        {"sub": ""},
        {"sub": "a" * 257},
        {"sub": "ada\x00"},
        {"sub": 7},
        {"sub": "system"},
    ],
)
async def test_a_token_without_user_tenant_or_role_is_refused(wrong: dict[str, Any]) -> None:
    body = {**claims(), "exp": 4_000_000_000, **wrong}
    assert await jwt_reader(JwtSettings(secret=SECRET)).read(forged({"alg": "HS256"}, body, SECRET.encode())) is None


async def test_settings_provide_default_tenant_and_role() -> None:
    reader = jwt_reader(JwtSettings(secret=SECRET, tenant="acme", role="viewer"))
    body = {"sub": "ada", "exp": 4_000_000_000}
    assert await reader.read(forged({"alg": "HS256"}, body, SECRET.encode())) == Scope("acme", "ada", "viewer")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hunter2",
        "a.b.c",
        "..",
        "é.ü.ñ",
        "\x00.\x00.\x00",
        "eyJhbGciOiJIUzI1NiJ9..",
        base64.urlsafe_b64encode(b"[" * 9_000).decode().rstrip("=") + ".e30.x",
        base64.urlsafe_b64encode(b'{"alg":"HS256","kid":{}}').decode().rstrip("=") + ".e30.x",
        base64.urlsafe_b64encode(b'{"alg":"HS256","crit":["x"]}').decode().rstrip("=") + ".e30.x",
        base64.urlsafe_b64encode(b'"HS256"').decode().rstrip("=") + ".e30.x",
        signed()[:-2],
        signed() + "x",
        signed("another secret that is long enough too"),
    ],
)
async def test_arbitrary_text_is_refused_without_an_exception(text: str) -> None:
    assert await jwt_reader(JwtSettings(secret=SECRET)).read(text) is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (JwtSettings(), "one of"),
        (JwtSettings(secret=SECRET, jwks="keys.json"), "one of"),
        (JwtSettings(secret="short"), "must have at least 32 bytes, got 5"),
        (JwtSettings(public_key_file="/nowhere.pem"), "cannot be read"),
        (JwtSettings(jwks="/nowhere.json"), "cannot be read"),
        (JwtSettings(jwks="http://id.example/keys"), "https"),
        (JwtSettings(jwks="file:///etc/passwd"), "https"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(settings: JwtSettings, reason: str) -> None:
    with pytest.raises(SettingsInvalid, match=reason):
        jwt_reader(settings)


@pytest.mark.parametrize("key", [rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP256K1())])
def test_a_weak_or_unknown_key_is_refused(tmp_path: Path, key: Any) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(pem(key))
    with pytest.raises(SettingsInvalid, match="2048"):
        jwt_reader(JwtSettings(public_key_file=str(file)))
    file.write_bytes(RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(SettingsInvalid, match="must be a public key in PEM format"):
        jwt_reader(JwtSettings(public_key_file=str(file)))


def jwk(algorithm: Any, key: Any, **more: Any) -> dict[str, Any]:
    return {**json.loads(algorithm.to_jwk(key.public_key())), **more}


def a_set(*listed: Any) -> bytes:
    return json.dumps({"keys": listed}).encode()


def test_only_signature_keys_of_a_key_set_are_used() -> None:
    symmetric = {"kty": "oct", "kid": "h", "k": base64.urlsafe_b64encode(SECRET.encode()).decode()}
    found = key_set(
        a_set(
            jwk(RSAAlgorithm, RSA, kid="r", alg="RS256"),
            jwk(ECAlgorithm, P256, kid="e"),
            jwk(OKPAlgorithm, ED, kid="o"),
            jwk(RSAAlgorithm, RSA, kid="encrypts", use="enc"),
            jwk(RSAAlgorithm, RSA, kid="pinned elsewhere", alg="HS256"),
            symmetric,
            {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
            "nonsense",
        )
    )
    assert {kid: key.algorithms for kid, key in found.items()} == {
        "r": ("RS256",),
        "e": ("ES256",),
        "o": ("EdDSA",),
    }
    for nonsense in (b"{}", b"[]", b'{"keys": 1}'):
        with pytest.raises(SettingsInvalid):
            key_set(nonsense)


class Issuer:
    """A source of keys that counts how often it is loaded."""

    def __init__(self) -> None:
        self.published: bytes | None = a_set(jwk(RSAAlgorithm, RSA, kid="one"))
        self.asked = 0

    async def __call__(self) -> bytes:
        self.asked += 1
        if self.published is None:
            raise OSError("away")
        return self.published


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(keys_, "_now", lambda: now[0])
    return now


async def test_unknown_key_ids_reload_the_key_set_at_most_every_half_minute(time: list[float]) -> None:
    issuer = Issuer()
    keys = KeySet(issuer)
    assert await keys.find("one") is not None
    assert [await keys.find(f"made up {number}") for number in range(50)] == [None] * 50
    assert issuer.asked == 1
    issuer.published = a_set(jwk(ECAlgorithm, P256, kid="two"))
    time[0] += 31
    assert await keys.find("two") is not None
    assert await keys.find("one") is None
    assert issuer.asked == 2


async def test_an_unreachable_issuer_does_not_invalidate_tokens(time: list[float]) -> None:
    issuer = Issuer()
    keys = KeySet(issuer)
    assert await keys.find(None) is not None
    issuer.published = None
    time[0] += 3_600
    assert await keys.find("one") is not None
    assert issuer.asked == 2


async def test_until_keys_are_loaded_the_service_is_unavailable(time: list[float]) -> None:
    issuer = Issuer()
    issuer.published = None
    keys = KeySet(issuer)
    with pytest.raises(StoreUnavailable):
        await keys.find("one")
    issuer.published = a_set(jwk(RSAAlgorithm, RSA, kid="one"))
    time[0] += 31
    assert await keys.find("one") is not None
