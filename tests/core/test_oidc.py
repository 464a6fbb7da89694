"""Identity providers: settings that are refused, and what claims mean."""

from __future__ import annotations

from typing import Any

import pytest

from threadline.core.errors import SettingsInvalid
from threadline.core.oidc import NotAdmitted, OidcProvider, Person, check_providers, read_person
from threadline.core.sign_ins import SignInSettings

pytestmark = pytest.mark.req("K-08")
URL = SignInSettings(url="https://chat.example.com")


def provider(**more: Any) -> OidcProvider:
    return OidcProvider("https://login.example.com", "threadline", "secret", **more)


@pytest.mark.parametrize(
    ("providers", "sign_in", "is_authenticated", "fault"),
    [
        ({"a": provider()}, URL, False, "needs `authentication = true`"),
        ({"a": provider()}, SignInSettings(), True, "`sign_in.url` must be"),
        ({"A": provider()}, URL, True, "`oidc.A` must be named"),
        ({"link": provider()}, URL, True, "`oidc.link` must be named"),
        ({"a": OidcProvider("https://x.example", "id")}, URL, True, "set THREADLINE_OIDC__A__CLIENT_SECRET"),
        ({"a": provider(scopes=("email",))}, URL, True, "must contain openid"),
        ({"a": provider(roles={"x": "admin"})}, URL, True, "needs `role_claim`"),
        ({"a": provider(role=None)}, URL, True, "needs `role` or `role_claim`"),
        ({"a": provider(), "b": provider()}, URL, True, "`oidc.b.user_prefix` must differ"),
        ({"a": provider(), "b": provider(user_claim="email")}, URL, True, "`oidc.b.user_prefix` must differ"),
    ],
)
def test_settings_that_do_not_let_people_sign_in_safely_are_refused(
    providers: dict[str, OidcProvider], sign_in: SignInSettings, is_authenticated: bool, fault: str
) -> None:
    with pytest.raises(SettingsInvalid, match=fault):
        check_providers(providers, sign_in, is_authenticated=is_authenticated)


def test_useful_settings_are_accepted() -> None:
    check_providers({}, SignInSettings(), is_authenticated=False)
    several = {"a": provider(user_prefix="a:"), "b": provider(), "c": provider(user_prefix="c:")}
    check_providers(several, URL, is_authenticated=True)
    addresses = {"a": provider(user_claim="email"), "b": provider(user_claim="email")}
    check_providers(addresses, URL, is_authenticated=True)
    assert "secret" not in repr(provider())


@pytest.mark.parametrize(
    ("settings", "claims", "person"),
    [
        ({}, {"sub": "42", "name": "Ada"}, Person("local", "42", None, "Ada")),
        ({"user_prefix": "g:"}, {"sub": "42"}, Person("local", "g:42", None, None)),
        (
            {"user_claim": "email", "tenant": "acme"},
            {"sub": "1", "email": "Ada@Example.com", "email_verified": True},
            Person("acme", "ada@example.com", None, None),
        ),
        (
            {"role_claim": "realm.roles", "roles": {"boss": "admin", "reader": "viewer"}, "tenant_claim": "org"},
            {"sub": "1", "org": "acme", "realm": {"roles": ["reader", "boss", 7]}},
            Person("acme", "1", "admin", None),
        ),
        ({"role_claim": "roles", "roles": {"boss": "admin"}}, {"sub": "1"}, Person("local", "1", "member", None)),
        (
            {"allowed_domains": ("Example.com",), "allowed_groups": ("chat",)},
            {"sub": "1", "email": "a@example.com", "email_verified": "true", "groups": ["chat", "x"]},
            Person("local", "1", None, None),
        ),
    ],
)
def test_claims_say_who_signed_in(settings: dict[str, Any], claims: dict[str, Any], person: Person) -> None:
    assert read_person(provider(**settings), claims, "local") == person


@pytest.mark.parametrize(
    ("settings", "claims"),
    [
        ({}, {"sub": "system"}),
        ({}, {"sub": 42}),
        ({}, {"sub": ""}),
        ({}, {"sub": "a\x00b"}),
        ({"user_claim": "email"}, {"sub": "1", "email": "root@example.com"}),
        ({"user_claim": "email"}, {"sub": "1", "email": "root@example.com", "email_verified": False}),
        ({"tenant_claim": "org"}, {"sub": "1"}),
        ({"tenant_claim": "org"}, {"sub": "1", "org": "../other"}),
        ({"role": None, "role_claim": "roles", "roles": {"boss": "admin"}}, {"sub": "1", "roles": ["admin"]}),
        ({"allowed_groups": ("chat",)}, {"sub": "1", "groups": "chats"}),
        ({"allowed_domains": ("example.com",)}, {"sub": "1", "email": "a@example.com"}),
        (
            {"allowed_domains": ("example.com",)},
            {"sub": "1", "email": "a@example.com.evil.example", "email_verified": True},
        ),
        ({"allowed_domains": ("example.com",)}, {"sub": "1", "email": "a@notexample.com", "email_verified": True}),
    ],
)
def test_others_are_not_admitted(settings: dict[str, Any], claims: dict[str, Any]) -> None:
    with pytest.raises(NotAdmitted):
        read_person(provider(**settings), claims, "local")
