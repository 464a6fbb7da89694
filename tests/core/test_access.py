"""Tokens as texts and as values."""

from __future__ import annotations

import datetime as dt

import pytest

from threadline.core.access import ApiToken, make_token, parse_token
from threadline.core.errors import InvalidName


def test_the_text_of_a_token_is_read_to_the_letter() -> None:
    text = make_token("acme-2")
    read = parse_token(text)
    assert read is not None
    assert read.tenant_id == "acme-2"
    upper = text[:-64] + text[-64:].upper()
    for wrong in (text + "0", text[:-1], f" {text}", text + "\n", text.replace("acme", "ACME"), upper, "", "tl__", "é"):
        assert wrong == text or parse_token(wrong) is None
    with pytest.raises(InvalidName):
        make_token("ACME")


def test_a_token_works_until_its_end() -> None:
    end = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    token = ApiToken("t", "ada", "laptop", "member", end, expires_at=end)
    assert token.is_valid(end - dt.timedelta(microseconds=1))
    assert not token.is_valid(end)
