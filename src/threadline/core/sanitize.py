"""Sanitizing of what agents, tools and channels send, so that it can be stored.

Malformed input of the API is rejected; output of an agent cannot be. Lone surrogates and NULs become U+FFFD, values
that JSON cannot express become text, and a repeated id gets a suffix. Nothing here raises, and valid values are
returned unchanged. `visible` is for texts that are printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container
from itertools import count
from typing import Any, NamedTuple

from threadline.core import jsontext
from threadline.core.errors import InvalidInput

REPLACEMENT = "\ufffd"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
CALL_ID_LENGTH = 40
"""OpenAI rejects longer ids of tool calls."""
_OUTER_LEVELS = 2
"""Nesting around a value inside a message: the list of parts and the part."""


class SanitizedJson(NamedTuple):
    """Plain JSON data and its strict JSON. `changed` is True if it differs from the given value."""

    value: Any
    json: bytes
    changed: bool


def sanitize_text(text: str) -> str:
    """The same object if there is nothing to replace."""
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # A surrogate pair that arrived as two escapes is one character.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def visible(text: str) -> str:
    """The text with control characters other than newline and tab as escapes such as `\\x1b`: printed to a terminal,
    they could move the cursor, change the window's title or write to the clipboard. CRLF becomes a newline."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))


def sanitize_json(value: Any, what: str = "value") -> SanitizedJson:
    """The value in a form that can be stored inside a message part."""
    try:
        return SanitizedJson(value, _dump_nested(value, what), changed=False)
    except InvalidInput:
        sanitized = _plain(value, _OUTER_LEVELS + 1)
        return SanitizedJson(sanitized, _dump_nested(sanitized, what), changed=True)


def _dump_nested(value: Any, what: str) -> bytes:
    # Serialized at its final depth: a value within the depth limit alone may exceed it inside a message.
    return jsontext.dump([[value]], what)[_OUTER_LEVELS:-_OUTER_LEVELS]


def make_unique(call_id: str, taken: Container[str]) -> str:
    """The id, or if it is taken the first of `id-2`, `id-3`, … that is not."""
    if call_id not in taken:
        return call_id
    spellings = (f"{call_id[: CALL_ID_LENGTH - len(suffix)]}{suffix}" for suffix in (f"-{n}" for n in count(2)))
    return next(spelling for spelling in spellings if spelling not in taken)


def _plain(value: Any, depth: int) -> Any:
    match value:
        case None | bool():
            return value
        case str():
            return sanitize_text(value)
        case int():
            # About 4,200 digits; strict JSON ends at 4,300.
            return value if value.bit_length() < 14_000 else hex(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case dict() | list() | tuple() if depth > jsontext.MAX_DEPTH:
            return "[nested too deeply]"
        case dict():
            return {_key(key): _plain(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item, depth + 1) for item in value]
    return f"[{type(value).__name__}]"


def _key(key: Any) -> str:
    return str(_plain(key, jsontext.MAX_DEPTH + 1))
