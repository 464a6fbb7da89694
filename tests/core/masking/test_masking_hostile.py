"""Inputs made to be slow: both prefilters handle them in linear time.

They take 10 ms and less on a quiet machine; a rule that went back over its input would take seconds."""

from __future__ import annotations

import json
import time

import pytest

from threadline.core.masking import SecretMasker
from threadline.core.masking.masker import TEXT_RULES

SIZE = 20_000
SECONDS = 0.5
ANCHORS = sorted({anchor for rule in TEXT_RULES for anchor in rule.anchors})
ROWS = [
    *("1-", "eyJ", "a@", "A1", "eyJ.", "-eyJ", "://a:", "://:@", "https://x:@", "sk-aa-", "%41", "%25", "\\n", "\\"),
    *("\u200b", "g\u200b", "\\u0073", "api_key", "secret ", "aws aws=", "password: ", "token='", 'password":"'),
    *("cookie: a=bcde ", "bearer ", "-----BEGIN RSA PRIVATE KEY-----\n", "Authorization: Basic ", "x-----END "),
]
BEGINNINGS = [
    "https://x:",
    "ghp_",
    "eyJ",
    "password=",
    'password="',
    "-----BEGIN PRIVATE KEY-----\nabcdefghijklmnop",
    "",
]

MASKERS = {"re2": SecretMasker(with_re2=True), "literals": SecretMasker(with_re2=False)}


def seconds_to_mask(masker: SecretMasker, text: str) -> float:
    started = time.thread_time()
    masker.mask_text(text)
    masker.may_hold(json.dumps([text], ensure_ascii=False).encode())
    return time.thread_time() - started


@pytest.mark.req("S1-21")
@pytest.mark.parametrize("engine", MASKERS)
@pytest.mark.parametrize(
    "text", ["1-" * 10_000, "eyJ" * 6_000, "a@" * 10_000, "A1" * 50_000], ids=lambda text: text[:3]
)
def test_known_slow_inputs_are_masked_quickly(engine: str, text: str) -> None:
    assert seconds_to_mask(MASKERS[engine], text) < SECONDS
    assert MASKERS[engine].mask_text(text) is text


@pytest.mark.parametrize("engine", MASKERS)
@pytest.mark.parametrize("row", [*ROWS, *ANCHORS])
def test_repeated_fragments_are_masked_quickly(engine: str, row: str) -> None:
    assert seconds_to_mask(MASKERS[engine], row * (SIZE // len(row))) < SECONDS


@pytest.mark.parametrize("engine", MASKERS)
@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("char", ["a", "@", ".", "-", " ", "=", '"', "\\", "%", "é"])
def test_an_anchor_without_an_end_is_masked_quickly(engine: str, beginning: str, char: str) -> None:
    assert seconds_to_mask(MASKERS[engine], beginning + char * SIZE) < SECONDS


@pytest.mark.parametrize("row", ROWS)
def test_a_stream_of_repeated_fragments_is_masked_quickly(row: str) -> None:
    text = row * (SIZE // len(row))
    stream = MASKERS["re2"].stream()
    started = time.thread_time()
    shown = "".join([*(stream.feed(text[at : at + 50]) for at in range(0, len(text), 50)), stream.flush()])
    assert time.thread_time() - started < SECONDS
    assert shown == MASKERS["re2"].mask_text(text)


@pytest.mark.req("S1-21")
@pytest.mark.parametrize("row", ROWS)
def test_a_secret_after_repeated_fragments_is_found_by_both_prefilters(row: str) -> None:
    text = f"{row * (SIZE // len(row))} \n'\" ghp_{'a1' * 18}"
    assert MASKERS["re2"].mask_text(text) == MASKERS["literals"].mask_text(text)
    assert "ghp_" not in MASKERS["re2"].mask_text(text)
