"""Keys that verify JWTs. The type of the key decides the allowed algorithms, never the token's header.

A shared secret verifies HMAC, an RSA key RS and PS, an elliptic curve the one ES of its size, Ed25519 EdDSA; `none` is
never allowed. So a public key cannot be misused as an HMAC secret. A key set is loaded once, again after ten minutes,
and at most every half minute when a token names an unknown key; if loading fails, the old keys stay in use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from threadline.core import jsontext
from threadline.core.errors import SettingsInvalid, StoreUnavailable, ThreadlineError

log = logging.getLogger("threadline.service")

# The minimum that NIST recommends.
_RSA_BITS = 2048
# Keys that the issuer revoked are used at most this long.
_REFRESH_SECONDS = 600.0
# Tokens with made-up key ids must not make every request load the key set.
_MIN_RETRY_SECONDS = 30.0
_CURVES = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
_HMAC = (("HS256", 32), ("HS384", 48), ("HS512", 64))
_FROM_JWK: dict[str, Callable[[dict[str, Any]], Any]] = {
    "RSA": RSAAlgorithm.from_jwk,
    "EC": ECAlgorithm.from_jwk,
    "OKP": OKPAlgorithm.from_jwk,
}

Load: TypeAlias = Callable[[], Awaitable[bytes]]


class Key(NamedTuple):
    value: Any
    algorithms: tuple[str, ...]


class Keys(Protocol):
    async def find(self, key_id: str | None) -> Key | None:
        """The key that a token's header names, or None."""
        ...


class OneKey:
    """One configured key, whatever key id a token names."""

    def __init__(self, key: Key) -> None:
        self._key = key

    async def find(self, key_id: str | None) -> Key | None:
        return self._key


def secret_key(secret: str) -> Key:
    """SettingsInvalid for a secret that is too short. Longer secrets allow longer hashes."""
    raw = secret.encode()
    algorithms = tuple(name for name, least in _HMAC if len(raw) >= least)
    if not algorithms:
        raise SettingsInvalid(f"service.jwt.secret must have at least 32 bytes, got {len(raw)}")
    return Key(raw, algorithms)


def public_key(pem: bytes) -> Key:
    try:
        found = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise SettingsInvalid("service.jwt.public_key_file must be a public key in PEM format") from exc
    algorithms = algorithms_of(found)
    if not algorithms:
        raise SettingsInvalid(
            "service.jwt.public_key_file must be RSA with at least 2048 bits, P-256, P-384, P-521 or Ed25519"
        )
    return Key(found, algorithms)


def algorithms_of(key: Any) -> tuple[str, ...]:
    """Empty for a key that is too weak, or not a public key."""
    match key:
        case RSAPublicKey() if key.key_size >= _RSA_BITS:
            return ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
        case EllipticCurvePublicKey():
            return _CURVES.get(key.curve.name, ())
        case Ed25519PublicKey():
            return ("EdDSA",)
    return ()


def key_set(raw: bytes) -> dict[str | None, Key]:
    """The usable public keys of a JWKS, by id. Keys for other purposes, of other types and broken ones are skipped.
    InvalidInput or SettingsInvalid if it is not a JWKS."""
    document = jsontext.parse(raw)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise SettingsInvalid("JWKS has no array `keys`: check service.jwt.jwks")
    found: dict[str | None, Key] = {}
    for jwk in listed:
        key = _from_jwk(jwk) if isinstance(jwk, dict) else None
        if key is not None:
            found[jwk.get("kid") if isinstance(jwk.get("kid"), str) else None] = key
    return found


def _from_jwk(jwk: dict[str, Any]) -> Key | None:
    read = _FROM_JWK.get(str(jwk.get("kty")))
    if read is None or jwk.get("use", "sig") != "sig":
        return None
    try:
        value = read(jwk)
    except (PyJWTError, ValueError, TypeError):
        return None
    algorithms = algorithms_of(value)
    if "alg" in jwk:
        algorithms = tuple(name for name in algorithms if name == jwk["alg"])
    return Key(value, algorithms) if algorithms else None


class KeySet:
    """A JWKS from a file or a URL. StoreUnavailable until it has been loaded once."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._keys: dict[str | None, Key] = {}
        self._tried_at: float | None = None
        self._loaded_at: float | None = None
        # Requests that find no key at the same time must load the set once, not once each.
        self._lock = asyncio.Lock()

    async def find(self, key_id: str | None) -> Key | None:
        if self._loaded_at is None or _now() - self._loaded_at >= _REFRESH_SECONDS or self._look_up(key_id) is None:
            await self._refresh()
        if self._loaded_at is None:
            raise StoreUnavailable("keys for verifying tokens cannot be loaded: check service.jwt.jwks")
        return self._look_up(key_id)

    def _look_up(self, key_id: str | None) -> Key | None:
        """A token without a key id matches if there is only one key."""
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    async def _refresh(self) -> None:
        # One load at a time; requests that waited for it see its time stamp and return.
        async with self._lock:
            if self._tried_at is not None and _now() - self._tried_at < _MIN_RETRY_SECONDS:
                return
            self._tried_at = _now()
            try:
                self._keys = key_set(await self._load())
                self._loaded_at = _now()
            except (ThreadlineError, OSError):
                # The old keys stay in use: an issuer that is down must not lock out its users.
                log.warning("key set not loaded", exc_info=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
