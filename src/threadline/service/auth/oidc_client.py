"""The requests to one identity provider: discovery, exchange of a code, and checks of the ID token.

Discovery and keys are kept for ten minutes. PyJWT checks signature, issuer, audience and times with the provider's
published keys; nonce and `azp` are checked here. Every request has a timeout, follows no redirect and
reads a bounded reply, so that a provider that is down or hostile costs a sign-in and nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from base64 import b64encode, urlsafe_b64encode
from typing import Any
from urllib.parse import quote, urlencode

import jwt

from threadline.core import jsontext
from threadline.core.errors import ExtraMissing, ThreadlineError
from threadline.core.oidc import OidcProvider
from threadline.service.auth.identity_providers import ProviderMetadata, ProviderUnavailable, SignInRefused
from threadline.service.auth.jwt_keys import KeySet
from threadline.service.auth.jwt_reader import INVALID, is_safe_url

try:
    import httpx2
except ModuleNotFoundError as exc:
    raise ExtraMissing("oidc", "sign-in at an identity provider") from exc

_TIMEOUT = httpx2.Timeout(5.0)
# Of one request, in whatever pieces the reply comes: a person waits for it.
_TOTAL_SECONDS = 10.0
_MAX_BYTES = 1_048_576
_REFRESH_SECONDS = 600.0
_LEEWAY_SECONDS = 60.0


class OidcClient:
    def __init__(self, settings: OidcProvider, redirect_uri: str) -> None:
        self.settings = settings
        self._redirect_uri = redirect_uri
        self._http = httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False)
        self._metadata: ProviderMetadata | None = None
        self._loaded_at = 0.0
        self._keys: KeySet | None = None
        # People who sign in at the same time must not each load the metadata.
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        await self._http.aclose()

    async def authorization_url(self, state: str, nonce: str, verifier: str) -> str:
        """Where the browser is sent. ProviderUnavailable."""
        metadata = await self.metadata()
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(self.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in metadata.authorization_endpoint else "?"
        return metadata.authorization_endpoint + joint + urlencode(query)

    async def claims(self, code: str, verifier: str, nonce: str) -> dict[str, Any]:
        """What the provider says about the person who signed in. ProviderUnavailable, SignInRefused."""
        metadata = await self.metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        headers = {"Accept": "application/json"}
        if metadata.takes_basic:
            headers["Authorization"] = _basic(self.settings)
        else:
            form |= {"client_id": self.settings.client_id, "client_secret": self.settings.client_secret}
        reply = await self._send("POST", metadata.token_endpoint, headers, form)
        claims = await self._check_id_token(str(reply.get("id_token", "")), nonce)
        missing = self.settings.needed_claims - claims.keys()
        access_token = reply.get("access_token")
        if missing and metadata.userinfo_endpoint is not None and isinstance(access_token, str):
            headers = {"Accept": "application/json", "Authorization": f"Bearer {access_token}"}
            more = await self._send("GET", metadata.userinfo_endpoint, headers)
            if more.get("sub") != claims["sub"]:
                raise SignInRefused("userinfo is about another person")
            claims = {**more, **claims}
        return claims

    async def metadata(self) -> ProviderMetadata:
        """ProviderUnavailable."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._metadata is None or now - self._loaded_at >= _REFRESH_SECONDS:
                found = await self._discover()
                if self._metadata is None or found.jwks_uri != self._metadata.jwks_uri:
                    self._keys = KeySet(self._load_keys)
                self._metadata, self._loaded_at = found, now
            return self._metadata

    async def _discover(self) -> ProviderMetadata:
        issuer = self.settings.issuer
        found = await self._send("GET", issuer.rstrip("/") + "/.well-known/openid-configuration", {})
        if found.get("issuer") != issuer:
            raise ProviderUnavailable(f"discovery names the issuer {str(found.get('issuer'))[:200]!r}")
        endpoints = [found.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
        userinfo = found.get("userinfo_endpoint")
        if not all(isinstance(url, str) and is_safe_url(url) for url in (*endpoints, userinfo or issuer)):
            raise ProviderUnavailable("discovery lacks an endpoint, or names one without https")
        authorization, token, jwks = map(str, endpoints)
        methods = found.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        takes_basic = not isinstance(methods, list) or "client_secret_basic" in methods
        names_issuer = found.get("authorization_response_iss_parameter_supported") is True
        return ProviderMetadata(authorization, token, userinfo, jwks, names_issuer, takes_basic)

    async def _load_keys(self) -> bytes:
        assert self._metadata is not None
        return (await self._reply("GET", self._metadata.jwks_uri, {}))[1]

    async def _check_id_token(self, text: str, nonce: str) -> dict[str, Any]:
        assert self._keys is not None
        client_id = self.settings.client_id
        try:
            key = await self._keys.find(jwt.get_unverified_header(text).get("kid"))
            if key is None:
                raise SignInRefused("the ID token is signed with an unknown key")
            claims: dict[str, Any] = jwt.decode(
                text,
                key.value,
                algorithms=list(key.algorithms),
                issuer=self.settings.issuer,
                audience=client_id,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except INVALID as exc:
            raise SignInRefused(f"the ID token is not valid: {exc}") from exc
        except ThreadlineError as exc:
            raise ProviderUnavailable("the provider's keys cannot be loaded") from exc
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise SignInRefused("the ID token has another nonce")
        is_for_several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if (is_for_several or "azp" in claims) and claims.get("azp") != client_id:
            raise SignInRefused("the ID token was issued to another client")
        return claims

    async def _send(
        self, method: str, url: str, headers: dict[str, str], form: dict[str, str] | None = None
    ) -> dict[str, Any]:
        status, body = await self._reply(method, url, headers, form)
        try:
            value = jsontext.parse(body)
        except ThreadlineError as exc:
            raise ProviderUnavailable(f"{url} answered {status} without JSON") from exc
        if form is not None and status in (400, 401) and isinstance(value, dict):
            # OAuth's own error: the code was used, has expired, or the client's secret is wrong.
            raise SignInRefused(f"the provider refused the code: {str(value.get('error'))[:200]}")
        if status != 200 or not isinstance(value, dict):
            raise ProviderUnavailable(f"{url} answered {status}")
        return value

    async def _reply(
        self, method: str, url: str, headers: dict[str, str], form: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        body = bytearray()
        try:
            # In all, because each piece of a slow reply renews the timeout of the client.
            async with (
                asyncio.timeout(_TOTAL_SECONDS),
                self._http.stream(method, url, headers=headers, data=form) as reply,
            ):
                async for piece in reply.aiter_bytes():
                    body += piece
                    if len(body) > _MAX_BYTES:
                        raise ProviderUnavailable(f"{url} answered more than {_MAX_BYTES} bytes")
                return reply.status_code, bytes(body)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as exc:
            raise ProviderUnavailable(f"{url} cannot be reached: {type(exc).__name__} {exc}") from exc


def _basic(provider: OidcProvider) -> str:
    # Both are form-encoded first (RFC 6749, 2.3.1).
    pair = f"{quote(provider.client_id, safe='')}:{quote(provider.client_secret, safe='')}"
    return "Basic " + b64encode(pair.encode()).decode()
