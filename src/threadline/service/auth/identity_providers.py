"""The identity providers of the settings, as the sign-in routes use them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from threadline.core.errors import SettingsInvalid
from threadline.core.oidc import OidcProvider, check_providers
from threadline.service.auth.jwt_reader import is_safe_url
from threadline.settings import ServiceSettings, Settings


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


def open_providers(settings: Settings, service: ServiceSettings) -> dict[str, IdentityProvider]:
    """SettingsInvalid. ExtraMissing if there is a provider and the client's library is not installed."""
    check_providers(settings.oidc, settings.sign_in, is_authenticated=service.requires_authentication)
    if not settings.oidc:
        return {}
    for name, provider in settings.oidc.items():
        if not is_safe_url(provider.issuer):
            raise SettingsInvalid(f"`oidc.{name}.issuer` must start with https://, except on this machine")
    from threadline.service.auth.oidc_client import OidcClient  # noqa: PLC0415 - an extra

    url = settings.sign_in.url.rstrip("/")
    return {name: OidcClient(provider, f"{url}/sign-in/{name}/callback") for name, provider in settings.oidc.items()}
