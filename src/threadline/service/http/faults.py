"""What is wrong with a body or a query, in words: msgspec's validation errors with the key, the rule and the value.

"Expected `int` >= 1 - at `$.limit`" becomes "`limit` must be 1–100, got 0". Strings from the request are not repeated,
because they may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import inspect

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_EXPECTED = re.compile(r"Expected `([^`]*)`([^,]*)(?:, got `([^`]*)`)?")
_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]", re.ASCII)
_TYPES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "a boolean",
    "object": "an object",
    "array": "an array",
    "null": "null",
    "datetime": "an RFC 3339 time with a zone",
}


def describe_fault(exc: msgspec.ValidationError, value: Mapping[str, Any], shape: type) -> str:
    """`value` is what did not convert to the struct `shape`."""
    fault, _, place = str(exc).partition(" - at `$.")
    name = place.removesuffix("`")
    fields = {field.encode_name: field.type for field in _fields(shape)}
    if found := _UNKNOWN.search(fault):
        return f"`{found[1][:60]}` is not a known key: use {', '.join(fields) or 'none'}"
    if found := _MISSING.search(fault):
        return f"`{found[1]}` is missing"
    return f"`{name or 'body'}` must be {_rule(fields.get(name), fault)}{_got(fault, value.get(name))}"


def find_inexact_value(query: Mapping[str, str], shape: type) -> str | None:
    """The fault of the first integer of a query that is written in any other way than with digits, of the first time
    that is not one of RFC 3339 (a number would be read as seconds), or of the first date that is the word null."""
    for field in _fields(shape):
        given, type_ = query.get(field.encode_name), _without_null(field.type)
        if given is not None and isinstance(type_, inspect.IntType) and not _INTEGER.fullmatch(given):
            return f"`{field.encode_name}` must be {_rule(field.type, 'Expected `int`')}, in digits"
        if given is not None and isinstance(type_, inspect.DateTimeType) and not _TIME.match(given):
            return f"`{field.encode_name}` must be {_TYPES['datetime']}, such as 2026-11-16T12:00:00Z"
        if given is not None and given.lower() == "null" and not isinstance(type_, inspect.StrType):
            return f"`{field.encode_name}` must have a value, got null: leave it out for the default"
    return None


def _fields(shape: type) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(shape)
    return described.fields if isinstance(described, inspect.StructType) else ()


def _rule(type_: inspect.Type | None, fault: str) -> str:
    match _without_null(type_):
        case inspect.IntType(ge=int(least), le=int(most)):
            return f"{least}–{most}"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
    found = _EXPECTED.match(fault)
    if found is None:
        return f"valid ({fault[:1].lower() + fault[1:]})"
    words = [_TYPES.get(each, each) for each in found[1].split(" | ")]
    return " or ".join(words) + found[2].rstrip()


def _without_null(type_: inspect.Type | None) -> inspect.Type | None:
    if isinstance(type_, inspect.UnionType):
        given = [each for each in type_.types if not isinstance(each, inspect.NoneType)]
        type_ = given[0] if len(given) == 1 else None
    return _without_null(type_.type) if isinstance(type_, inspect.Metadata) else type_


def _got(fault: str, value: Any) -> str:
    found = _EXPECTED.match(fault)
    if found is not None and found[3] is not None:
        return f", got {_TYPES.get(found[3], found[3])}"
    if isinstance(value, int | float) or (isinstance(value, str) and value.removeprefix("-").isdigit()):
        return f", got {str(value)[:20]}"
    return ""


def json_type(value: Any) -> str:
    """The JSON type of a decoded value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
    return "an object"
