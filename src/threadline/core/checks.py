"""Checks of what callers pass, with one wording for the error of each.

A store accepts only what both SQLite and PostgreSQL can hold: integers of 32 bits, text without NUL characters and
lone surrogates, times with a time zone. `stores.arguments` applies these checks before a database sees a value.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TypeVar

from threadline.core.errors import InvalidInput, quote
from threadline.core.ids import check_characters

_Choice = TypeVar("_Choice", bound=str)

LARGEST_INTEGER = 1_000_000_000
"""Below the largest value of PostgreSQL's `integer`, so that a query can add to one without an overflow."""


def check_range(name: str, value: int, lowest: int, highest: int | None = None) -> int:
    """The value, if it is an integer from `lowest` to `highest`; InvalidInput otherwise."""
    # Not isinstance: bool is a subclass of int, and `limit=True` is a mistake.
    if type(value) is not int:
        raise _wrong_type(name, "an integer", value)
    if highest is None and value < lowest:
        raise InvalidInput(f"`{name}` must be at least {lowest}, got {_quote_integer(value)}")
    if highest is not None and not lowest <= value <= highest:
        raise InvalidInput(f"`{name}` must be {lowest}–{highest}, got {_quote_integer(value)}")
    return value


def check_choice(name: str, value: object, choices: Sequence[_Choice]) -> _Choice:
    """The choice that equals the value; InvalidInput if there is none."""
    for choice in choices:
        if choice == value:
            return choice
    raise InvalidInput(f"`{name}` must be one of {', '.join(choices)}, got {quote(value)}")


def check_string(name: str, value: object) -> None:
    """InvalidInput unless the value is a string that every database can hold."""
    if not isinstance(value, str):
        raise _wrong_type(name, "a string", value)
    # `isascii` costs nothing, and most ids are ASCII: only other text is encoded to find lone surrogates.
    if not value.isascii() or "\0" in value:
        check_characters(f"`{name}`", value)


def check_bytes(name: str, value: object) -> None:
    if not isinstance(value, bytes):
        raise _wrong_type(name, "bytes", value)


def check_time(name: str, value: object) -> None:
    """InvalidInput unless the value is a datetime with a time zone: without one it names no moment."""
    if not isinstance(value, dt.datetime):
        raise _wrong_type(name, "a datetime", value)
    if value.tzinfo is None:
        raise InvalidInput(f"`{name}` must have a time zone, got {value.isoformat()}")


def _wrong_type(name: str, expected: str, value: object) -> InvalidInput:
    return InvalidInput(f"`{name}` must be {expected}, got {type(value).__name__}")


def _quote_integer(value: int) -> str:
    # Python refuses to print integers of more than 4,300 digits.
    return str(value) if value.bit_length() <= 64 else f"an integer of {value.bit_length()} bits"
