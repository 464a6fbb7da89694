"""Values of unknown shape, read without faults: times, texts, data parts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from threadline.core import jsontext
from threadline.core.errors import InvalidInput
from threadline.core.parts import DataPart, ToolPart
from threadline.core.sanitize import sanitize_json

_LATEST_SECONDS = 4_102_444_800
"""The year 2100. What is later is most likely in milliseconds."""


def moment(value: Any) -> dt.datetime | None:
    """A time from seconds or milliseconds since 1970, or from ISO 8601; None for anything else."""
    try:
        match value:
            case bool() | None:
                return None
            case int() | float():
                seconds = value / 1000 if value > _LATEST_SECONDS else value
                return dt.datetime.fromtimestamp(seconds, dt.UTC) if seconds > 0 else None
            case str():
                found = dt.datetime.fromisoformat(value)
                return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def text_in(value: Any) -> str | None:
    """The value if it is a text with something in it."""
    return value if isinstance(value, str) and value.strip() else None


def title_in(value: Any) -> str | None:
    """One line of at most 200 characters."""
    found = text_in(value)
    return (
        None if found is None else " ".join("".join(c if c.isprintable() else " " for c in found).split())[:200] or None
    )


def data_part(name: str, value: Any) -> DataPart:
    return DataPart(name, sanitize_json(value).value)


def call_part(name: Any, call_id: Any, given: Any, outcome: tuple[Any, bool] | None) -> ToolPart:
    """A tool call; `outcome` is its output and whether that is an error."""
    is_error = outcome is not None and outcome[1]
    return ToolPart(
        call_id=str(call_id)[:256] or "call",
        name=str(name)[:256] or "tool",
        state="input-available" if outcome is None else "output-error" if is_error else "output-available",
        input=sanitize_json(given).json,
        output=sanitize_json(outcome[0]).json if outcome is not None and not is_error else None,
        error=(outcome[0] if isinstance(outcome[0], str) else jsontext.dump(sanitize_json(outcome[0]).value).decode())
        if outcome is not None and is_error
        else None,
        dynamic=True,
    )


def parsed(arguments: Any) -> Any:
    """Arguments that are JSON in a text; the text itself if they are not."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return jsontext.parse(arguments or "{}", "arguments")
    except InvalidInput:
        return arguments


def counts(usage: Any, names: Mapping[str, str]) -> dict[str, int]:
    """Token counts of a usage object, under our names. `names` maps theirs."""
    if not isinstance(usage, Mapping):
        return {}
    found: dict[str, int] = {}
    for theirs, ours in names.items():
        count = usage.get(theirs)
        if type(count) is int and 0 < count < 10**12:
            found[ours] = found.get(ours, 0) + count
    return found
