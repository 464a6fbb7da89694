"""A wrong number or choice is refused with what was expected and what was got."""

from __future__ import annotations

import pytest

from threadline.core.checks import check_choice, check_range
from threadline.core.errors import QUOTED_LENGTH, InvalidInput, quote
from threadline.core.jsontext import parse_object, type_of


@pytest.mark.parametrize("value", [1, 50, 100])
def test_a_number_in_its_range_is_returned(value: int) -> None:
    assert check_range("limit", value, 1, 100) == value


@pytest.mark.parametrize(
    ("value", "highest", "message"),
    [
        (0, 100, "`limit` must be 1–100, got 0"),
        (101, 100, "`limit` must be 1–100, got 101"),
        (-1, None, "`limit` must be at least 1, got -1"),
        ("7", 100, "`limit` must be an integer, got str"),
        (True, 100, "`limit` must be an integer, got bool"),
        (2.0, None, "`limit` must be an integer, got float"),
    ],
)
def test_a_number_outside_its_range_is_refused(value: int, highest: int | None, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_range("limit", value, 1, highest)
    assert str(refused.value) == message


def test_a_choice_that_is_not_offered_is_refused() -> None:
    assert check_choice("role", "user", ("user", "assistant")) == "user"
    with pytest.raises(InvalidInput) as refused:
        check_choice("role", "robot", ("user", "assistant"))
    assert str(refused.value) == "`role` must be one of user, assistant, got 'robot'"


def test_quoted_values_are_escaped_and_cut() -> None:
    assert quote("a\nb\ud800") == r"'a\nb\ud800'"
    assert quote("x" * (QUOTED_LENGTH + 1)) == f"'{'x' * QUOTED_LENGTH}'…"


@pytest.mark.parametrize(
    ("raw", "found"),
    [("null", "null"), ("true", "a boolean"), ("1.5", "a number"), ('"a"', "a string"), ("[]", "an array")],
)
def test_a_body_that_is_not_an_object_is_named_by_its_type(raw: str, found: str) -> None:
    with pytest.raises(InvalidInput, match=f"body must be a JSON object, got {found}"):
        parse_object(raw)


def test_an_object_is_parsed() -> None:
    assert parse_object(b'{"a":1}') == {"a": 1}
    assert type_of({"a": 1}) == "an object"
