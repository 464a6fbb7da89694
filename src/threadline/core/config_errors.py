"""What a decoder refused, in the words of whoever wrote it: which setting, what is wrong, what was meant.

The decoder names a path and a type; it knows neither TOML nor variables, and of a name that people choose, as an
agent's, it says `...`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`")
_MISSING = re.compile(r"Object missing required field `(?P<key>.*)`")


def explained(reason: str, tree: Mapping[str, Any], kind: type[msgspec.Struct]) -> tuple[list[str], str]:
    """The path to what was refused when `tree` was read as a `kind`, and why. `reason` is what the decoder says."""
    what, _, place = reason.partition(" - at `$")
    sections: list[str] = []
    for section in re.findall(r"\.\.\.|[^.\[\]`]+", place):
        sections.append(_wrong_entry(sections, tree, kind) if section == "..." else section)
    if missing := _MISSING.fullmatch(what):
        what = f"{missing['key']!r} is missing"
    if unknown := _UNKNOWN.fullmatch(what):
        import difflib  # noqa: PLC0415 - every start would pay for it

        near = difflib.get_close_matches(unknown["key"], _keys_of(sections, kind), n=1)
        what = f"there is no such setting{f'; did you mean {near[0]!r}?' if near else ''}"
        sections.append(unknown["key"])
    return sections, f"{what[:1].lower()}{what[1:]}"


def _wrong_entry(sections: Sequence[str], tree: Mapping[str, Any], kind: type[msgspec.Struct]) -> str:
    """The one that `...` stands for: it fails by itself as well."""
    entries: Any = tree
    for section in sections:
        entries = entries[section]
    for name, value in entries.items():
        alone: dict[str, Any] = {name: value}
        for section in reversed(sections):
            alone = {section: alone}
        try:
            msgspec.convert(alone, kind, strict=False)
        except msgspec.ValidationError:
            return str(name)
    raise AssertionError("an entry that was refused among others is refused alone")


def _keys_of(sections: Sequence[str], kind: type[msgspec.Struct]) -> list[str]:
    for section in sections:
        found = next((field.type for field in msgspec.structs.fields(kind) if field.name == section), kind)
        structs = (each for each in (found, *get_args(found)) if isinstance(each, type))
        kind = next((each for each in structs if issubclass(each, msgspec.Struct)), kind)
    return [field.name for field in msgspec.structs.fields(kind)]
