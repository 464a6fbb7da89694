"""Masking of streamed text: no secret passes between two chunks, with the least possible delay."""

from __future__ import annotations

import pytest

from tests.core.masking.secret_samples import BODY, KEY_BLOCK, LOOK_ALIKES, SECRETS
from threadline.core.masking import SecretMasker

MASKER = SecretMasker()
PROSE = (
    "The tokens of a language model are pieces of words; a key-value store keeps them apart. Ask the task force "
    "about passwords, secrets and cookies: they will tell you that https://example.com/a/b?c=d is fine. "
) * 5


@pytest.mark.req("S1-21")
@pytest.mark.parametrize(("kind", "before", "secret", "after"), SECRETS)
def test_no_split_lets_a_secret_through(kind: str, before: str, secret: str, after: str) -> None:
    whole = f"a {before}{secret}{after} b"
    masked = MASKER.mask_text(whole)
    for cut in range(len(whole) + 1):
        stream = MASKER.stream()
        assert stream.feed(whole[:cut]) + stream.feed(whole[cut:]) + stream.flush() == masked


@pytest.mark.req("S1-21")
@pytest.mark.parametrize(("kind", "before", "secret", "after"), SECRETS)
def test_no_part_of_a_secret_is_shown_while_streaming(kind: str, before: str, secret: str, after: str) -> None:
    stream = MASKER.stream()
    masked = f"a {before}[masked:{kind}]{after}"
    shown = ""
    for char in f"a {before}{secret}{after}":
        shown += stream.feed(char)
        assert masked.startswith(shown)
    assert shown + stream.flush() == masked


@pytest.mark.parametrize("size", [1, 3, 20])
def test_prose_is_hardly_delayed(size: int) -> None:
    stream = MASKER.stream()
    shown = 0
    behind = []
    for at in range(0, len(PROSE), size):
        shown += len(stream.feed(PROSE[at : at + size]))
        behind.append(min(at + size, len(PROSE)) - shown)
    assert max(behind) <= 40
    assert sum(behind) / len(behind) < 6
    assert shown + len(stream.flush()) == len(PROSE)


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_other_text_is_unchanged(text: str) -> None:
    stream = MASKER.stream()
    assert "".join(map(stream.feed, text)) + stream.flush() == text


def test_a_long_secret_is_masked_immediately_and_dropped() -> None:
    stream = MASKER.stream()
    shown = stream.feed(f"it is ghp_{BODY}")
    assert shown == "it is [masked:github-token]"
    assert [stream.feed("x" * 1000) for _ in range(100)] == [""] * 100
    assert stream.feed(". Bye") + stream.flush() == ". Bye"


def test_a_long_key_block_is_dropped_line_by_line() -> None:
    lines = [KEY_BLOCK.format(kind="RSA PRIVATE KEY").splitlines()[1]] * 500
    text = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----", "thanks"])
    stream = MASKER.stream()
    shown = [stream.feed(text[at : at + 7]) for at in range(0, len(text), 7)]
    assert "".join(shown) + stream.flush() == "[masked:private-key]\nthanks"
    assert shown.index("[masked:private-key]") < 20


def test_an_endless_possible_secret_is_held_back_only_to_a_limit() -> None:
    stream = MASKER.stream()
    never_a_token = "eyJ" + "a" * 5_000
    held = len(never_a_token) - len(stream.feed(never_a_token))
    assert held < 10
    flood = "g" + "\u200b" * 20_000
    assert len(stream.feed(flood)) + held > 20_000


def test_a_stream_can_be_reused_after_flush() -> None:
    stream = MASKER.stream()
    assert stream.feed("password=") + stream.flush() == "password="
    assert stream.feed("hunter2") + stream.flush() == "hunter2"
