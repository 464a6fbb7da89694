"""JWTs of an external issuer, read as scopes.

PyJWT checks signature, issuer, audience and times, with the algorithms of the found key only. A token must expire.
Tenant, user and role come from the claims that the settings name; unknown roles are ignored, so that they never grant
more than the default role.
"""

from __future__ import annotations

import asyncio
import ipaddress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import jwt

from threadline.core.access import TOKEN_ROLES, TokenRole
from threadline.core.errors import InvalidName, SettingsInvalid
from threadline.core.oidc import claim
from threadline.core.threads import SYSTEM_USER, Scope
from threadline.service.auth.jwt_keys import Keys, KeySet, Load, OneKey, public_key, secret_key
from threadline.settings import JwtSettings

# A request waits while the key set is loaded, so a slow issuer must fail soon.
_FETCH_TIMEOUT_SECONDS = 5.0
# A key set has a few kilobytes; the limit protects against a wrong URL.
_MAX_KEY_SET_BYTES = 1_048_576
INVALID = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)
"""What a text that is not a JWT may raise: before the signature is checked, its header is arbitrary JSON."""


class JwtReader:
    def __init__(self, settings: JwtSettings, keys: Keys) -> None:
        self._settings = settings
        self._keys = keys

    async def read(self, text: str) -> Scope | None:
        """None for an invalid token."""
        try:
            key = await self._keys.find(jwt.get_unverified_header(text).get("kid"))
            if key is None:
                return None
            claims = jwt.decode(
                text,
                key.value,
                algorithms=list(key.algorithms),
                issuer=self._settings.issuer,
                audience=self._settings.audience,
                leeway=self._settings.leeway_seconds,
                options={"require": ["exp"], "verify_aud": self._settings.audience is not None},
            )
        except INVALID:
            return None
        return self._scope(claims)

    def _scope(self, claims: dict[str, Any]) -> Scope | None:
        tenant_id = claim(claims, self._settings.tenant_claim) or self._settings.tenant
        user_id = claim(claims, self._settings.user_claim)
        role = role_of(claim(claims, self._settings.role_claim)) or self._settings.role
        if not isinstance(tenant_id, str) or not isinstance(user_id, str) or role is None:
            return None
        if user_id == SYSTEM_USER:
            return None
        try:
            return Scope(tenant_id, user_id, role)
        except InvalidName:
            return None


def role_of(claimed: Any) -> TokenRole | None:
    """The highest known role; the claim may be a string or a list."""
    roles = claimed if isinstance(claimed, list) else [claimed]
    return next((role for role in reversed(TOKEN_ROLES) if role in roles), None)


def jwt_reader(settings: JwtSettings) -> JwtReader:
    """SettingsInvalid unless the settings name exactly one usable key."""
    given = [kind for kind in ("secret", "public_key_file", "jwks") if getattr(settings, kind) is not None]
    if len(given) != 1:
        raise SettingsInvalid(
            f"service.jwt must have one of secret, public_key_file and jwks, got {' and '.join(given) or 'none'}"
        )
    return JwtReader(settings, _keys(settings))


def _keys(settings: JwtSettings) -> Keys:
    if settings.secret is not None:
        return OneKey(secret_key(settings.secret))
    if settings.public_key_file is not None:
        return OneKey(public_key(_read(settings.public_key_file)))
    assert settings.jwks is not None
    return KeySet(_loader(settings.jwks))


def _read(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as exc:
        raise SettingsInvalid(f"{path} cannot be read: {exc.strerror}") from exc


def _loader(place: str) -> Load:
    if "://" not in place:
        # Read once now, so that a wrong path fails at the start and not with the first request.
        _read(place)
        return lambda: asyncio.to_thread(_read, place)
    if not is_safe_url(place):
        raise SettingsInvalid("service.jwt.jwks must start with https://, except on this machine")
    return lambda: asyncio.to_thread(_fetch, place)


def is_safe_url(url: str) -> bool:
    """Whether it is https, or on this machine."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        return parts.scheme == "https" and bool(parts.hostname)
    try:
        return parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


class _NoRedirects(HTTPRedirectHandler):
    """A redirect could point to keys of someone else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetch(url: str) -> bytes:
    request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - the scheme was checked
    try:
        with build_opener(_NoRedirects).open(request, timeout=_FETCH_TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read(_MAX_KEY_SET_BYTES + 1)
    except HTTPException as exc:
        raise URLError("response is not HTTP") from exc
    if len(body) > _MAX_KEY_SET_BYTES:
        raise URLError(f"key set has more than {_MAX_KEY_SET_BYTES} bytes")
    return body
