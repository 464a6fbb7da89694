"""Identity providers, as the sign-in routes use them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from threadline.core.oidc import OidcProvider


class ProviderUnavailable(OSError):
    """The provider cannot be reached, or its reply is not usable. The text is for the log."""


class SignInRefused(Exception):
    """The provider refused the code, or its ID token is not valid for this sign-in. The text is for the log."""


class ProviderMetadata(NamedTuple):
    """What discovery says."""

    authorization_endpoint: str
    token_endpoint: str
    userinfo_endpoint: str | None
    jwks_uri: str
    names_issuer: bool
    """Whether responses to the browser contain `iss`, which then must be there."""
    takes_basic: bool


class IdentityProvider(Protocol):
    settings: OidcProvider

    async def metadata(self) -> ProviderMetadata:
        """ProviderUnavailable."""
        ...

    async def authorization_url(self, state: str, nonce: str, verifier: str) -> str:
        """Where the browser is sent. ProviderUnavailable."""
        ...

    async def claims(self, code: str, verifier: str, nonce: str) -> dict[str, Any]:
        """What the provider says about the person who signed in. ProviderUnavailable, SignInRefused."""
        ...

    async def close(self) -> None: ...
