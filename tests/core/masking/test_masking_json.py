"""Masking of structured values: strings, keys, and values under names such as `password`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.masking.secret_samples import BODY, LOOK_ALIKES, SECRETS
from threadline.core.masking import SecretMasker

MASKER = SecretMasker()
TOKEN = f"ghp_{BODY}"

TELLING = {
    "password": [
        "password",
        "Password",
        "db_password",
        "userPassword",
        "DB-PASSWD",
        "db_pwd",
        "userPwd",
        "passphrase",
        "passwords",
    ],
    "secret": ["secret", "client_secret", "clientSecret", "CLIENT-SECRET", "SecretString"],
    "token": ["token", "access_token", "refreshToken", "X-Auth-Token", "id_token", "bot token", "token_1"],
    "api-key": ["api_key", "apiKey", "API-KEY", "X-Api-Key", "x.api.key", "private_key", "AWS_SECRET_ACCESS_KEY"],
    "authorization": ["authorization", "Authorization", "Proxy-Authorization"],
    "cookie": ["cookie", "Set-Cookie", "cookies"],
}
OTHER_NAMES = [
    *("token_count", "max_tokens", "tokens", "usage", "prompt_tokens", "tokenizer", "token_type", "key", "keys"),
    *("public_key", "primary_key", "nextPageToken", "page_token", "continuation_token", "eos_token", "stop_token"),
    *("password_policy", "password_reset_url", "secretary", "cookie_policy", "author", "keyboard", "monkey", "pwd", ""),
]


@pytest.mark.req("S1-21")
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in TELLING.items() for name in names])
def test_a_value_is_masked_by_its_name(kind: str, name: str) -> None:
    value = {"a": [{name: "any words at all", "b": 1}]}
    assert MASKER.mask_json(value) == {"a": [{name: f"[masked:{kind}]", "b": 1}]}
    assert MASKER.may_hold(json.dumps(value).encode())


@pytest.mark.req("S1-21")
@pytest.mark.parametrize("name", OTHER_NAMES)
def test_values_under_other_names_are_not_masked(name: str) -> None:
    value = {"a": [{name: "any words at all", "b": 1}]}
    assert MASKER.mask_json(value) is value
    assert not MASKER.may_hold(json.dumps(value).encode())


@pytest.mark.req("S1-21")
@pytest.mark.parametrize(("kind", "before", "secret", "after"), SECRETS)
def test_a_secret_is_found_in_any_string(kind: str, before: str, secret: str, after: str) -> None:
    value = {"x": {"y": [1, None, before + secret + after]}}
    kept = json.dumps(value)
    assert MASKER.mask_json(value) == {"x": {"y": [1, None, f"{before}[masked:{kind}]{after}"]}}
    assert json.dumps(value) == kept
    for ensure_ascii in (True, False):
        assert MASKER.may_hold(json.dumps(value, ensure_ascii=ensure_ascii).encode())


@pytest.mark.parametrize("text", [text for text in LOOK_ALIKES if '"' not in text])
def test_a_look_alike_is_recognised_in_raw_json(text: str) -> None:
    # A name that tells right before a quote could be a key, so it would be looked at.
    assert not MASKER.may_hold(json.dumps([f"{text} and so on"], ensure_ascii=False).encode())


@pytest.mark.parametrize("value", [None, True, False, "", "[masked:password]", {}, []])
def test_empty_values_and_masks_under_a_secret_name_are_unchanged(value: Any) -> None:
    given = {"password": value}
    assert MASKER.mask_json(given) is given


def test_numbers_are_masked_where_they_can_be_a_password() -> None:
    assert MASKER.mask_json({"password": 1234, "token": 1234, "db_pwd": 1.5}) == {
        "password": "[masked:password]",
        "token": 1234,
        "db_pwd": "[masked:password]",
    }


def test_everything_below_a_secret_name_is_masked() -> None:
    given = {"secrets": {"user": "bob", "list": ["a", {"x": "b"}], "count": 2}}
    masked = "[masked:secret]"
    assert MASKER.mask_json(given) == {"secrets": {"user": masked, "list": [masked, {"x": masked}], "count": 2}}


def test_a_schema_that_describes_a_password_is_unchanged() -> None:
    schema = {"properties": {"password": {"type": "string", "description": "what you type"}}, "required": ["password"]}
    assert MASKER.mask_json(schema) is schema


def test_a_value_is_masked_by_the_name_beside_it() -> None:
    headers = [{"name": "Authorization", "value": "Basic x"}, {"name": "Accept", "value": "*/*"}]
    assert MASKER.mask_json(headers) == [
        {"name": "Authorization", "value": "[masked:authorization]"},
        {"name": "Accept", "value": "*/*"},
    ]
    assert MASKER.may_hold(json.dumps(headers).encode())


def test_secrets_in_keys_are_masked_and_no_entry_is_lost() -> None:
    other = f"gho_{BODY}"
    given = {TOKEN: 1, other: 2, "[masked:github-token]": 3, "plain": 4}
    masked = MASKER.mask_json(given)
    assert list(masked.values()) == [1, 2, 3, 4]
    assert set(masked) == {
        "[masked:github-token]",
        "[masked:github-token] 2",
        "[masked:github-token] 3",
        "plain",
    }
    assert MASKER.mask_json(masked) is masked


def test_only_values_with_secrets_are_copied() -> None:
    clean = {"deep": ["untouched"]}
    given = {"clean": clean, "text": TOKEN}
    masked = MASKER.mask_json(given)
    assert masked["clean"] is clean
    assert given["text"] == TOKEN


def test_a_value_too_deep_to_be_stored_does_not_break_masking() -> None:
    deep: Any = TOKEN
    for _ in range(5_000):
        deep = [deep]
    assert MASKER.mask_json(deep) is deep
