"""Checks of numbers and choices that callers pass, with one wording for the error of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from threadline.core.errors import InvalidInput, quote

_Choice = TypeVar("_Choice", bound=str)


def check_range(name: str, value: int, lowest: int, highest: int | None = None) -> int:
    """The value, if it is an integer from `lowest` to `highest`; InvalidInput otherwise."""
    # Not isinstance: bool is a subclass of int, and `limit=True` is a mistake.
    if type(value) is not int:
        raise InvalidInput(f"`{name}` must be an integer, got {type(value).__name__}")
    if highest is None and value < lowest:
        raise InvalidInput(f"`{name}` must be at least {lowest}, got {value}")
    if highest is not None and not lowest <= value <= highest:
        raise InvalidInput(f"`{name}` must be {lowest}–{highest}, got {value}")
    return value


def check_choice(name: str, value: object, choices: Sequence[_Choice]) -> _Choice:
    """The choice that equals the value; InvalidInput if there is none."""
    for choice in choices:
        if choice == value:
            return choice
    raise InvalidInput(f"`{name}` must be one of {', '.join(choices)}, got {quote(value)}")
