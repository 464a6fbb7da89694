"""Exact copies of messages in a foreign format, stored in a data part beside the parts that show them.

Parts hold what every reader needs. A format has more: item ids, annotations, cache marks, the form of its lists. Where
the parts alone would not give a message back as it came, the copy does. A text that another part of the message holds
is only referred to, so that nothing large is stored twice and what is masked in a part is masked in the copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from threadline.core import jsontext
from threadline.core.errors import InvalidInput
from threadline.core.parts import DataPart, FilePart, Part, ReasoningPart, TextPart, ToolPart

_REFERENCE = "$part"
# A shorter text takes no more room than a reference to it.
_SHORTEST = 40


def with_copy(parts: Sequence[Part], format: str, originals: Sequence[Mapping[str, Any]]) -> tuple[Part, ...]:
    """The parts and a copy of the messages that they come from. InvalidJson if these are not plain JSON data."""
    jsontext.dump(originals, format)
    places: dict[str, list[Any]] = {}
    for index, part in enumerate(parts):
        for name, text in _texts(part):
            if len(text) >= _SHORTEST:
                places.setdefault(text, [index, name])
    data = _pack(list(originals), places) if places and not _has_references(originals) else list(originals)
    return (*parts, DataPart(format, data))


def copy_in(parts: Sequence[Part], format: str) -> list[dict[str, Any]] | None:
    """The messages that `with_copy` stored for this format; None if there are none, or if they cannot be read."""
    for part in reversed(parts):
        if isinstance(part, DataPart) and part.name == format:
            try:
                found = _unpack(part.data, parts)
            except (LookupError, TypeError, ValueError, InvalidInput):
                # Another program wrote this part, or changed one that it refers to.
                return None
            return found if isinstance(found, list) and all(isinstance(each, dict) for each in found) else None
    return None


def _texts(part: Part) -> Iterator[tuple[str, str]]:
    match part:
        case TextPart():
            yield "text", part.text
        case ReasoningPart():
            yield "text", part.text
            for provider, values in (part.provider_metadata or {}).items():
                if isinstance(values, dict):
                    yield from ((f"{provider}/{key}", value) for key, value in values.items() if isinstance(value, str))
        case FilePart():
            yield "url", part.url
            yield "data", part.url.partition(",")[2]
        case ToolPart():
            yield "input", (part.input or b"").decode()
            output = part.output_value() if part.output else None
            if isinstance(output, str):
                yield "output", output


def _has_references(value: Any) -> bool:
    """Whether the messages themselves have the key of references: then they are stored without any."""
    if isinstance(value, Mapping):
        return _REFERENCE in value or any(map(_has_references, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_references, value))


def _pack(value: Any, places: Mapping[str, list[Any]]) -> Any:
    match value:
        case str():
            return {_REFERENCE: places[value]} if value in places else value
        case Mapping():
            return {key: _pack(item, places) for key, item in value.items()}
        case list() | tuple():
            return [_pack(item, places) for item in value]
    return value


def _unpack(value: Any, parts: Sequence[Part]) -> Any:
    match value:
        case {"$part": [int(index), str(name)]} if len(value) == 1:
            return dict(_texts(parts[index]))[name]
        case dict():
            return {key: _unpack(item, parts) for key, item in value.items()}
        case list():
            return [_unpack(item, parts) for item in value]
    return value
