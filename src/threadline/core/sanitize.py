"""Mending: what agents, tools and channels send, made fit to be stored.

What comes in over the API is refused when it is malformed; here there is nobody to refuse. Half characters and NULs
become U+FFFD, what JSON cannot say is said in words, and an id that came twice is told apart. Nothing here raises, and
sound values come back as they are.
"""

from __future__ import annotations

import math
from collections.abc import Container
from itertools import count
from typing import Any, NamedTuple

from threadline.core import jsontext
from threadline.core.errors import InvalidInput

REPLACEMENT = "\ufffd"
CALL_ID_LENGTH = 40
"""OpenAI refuses longer ids of tool calls."""
_LEVELS_ABOVE = 2
"""The list of parts and the part itself."""


class Mended(NamedTuple):
    """Plain JSON data and its strict JSON. `changed` says that it is not quite what was given."""

    value: Any
    json: bytes
    changed: bool


def sanitize_text(text: str) -> str:
    """The very same text where there is nothing to mend."""
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Two halves that arrived as two escapes are one whole character.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def sanitize_json(value: Any, what: str = "value") -> Mended:
    """The value as it can stand inside a message's part."""
    try:
        return Mended(value, _inside_a_part(value, what), changed=False)
    except InvalidInput:
        mended = _plain(value, _LEVELS_ABOVE + 1)
        return Mended(mended, _inside_a_part(mended, what), changed=True)


def _inside_a_part(value: Any, what: str) -> bytes:
    # Checked at the depth where it will stand: what fits by itself need not fit inside a message.
    return jsontext.dump([[value]], what)[_LEVELS_ABOVE:-_LEVELS_ABOVE]


def distinct(call_id: str, taken: Container[str]) -> str:
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
