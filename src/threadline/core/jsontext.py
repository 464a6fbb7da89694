"""Strict JSON: the only parser and serializer of stored JSON.

Strict JSON can be read by every JSON library, is stored unchanged by both databases, and means the same to each reader:
UTF-8 without a byte-order mark, no duplicate keys, no lone surrogates, no NUL, no NaN, no number outside a double's
range, at most 64 levels deep. Integers of up to 4,300 characters, including the sign, keep their value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from threadline.core.errors import InvalidInput, InvalidJson, InvalidText, LimitExceeded, quote

MAX_DEPTH = 64
_LONGEST_INTEGER = 4_300
_TOO_LARGE = 10**_LONGEST_INTEGER
_TOO_SMALL = -(10 ** (_LONGEST_INTEGER - 1))
# Brackets, and whole strings so that brackets inside them do not count.
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_SCALARS = frozenset((str, bool, type(None)))
_PLAIN_FLOAT_FROM, _PLAIN_FLOAT_BELOW = 1e-4, 1e15
"""In this range msgspec and `json` write the same digits for a float, without an exponent."""


class Json(bytes):
    """JSON written by `dump`, which is therefore known to be strict and need not be parsed to check it."""

    __slots__ = ()


def parse(data: bytes | str, what: str = "body") -> Any:
    """The value of strict JSON; InvalidJson, InvalidText or LimitExceeded otherwise."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    value = _decode_strict(raw, what)
    if _encode(value) == raw:
        # Identical to what msgspec writes, so nothing was lost: no duplicate key, no rounded number.
        return value
    try:
        return json.loads(raw.decode(), object_pairs_hook=_object, parse_int=_integer, parse_float=_float)
    except UnicodeDecodeError:
        raise InvalidJson(f"{what} must be UTF-8") from None
    except (ValueError, RecursionError) as exc:
        raise InvalidJson(f"{what} must be JSON: {exc}") from exc


def parse_object(data: bytes | str, what: str = "body") -> dict[str, Any]:
    """The same for a JSON object; InvalidInput for any other JSON value."""
    value = parse(data, what)
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be a JSON object, got {type_of(value)}")
    return value


def type_of(value: Any) -> str:
    """What a decoded JSON value is, with its article, for error messages: "an array"."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case dict():
            return "an object"
        case list() | tuple():
            return "an array"
    return type(value).__name__


def check(raw: bytes, what: str = "body") -> None:
    """Rejects JSON that a lenient parser would accept, without building the value twice."""
    _decode_strict(raw, what)


def _decode_strict(raw: bytes, what: str) -> Any:
    check_depth(raw, what)
    if _escapes_nul(raw):
        raise InvalidText(f"{what} must not contain NUL characters")
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise InvalidJson(f"{what} must be strict JSON: {exc}") from exc
    except RecursionError:
        raise LimitExceeded(f"{what} nesting depth", MAX_DEPTH, MAX_DEPTH + 1) from None


def dump(value: Any, what: str = "value") -> Json:
    """Compact strict JSON of plain Python data; keys must be strings."""
    return Json(_serialize(_encode if _check_value(value, what, 1) else _dump_with_json, value, what))


def write(value: Any, what: str) -> bytes:
    """The same for values made only of strings and of `msgspec.Raw` JSON, which are not checked."""
    return _serialize(_encode, value, what)


def _serialize(writer: Callable[[Any], bytes], value: Any, what: str) -> bytes:
    try:
        raw = writer(value)
    except UnicodeEncodeError:
        raise InvalidText(f"{what} must not contain lone surrogates (half a character)") from None
    except (TypeError, ValueError) as exc:
        raise InvalidJson(f"{what} cannot be written as JSON: {exc}") from exc
    if _escapes_nul(raw):
        raise InvalidText(f"{what} must not contain NUL characters")
    return raw


def _dump_with_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def check_depth(raw: bytes, what: str) -> None:
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _TOKENS.finditer(raw):
        byte = raw[token.start()]
        if byte in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise LimitExceeded(f"{what} nesting depth", MAX_DEPTH, depth)
        elif byte in b"]}":
            depth -= 1


def _escapes_nul(raw: bytes) -> bool:
    # Searching for one byte takes a tenth of the time of six, and most texts contain no escapes.
    if b"\\" not in raw:
        return False
    # An escaped backslash does not start an escape: \\u0000 is six plain characters.
    at = raw.find(b"\\u0000")
    while at >= 0:
        before = at
        while before > 0 and raw[before - 1] == 0x5C:
            before -= 1
        if (at - before) % 2 == 0:
            return True
        at = raw.find(b"\\u0000", at + 1)
    return False


def _check_value(value: Any, what: str, depth: int) -> bool:
    """Rejects values that JSON cannot express. True if msgspec writes the value exactly as `json` does: they differ for
    very large and very small floats, and msgspec also accepts types that JSON does not have."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if isinstance(value, dict):
        _check_nesting(what, depth)
        is_plain = kind is dict
        for key, item in value.items():
            if type(key) is not str:
                if not isinstance(key, str):
                    raise InvalidJson(f"keys in {what} must be strings, got {quote(key)}")
                is_plain = False
            if type(item) not in _SCALARS and not _check_value(item, what, depth + 1):
                is_plain = False
        return is_plain
    if isinstance(value, (list, tuple)):
        _check_nesting(what, depth)
        is_plain = kind is list or kind is tuple
        for item in value:
            if type(item) not in _SCALARS and not _check_value(item, what, depth + 1):
                is_plain = False
        return is_plain
    if isinstance(value, float):
        return kind is float and _is_plain_float(value)
    if isinstance(value, int) and not _TOO_SMALL < value < _TOO_LARGE:
        raise InvalidJson(f"integers in {what} must be at most {_LONGEST_INTEGER} digits long")
    return kind is int


def _is_plain_float(number: float) -> bool:
    return _PLAIN_FLOAT_FROM <= abs(number) < _PLAIN_FLOAT_BELOW or number == 0


def _check_nesting(what: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise LimitExceeded(f"{what} nesting depth", MAX_DEPTH, depth)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"duplicate key {quote(key)}")
            seen.add(key)
    return found


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise ValueError(f"an integer has more than {_LONGEST_INTEGER} digits")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large for a double")
    return number
