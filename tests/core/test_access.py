"""API tokens: their text, and their validity."""

from __future__ import annotations

import datetime as dt

import pytest

from threadline.core.access import ApiToken, make_token, parse_token
from threadline.core.errors import InvalidName


def test_only_an_exact_token_is_parsed() -> None:
    text = make_token("acme-2")
    read = parse_token(text)
    assert read is not None
    assert read.tenant_id == "acme-2"
    upper = text[:-64] + text[-64:].upper()
    for wrong in (text + "0", text[:-1], f" {text}", text + "\n", text.replace("acme", "ACME"), upper, "", "tl__", "é"):
        assert wrong == text or parse_token(wrong) is None
    with pytest.raises(InvalidName):
        make_token("ACME")


def test_a_token_is_valid_until_it_expires() -> None:
    end = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    token = ApiToken("t", "ada", "laptop", "member", end, expires_at=end)
    assert token.is_valid(end - dt.timedelta(microseconds=1))
    assert not token.is_valid(end)
