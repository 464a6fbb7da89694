"""Output of agents, tools and channels can always be stored, and is changed only where necessary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core import strategies
from threadline.core import jsontext
from threadline.core.sanitize import make_unique, sanitize_json, sanitize_text


@given(st.text())
def test_valid_text_is_returned_as_the_same_object(text: str) -> None:
    if "\x00" not in text:
        assert sanitize_text(text) is text


@pytest.mark.parametrize(
    ("given", "mended"),
    [
        ("a\x00b", "a\ufffdb"),
        ("x\ud83dy", "x\ufffdy"),
        ("\udc00", "\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\x00\ud83d\ude00é", "\ufffd😀é"),
    ],
)
def test_lone_surrogates_and_nuls_become_u_fffd_and_pairs_one_character(given: str, mended: str) -> None:
    assert sanitize_text(given) == mended


@given(strategies.json_values)
def test_valid_json_is_unchanged(value: object) -> None:
    mended = sanitize_json(value)
    assert mended.value is value
    assert not mended.changed
    assert jsontext.parse(mended.json) == value


@given(st.lists(strategies.json_values | strategies.unsound))
def test_sanitized_values_are_strict_json(value: object) -> None:
    mended = sanitize_json(value)
    assert jsontext.parse(mended.json) == mended.value


def test_values_that_json_cannot_express_become_text() -> None:
    value = {1: float("nan"), "set": {1}, "big": 10**5000, "bytes": b"x", "kept": [1, 1.5, None, True, "é"]}
    assert sanitize_json(value).value == {
        "1": "nan",
        "set": "[set]",
        "big": hex(10**5000),
        "bytes": "[bytes]",
        "kept": [1, 1.5, None, True, "é"],
    }


def test_deep_values_are_cut_to_fit_inside_a_message() -> None:
    deep: object = "bottom"
    for _ in range(200):
        deep = [deep]
    mended = sanitize_json({"output": deep})
    assert mended.changed
    assert b"nested too deeply" in mended.json
    jsontext.parse(b'[{"output":' + mended.json + b"}]")
    just_fits: object = "bottom"
    for _ in range(jsontext.MAX_DEPTH - 2):
        just_fits = [just_fits]
    assert not sanitize_json(just_fits).changed
    cut = sanitize_json([just_fits])
    assert cut.changed
    assert cut.json.count(b"[") == jsontext.MAX_DEPTH - 2 + 1, "only what is too deep is cut"


def test_a_repeated_id_gets_the_first_free_suffix() -> None:
    assert make_unique("a", ()) == "a"
    assert make_unique("a", {"a"}) == "a-2"
    assert make_unique("a", {"a", "a-2"}) == "a-3"
    assert make_unique("x" * 40, {"x" * 40}) == "x" * 38 + "-2"
