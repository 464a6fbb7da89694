"""Explains why a configuration was rejected: which key, which value, what is allowed.

msgspec reports a path, a type and `...` for a name that the user chose, such as an agent's. This module finds the key
and the value again and describes the expected type in words. Values of keys that hold a secret are never repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from threadline.core.errors import quote

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`")
_MISSING = re.compile(r"Object missing required field `(?P<key>.*)`")
_WRONG_TYPE = re.compile(r"Expected |Invalid enum value ")
_SECRET = re.compile(r"key|secret|token|password", re.IGNORECASE)


def key_name(path: Sequence[str]) -> str:
    return f"`{'.'.join(path)}`"


class Rejection(NamedTuple):
    """`path` leads to the key. `nearest` is the allowed key that resembles an unknown one."""

    path: tuple[str, ...]
    fault: str
    nearest: str | None = None

    def describe(self, name_of: Callable[[Sequence[str]], str] = key_name) -> str:
        """One line. `name_of` spells a path: as a key of a file, or as an environment variable."""
        text = self.fault.format(name=name_of(self.path))
        return text if self.nearest is None else f"{text}, did you mean {name_of((*self.path[:-1], self.nearest))}?"


def explain(error: msgspec.ValidationError, tree: Mapping[str, Any], kind: type[msgspec.Struct]) -> Rejection:
    """Why converting `tree` to `kind` failed with `error`."""
    reason, _, place = str(error).partition(" - at `$")
    path: list[str] = []
    for section in re.findall(r"\.\.\.|[^.\[\]`]+", place):
        path.append(_rejected_entry(path, tree, kind) if section == "..." else section)
    if missing := _MISSING.fullmatch(reason):
        return Rejection((*path, missing["key"]), "{name} is required")
    if unknown := _UNKNOWN.fullmatch(reason):
        return _explain_unknown(path, unknown["key"], kind)
    if not _WRONG_TYPE.match(reason):
        return Rejection(tuple(path), f"{{name}}: {_escape(reason[:1].lower() + reason[1:])}")
    expected = _type_at(path, kind)
    value: Any = tree
    for section in path:
        value = value[int(section)] if isinstance(value, list | tuple) else value[section]
    fault = f"must be {_describe_type(expected)}, got {_describe_value(value, expected, path)}"
    return Rejection(tuple(path), f"{{name}} {_escape(fault)}")


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _explain_unknown(path: Sequence[str], key: str, kind: type[msgspec.Struct]) -> Rejection:
    import difflib  # noqa: PLC0415 - used only after a typing mistake

    section = _type_at(path, kind)
    known = [field.encode_name for field in section.fields] if isinstance(section, msgspec.inspect.StructType) else []
    near = difflib.get_close_matches(key, known, n=1)
    fault = "unknown setting {name}"
    return Rejection((*path, key), fault if near else f"{fault}: use {', '.join(known)}", near[0] if near else None)


def _rejected_entry(path: Sequence[str], tree: Mapping[str, Any], kind: type[msgspec.Struct]) -> str:
    """Finds the name behind `...`: its entry is also rejected when it is converted alone."""
    entries: Any = tree
    for section in path:
        entries = entries[section]
    for name, value in entries.items():
        alone: dict[str, Any] = {name: value}
        for section in reversed(path):
            alone = {section: alone}
        try:
            msgspec.convert(alone, kind, strict=False)
        except msgspec.ValidationError:
            return str(name)
    raise AssertionError("an entry that is rejected among others is rejected alone")


def _type_at(path: Sequence[str], kind: type[msgspec.Struct]) -> msgspec.inspect.Type:
    found = msgspec.inspect.type_info(kind)
    for section in path:
        match _required_type(found):
            case msgspec.inspect.StructType(fields=fields):
                found = next(field.type for field in fields if field.encode_name == section)
            case msgspec.inspect.DictType(value_type=inner) | msgspec.inspect.VarTupleType(item_type=inner):
                found = inner
    return _required_type(found)


def _required_type(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """Without `| None`."""
    if isinstance(kind, msgspec.inspect.UnionType):
        return next(each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType))
    return kind


def _describe_type(kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.IntType(ge=int(least), le=int(most)):
            return f"{least}–{most}"
        case msgspec.inspect.IntType(ge=int(least)):
            return f"{least} or more"
        case msgspec.inspect.IntType():
            return "a whole number"
        case msgspec.inspect.FloatType():
            return "a number"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(map(repr, values))
        case msgspec.inspect.VarTupleType(item_type=item):
            return f"a list, each {_describe_type(item)}"
        case msgspec.inspect.DictType() | msgspec.inspect.StructType():
            return "a table"
        case _:
            return "a string"


def _describe_value(value: Any, expected: msgspec.inspect.Type, path: Sequence[str]) -> str:
    match value:
        case str() if isinstance(expected, msgspec.inspect.DictType | msgspec.inspect.StructType):
            return "a string"  # a key or a password in the wrong place, as `keys = "…"`, is not repeated
        case str():
            return quote(value)
        case bool():
            return str(value).lower()
        case int() | float() if isinstance(expected, msgspec.inspect.StrType) and any(map(_SECRET.search, path)):
            return "a number"  # a password of digits without its quotation marks
        case int() | float():
            return str(value)
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a table"
        case _:
            return "a date or time"
