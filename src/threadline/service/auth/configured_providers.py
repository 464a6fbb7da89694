"""The identity providers that the settings name."""

from __future__ import annotations

from threadline.core.errors import SettingsInvalid
from threadline.core.oidc import check_providers
from threadline.service.auth.identity_providers import IdentityProvider
from threadline.service.auth.jwt_reader import is_safe_url
from threadline.settings import ServiceSettings, Settings


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
