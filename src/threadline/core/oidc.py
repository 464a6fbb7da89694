"""Settings of an identity provider, `[oidc.NAME]`, and what its claims about a person mean here. No I/O.

A person is admitted only if the claims say so: their tenant, their user id and role, and, if the settings ask for it, a
verified address in an allowed domain and an allowed group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any, NamedTuple

import msgspec

from threadline.core.access import TOKEN_ROLES, TokenRole
from threadline.core.errors import InvalidName, SettingsInvalid, quote
from threadline.core.ids import check_tenant_id, check_user_id
from threadline.core.sign_ins import LINK, SignInSettings
from threadline.core.threads import SYSTEM_USER

PROVIDER_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?", re.ASCII)
_NAME_LENGTH = 100


class OidcProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One identity provider. A claim can be a path, such as `realm_access.roles`. `user_prefix` is put before user
    ids. `roles` maps values of `role_claim` to roles; without `role_claim` a user keeps the role they have here, and a
    new one gets `role`. Without `role` only people whom the claim gives a role are admitted."""

    issuer: str
    client_id: str
    client_secret: str = ""
    title: str = ""
    scopes: tuple[str, ...] = ("openid", "email", "profile")
    tenant: str | None = None
    tenant_claim: str | None = None
    user_claim: str = "sub"
    user_prefix: str = ""
    name_claim: str = "name"
    role: TokenRole | None = "member"
    role_claim: str | None = None
    roles: dict[str, TokenRole] = {}
    groups_claim: str = "groups"
    allowed_domains: tuple[str, ...] = ()
    allowed_groups: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<identity provider {self.issuer}>"

    @property
    def needed_claims(self) -> frozenset[str]:
        """The claims that decide; what the ID token lacks of them is asked from the provider."""
        needed = {self.user_claim, self.name_claim, self.role_claim, self.tenant_claim}
        if self.allowed_domains or self.user_claim == "email":
            needed |= {"email", "email_verified"}
        if self.allowed_groups:
            needed.add(self.groups_claim)
        return frozenset(name for name in needed if name)


class Person(NamedTuple):
    """Who signed in. `role` is None if the claims do not decide it."""

    tenant_id: str
    user_id: str
    role: TokenRole | None
    display_name: str | None


class NotAdmitted(Exception):
    """The claims do not admit the person; the text says why, for the log."""


def check_providers(providers: Mapping[str, OidcProvider], sign_in: SignInSettings, *, is_authenticated: bool) -> None:
    """SettingsInvalid, with the key, if people could not sign in, or could become another user."""
    if not providers:
        return
    if not is_authenticated:
        raise SettingsInvalid("`oidc` needs `authentication = true` under [service]: without it nobody has to sign in")
    if not sign_in.url:
        raise SettingsInvalid(
            "`sign_in.url` must be the address of the service in browsers, such as https://chat.example.com: identity "
            "providers send people back to it"
        )
    for name, provider in providers.items():
        _check_provider(name, provider)
    for (one, first), (other, second) in combinations(providers.items(), 2):
        same_ids = first.user_prefix == second.user_prefix and not first.user_claim == second.user_claim == "email"
        if same_ids:
            raise SettingsInvalid(
                f"`oidc.{other}.user_prefix` must differ from that of `oidc.{one}`: two providers may use the same id "
                "for different people"
            )


def _check_provider(name: str, provider: OidcProvider) -> None:
    if not PROVIDER_NAME.fullmatch(name) or name == LINK:
        raise SettingsInvalid(
            f"`oidc.{name}` must be named with 1–32 small letters, digits and hyphens, and not {LINK!r}"
        )
    if not provider.client_secret:
        raise SettingsInvalid(
            f"`oidc.{name}.client_secret` is missing: set THREADLINE_OIDC__{name.upper()}__CLIENT_SECRET"
        )
    if "openid" not in provider.scopes:
        raise SettingsInvalid(f"`oidc.{name}.scopes` must contain openid, got {quote(' '.join(provider.scopes))}")
    if provider.role_claim is None and provider.roles:
        raise SettingsInvalid(f"`oidc.{name}.roles` needs `role_claim`: the claim whose values it maps")
    if provider.role_claim is None and provider.role is None:
        raise SettingsInvalid(f"`oidc.{name}` needs `role` or `role_claim`: otherwise nobody is admitted")
    if provider.tenant is not None:
        check_tenant_id(provider.tenant)


def read_person(provider: OidcProvider, claims: Mapping[str, Any], default_tenant: str) -> Person:
    """NotAdmitted."""
    _check_domain(provider, claims)
    if provider.allowed_groups:
        groups = as_list(claim(claims, provider.groups_claim))
        if not set(groups) & set(provider.allowed_groups):
            raise NotAdmitted("none of the groups is in `allowed_groups`")
    tenant_id: Any = provider.tenant or default_tenant
    if provider.tenant_claim is not None:
        tenant_id = claim(claims, provider.tenant_claim)
    user_id = claim(claims, provider.user_claim)
    if not isinstance(tenant_id, str) or not isinstance(user_id, str) or not user_id:
        raise NotAdmitted("a claim for tenant or user is missing or is not text")
    if provider.user_claim == "email":
        _check_verified(claims)
        user_id = user_id.lower()
    try:
        check_tenant_id(tenant_id)
        if check_user_id(provider.user_prefix + user_id) == SYSTEM_USER:
            raise NotAdmitted(f"user id {SYSTEM_USER!r} is reserved")
    except InvalidName as exc:
        raise NotAdmitted(str(exc)) from exc
    name = claim(claims, provider.name_claim)
    display_name = name.strip()[:_NAME_LENGTH] if isinstance(name, str) and name.strip() else None
    return Person(tenant_id, provider.user_prefix + user_id, _role(provider, claims), display_name)


def _check_domain(provider: OidcProvider, claims: Mapping[str, Any]) -> None:
    if not provider.allowed_domains:
        return
    _check_verified(claims)
    domain = str(claims.get("email", "")).rpartition("@")[2].lower()
    if domain not in {allowed.lower() for allowed in provider.allowed_domains}:
        raise NotAdmitted("the domain of the address is not in `allowed_domains`")


def _check_verified(claims: Mapping[str, Any]) -> None:
    # Some providers send it as text. Without it people could claim addresses of others.
    if claims.get("email_verified") not in (True, "true"):
        raise NotAdmitted("the provider does not say that the address is verified")


def _role(provider: OidcProvider, claims: Mapping[str, Any]) -> TokenRole | None:
    if provider.role_claim is None:
        return None
    values = as_list(claim(claims, provider.role_claim))
    found = {provider.roles[value] for value in values if value in provider.roles}
    role = next((role for role in reversed(TOKEN_ROLES) if role in found), provider.role)
    if role is None:
        raise NotAdmitted("no value of `role_claim` is in `roles`")
    return role


def as_list(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [each for each in listed if isinstance(each, str)]


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of this name, else the name read as a dotted path."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for step in name.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return found
