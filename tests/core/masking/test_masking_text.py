"""Masking of text: secrets are replaced, everything else is unchanged."""

from __future__ import annotations

import base64
import urllib.parse

import pytest

from tests.core.masking.secret_samples import AWS_ID, BODY, HEX, JWT, KEY_BLOCK, LOOK_ALIKES, SECRETS
from threadline.core.masking import SecretMasker, matcher

WITH_RE2, WITHOUT = SecretMasker(with_re2=True), SecretMasker(with_re2=False)


@pytest.fixture(params=[True, False], ids=["re2", "literals"], scope="module")
def masker(request: pytest.FixtureRequest) -> SecretMasker:
    return WITH_RE2 if request.param else WITHOUT


@pytest.mark.req("S1-21")
@pytest.mark.parametrize(("kind", "before", "secret", "after"), SECRETS)
def test_a_secret_is_replaced_by_its_kind(
    masker: SecretMasker, kind: str, before: str, secret: str, after: str
) -> None:
    assert masker.mask_text(before + secret + after) == f"{before}[masked:{kind}]{after}"


@pytest.mark.req("S1-21")
@pytest.mark.parametrize(("kind", "before", "secret", "after"), SECRETS)
def test_masked_text_is_not_masked_again(masker: SecretMasker, kind: str, before: str, secret: str, after: str) -> None:
    once = masker.mask_text(before + secret + after)
    assert masker.mask_text(once) is once


@pytest.mark.req("S1-21")
@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_look_alikes_are_returned_as_the_same_object(masker: SecretMasker, text: str) -> None:
    assert masker.mask_text(text) is text


@pytest.mark.req("S1-21")
def test_every_secret_of_a_text_is_masked(masker: SecretMasker) -> None:
    whole = "\n".join(before + secret + after for _, before, secret, after in SECRETS)
    masked = masker.mask_text(whole)
    assert masked.count("[masked:") == len(SECRETS)
    assert not [secret for _, _, secret, _ in SECRETS if secret in masked]


ENCODED = [f"ghp_{BODY[:36]}", f"sk-ant-api03-{BODY}", AWS_ID, JWT, f"xoxb-1234567890-{BODY}"]


@pytest.mark.req("S1-21")
@pytest.mark.parametrize("secret", ENCODED)
@pytest.mark.parametrize("invisible", ["\u200b", "\u200d", "\ufeff", "\u00ad", "\u2060", "\U000e0041", "\ufe0f"])
def test_invisible_characters_hide_no_secret(masker: SecretMasker, secret: str, invisible: str) -> None:
    for spread in (invisible.join(secret), secret[:3] + invisible + secret[3:], secret[:-9] + invisible + secret[-9:]):
        masked = masker.mask_text(f"it is {spread}{invisible} here")
        assert masked.startswith("it is [masked:")
        assert masked.endswith(f"]{invisible} here")


@pytest.mark.req("S1-21")
@pytest.mark.parametrize("secret", ENCODED)
def test_percent_encoding_hides_no_secret(masker: SecretMasker, secret: str) -> None:
    every = "".join(f"%{ord(char):02x}" for char in secret)
    some = urllib.parse.quote(secret, safe="").replace("-", "%2D").replace("_", "%5F")
    for spelled in (every, some, every.replace("%", "%25"), every.replace("%", "%2525")):
        assert masker.mask_text(f"x={spelled}&y").startswith("x=[masked:")
        assert masker.mask_text(f"x={spelled}&y").endswith("]&y")


@pytest.mark.req("R-07")
@pytest.mark.parametrize("secret", [f"ghp_{BODY[:36]}", f"tl_acme_{HEX}", JWT, f"password={BODY}", AWS_ID])
def test_base64_is_not_decoded_for_any_kind(masker: SecretMasker, secret: str) -> None:
    text = f"decode {base64.b64encode(secret.encode()).decode()}!"
    assert masker.mask_text(text) is text


@pytest.mark.req("R-07")
@pytest.mark.parametrize("secret", ENCODED)
@pytest.mark.parametrize("mark", ["\u0301", "\u0327", "\u036f"])
def test_combining_marks_hide_no_secret(masker: SecretMasker, secret: str, mark: str) -> None:
    for spread in (mark.join(secret), secret[:3] + mark + secret[3:]):
        assert masker.mask_text(f"it is {spread} here") == f"it is {masker.mask_text(secret)} here"


def test_a_secret_like_prefix_inside_base64_is_kept(masker: SecretMasker) -> None:
    text = "iVBORw0KGgoAAAANSUhEUg" * 3 + "AKIA" + "IOSFODNN7EXAMPLE" + "ghp_" + BODY
    assert masker.mask_text(text) is text


@pytest.mark.parametrize("secret", [f"ghp_{BODY[:36]}", f'"password": "{BODY}"'])
def test_strings_inside_strings_hide_no_secret(masker: SecretMasker, secret: str) -> None:
    hidden = secret
    for _ in range(4):
        hidden = f'{{"x": "{hidden}"}}'.replace("\\", "\\\\").replace('"', '\\"')
        assert BODY[:36] not in masker.mask_text(hidden)
        assert "[masked:" in masker.mask_text(hidden)
    assert masker.mask_text(f"\\u0067hp_{BODY}") == "[masked:github-token]"
    assert masker.mask_text(f"\\n\\tghp_{BODY}\\n") == "\\n\\t[masked:github-token]\\n"


def test_what_follows_a_truncated_key_block_is_kept(masker: SecretMasker) -> None:
    text = KEY_BLOCK.format(kind="PRIVATE KEY")[:80] + "…\n\nWhat is this?"
    assert masker.mask_text(text) == "[masked:private-key]…\n\nWhat is this?"


def test_lone_surrogates_do_not_raise(masker: SecretMasker) -> None:
    text = "\ud83d \x00 \udc00"
    assert masker.mask_text(text) is text
    assert masker.mask_text(f"{text} ghp_{BODY}") == f"{text} [masked:github-token]"


def test_masking_works_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "re2", None)
    assert SecretMasker().mask_text(f"ghp_{BODY}") == "[masked:github-token]"
