"""What a tool returned, made fit to be stored and to be shown to a model: plain JSON, of a bounded size.

A tool may return anything. Text is cut at the limit and says so; data too large is shown as the beginning of its JSON;
half characters and NULs are mended; what is no JSON at all is a `ToolFailed` that names the type.
"""

from __future__ import annotations

from typing import Any

import msgspec

from threadline.core import jsontext
from threadline.core.errors import InvalidInput, InvalidText
from threadline.core.sanitize import sanitize_json, sanitize_text


class ToolFailed(Exception):
    """A tool did not give a result. The text is for the model, which may try something else."""


def plain(value: Any, limit: int) -> Any:
    """The value as plain JSON data of at most about `limit` bytes."""
    if isinstance(value, str):
        return _text(value, limit)
    try:
        data = msgspec.to_builtins(value, str_keys=True)
        raw = _dump(data)
    except RecursionError:
        raise ToolFailed("the tool ran, but what it returned is nested too deeply for JSON") from None
    except (TypeError, ValueError, OverflowError, InvalidInput) as exc:
        raise ToolFailed(f"the tool ran, but its {type(value).__name__} is not JSON data: {exc}") from exc
    if len(raw) > limit:
        return _cut(raw[:limit].decode(errors="ignore"), len(raw), "bytes of JSON")
    # Read back, so that the model, the journal and the store are given one and the same value.
    return jsontext.parse(raw, "tool output")


def _dump(data: Any) -> bytes:
    try:
        return jsontext.dump(data, "tool output")
    except InvalidText:
        return sanitize_json(data, "tool output").json


def _text(value: str, limit: int) -> str:
    # At most four bytes a character: only a text this long can be past the limit, and only its head is looked at.
    if len(value) * 4 <= limit:
        return sanitize_text(value)
    head = sanitize_text(value[:limit]).encode()[:limit].decode(errors="ignore")
    return head if len(head) == len(value) else _cut(head, len(value), "characters")


def _cut(head: str, size: int, unit: str) -> str:
    return f"{head}\n[cut: this is the beginning of {size:,} {unit}]"
