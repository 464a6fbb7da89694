"""Reading a provider's JSON, of which nothing is certain: what is there, or a Fault that says it cannot be read.

Counts are the exception: nobody's answer fails because a number of tokens is missing or odd.
"""

from __future__ import annotations

from typing import Any

from threadline.core import jsontext
from threadline.core.errors import InvalidInput
from threadline.net.retry import Fault


def unreadable() -> Fault:
    return Fault("The provider sent an answer that cannot be read.", passing=True)


def text(value: Any) -> str:
    """A text, or nothing where there is none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise unreadable()
    return value


def objects(value: Any) -> list[dict[str, Any]]:
    """A list of objects, or nothing where there is none."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise unreadable()
    return value


def count(value: Any, *path: str) -> int:
    """A number of tokens, 0 where it is not given: nobody's answer fails for want of a count."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def inputs_of(written: str) -> Any:
    """A call's input; what is no JSON (it was cut off, say) stays the string it was."""
    try:
        return jsontext.parse(written or "{}", "tool input")
    except InvalidInput:
        return written
