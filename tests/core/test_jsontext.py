"""Strict JSON: what is refused, and that everything else keeps its exact value."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.core import jsontext
from threadline.core.errors import InvalidInput, InvalidJson, InvalidText, LimitExceeded

REFUSED = {
    "empty": b"",
    "white space": b" \n",
    "two values": b'{"a":1}{"b":2}',
    "byte order mark": b'\xef\xbb\xbf{"a":1}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "UTF-32": '{"a":1}'.encode("utf-32"),
    "Latin-1": '"é"'.encode("latin-1"),
    "lone low surrogate": rb'"\udc00"',
    "lone high surrogate": rb'"\ud83d"',
    "reversed pair": rb'"\ude00\ud83d"',
    "half a pair": rb'"\ud83dx"',
    "CESU-8": b'"\xed\xa0\xbd\xed\xb8\x80"',
    "overlong UTF-8": b'"\xc0\xaf"',
    "raw NUL": b'"x\x00y"',
    "raw newline": b'"a\nb"',
    "infinity": b"1e400",
    "minus infinity": b"-1e400",
    "nested infinity": b'{"a":[1e999]}',
    "too many digits": b"1" * 4_301,
    "too many digits, negative": b"-" + b"1" * 4_300,
    "NaN": b"NaN",
    "Infinity": b"[Infinity]",
    "duplicate key": b'{"a":1,"a":2}',
    "duplicate key in the depth": b'{"x":[{"a":1,"b":2,"a":3}]}',
    "escaped duplicate key": rb'{"a":1,"\u0061":2}',
    "trailing comma": b"[1,]",
    "single quotes": b"{'a':1}",
    "comment": b"/*c*/1",
    "leading zero": b"01",
    "plus": b"+1",
    "bare point": b"1.",
    "hexadecimal": b"0x10",
    "bad escape": rb'"\x41"',
    "cut short": b'{"a":[1,2',
    "a key that is no string": b"{1:2}",
}
NUL = {"escaped NUL": rb'"x\u0000y"', "NUL in a key": rb'{"\u0000":1}', "after a backslash": rb'"\\\u0000"'}
TOO_DEEP = {
    "65 arrays": b"[" * 65 + b"]" * 65,
    "65 objects": b'{"a":' * 65 + b"1" + b"}" * 65,
    "5,000 arrays": b"[" * 5_000 + b"]" * 5_000,
    "100,000 arrays": b"[" * 100_000 + b"]" * 100_000,
    "100,000 objects": b'{"a":' * 100_000,
    "100,000 mixed": b'[{"a":' * 50_000,
}
KEPT: dict[str, tuple[bytes, Any]] = {
    "2**64": (b"18446744073709551616", 2**64),
    "2**53 + 1": (b"9007199254740993", 2**53 + 1),
    "a long integer": (b"9" * 4_300, 10**4_300 - 1),
    "a double": (b"0.1", 0.1),
    "a pair": (rb'"\ud83d\ude00"', "😀"),
    "an escaped backslash before u0000": (rb'"\\u0000"', r"\u0000"),
    "brackets in a string": (b'"' + b"[{" * 500 + b'"', "[{" * 500),
    "an escaped quote before brackets": (b'"\\"' + b"[" * 500 + b'"', '"' + "[" * 500),
    "64 arrays": (b"[" * 64 + b"]" * 64, json.loads("[" * 64 + "]" * 64)),
    "siblings": (b"[" + b"[]," * 500 + b"1]", [[] for _ in range(500)] + [1]),
    "loaders' keys": (b'{"__proto__":{"a":1},"$ref":"x","lc":1}', {"__proto__": {"a": 1}, "$ref": "x", "lc": 1}),
}


def json_values(most_leaves: int) -> st.SearchStrategy[Any]:
    """Of many of them together, small ones say as much as large ones, and take a tenth of the time."""
    words = st.text(st.characters(exclude_characters="\x00", codec="utf-8"))
    return st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.integers(min_value=-(2**200), max_value=2**200)
        | st.floats(allow_nan=False, allow_infinity=False)
        | words,
        lambda inner: st.lists(inner) | st.dictionaries(words, inner),
        max_leaves=most_leaves,
    )


JSON = json_values(30)
SMALL_JSON = json_values(5)


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
def test_json_that_is_not_strict_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidJson, match="the request"):
        jsontext.parse(raw, "the request")


@pytest.mark.parametrize("raw", NUL.values(), ids=NUL.keys())
def test_a_nul_is_refused_in_every_spelling(raw: bytes) -> None:
    with pytest.raises(InvalidText, match="the request must not contain NUL"):
        jsontext.parse(raw, "the request")


@pytest.mark.parametrize("raw", TOO_DEEP.values(), ids=TOO_DEEP.keys())
def test_deep_nesting_is_refused_quickly(raw: bytes) -> None:
    began = time.process_time()
    with pytest.raises(LimitExceeded, match="nesting depth must be at most 64"):
        jsontext.parse(raw)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(("raw", "value"), KEPT.values(), ids=KEPT.keys())
def test_valid_json_keeps_its_value(raw: bytes, value: Any) -> None:
    assert jsontext.parse(raw) == value


def test_text_is_read_like_bytes() -> None:
    assert jsontext.parse('{"é":"😀"}') == {"é": "😀"}
    with pytest.raises(InvalidJson):
        jsontext.parse('"\ud800"')


def test_a_hundred_thousand_keys_are_read_quickly() -> None:
    raw = json.dumps({f"key {number}": number for number in range(100_000)}).encode()
    began = time.process_time()
    assert len(jsontext.parse(raw)) == 100_000
    assert time.process_time() - began < 1


@given(JSON)
def test_written_json_is_read_back_unchanged(value: Any) -> None:
    raw = jsontext.dump(value)
    jsontext.check(raw)
    assert repr(jsontext.parse(raw)) == repr(value)
    assert json.loads(raw) == value


@given(JSON)
def test_both_serializers_write_the_same_bytes(value: Any) -> None:
    assert jsontext.dump(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize("raw", [b'{"a":1,"a":2}', b'{"a":{"b":1,"b":1}}', b'[{"a":1,"\\u0061":2}]'])
def test_a_duplicate_key_is_refused_in_compact_json_too(raw: bytes) -> None:
    with pytest.raises(InvalidJson, match="duplicate key"):
        jsontext.parse(raw)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_give_a_value_or_a_typed_error(raw: bytes) -> None:
    try:
        value = jsontext.parse(raw)
    except InvalidInput:
        return
    assert json.loads(raw) == value


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1: 2}, {"a": {None: 1}}, {"a": object()}, [b"bytes"], 10**4_300, [-(10**4_299)]],
    ids=lambda value: type(value).__name__,
)
def test_values_that_json_cannot_express_are_refused(value: Any) -> None:
    with pytest.raises(InvalidJson, match="metadata"):
        jsontext.dump(value, "metadata")


@pytest.mark.parametrize("value", ["\ud800", "x\x00y", {"\x00": 1}, {"a": ["\udc00"]}, {"\udfff": 1}])
def test_text_that_cannot_be_stored_is_refused_when_writing(value: Any) -> None:
    with pytest.raises(InvalidText, match="metadata"):
        jsontext.dump(value, "metadata")


def test_the_depth_limit_is_the_same_for_writing() -> None:
    deepest: Any = []
    for _ in range(63):
        deepest = {"a": deepest} if isinstance(deepest, list) else [deepest]
    assert jsontext.parse(jsontext.dump(deepest)) == deepest
    with pytest.raises(LimitExceeded):
        jsontext.dump([deepest])


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(LimitExceeded):
        jsontext.dump(endless)


def test_written_json_is_compact_and_keeps_its_letters() -> None:
    assert jsontext.dump({"é": [1, 2.0, None], "b": (True,)}) == '{"é":[1,2.0,null],"b":[true]}'.encode()


def test_the_longest_integers_round_trip() -> None:
    for value in (10**4_300 - 1, -(10**4_299) + 1):
        assert jsontext.parse(jsontext.dump(value)) == value
