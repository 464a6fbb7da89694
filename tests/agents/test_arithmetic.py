"""The calculator of the rehearsal agent: correct, exact, and limited to arithmetic."""

from __future__ import annotations

import contextlib
import time
import warnings
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.agents.arithmetic import calculate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("0.1+0.2", "0.3"),
        ("1/3", "0.333333333333"),
        ("-7 // 2", "-4"),
        ("7 % 4", "3"),
        ("2^10", "1024"),
        ("2**-2", "0.25"),
        ("6×7 − 8÷4", "40"),
        ("+1_000", "1000"),
        ("1e3", "1000"),
        ("1/1000000000", "0.000000001"),
    ],
)
def test_expressions_are_calculated(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1/0",
        "1 % 0",
        "__import__('os').system('true')",
        "open('/etc/passwd')",
        "a+1",
        "[1]*9",
        "'a'*9",
        "True+1",
        "1if 1 else 2",
        "lambda: 1",
        "(1).__class__",
        "1;2",
        "9**9**9",
        "9**0.5",
        "10**300*10**300*10**300",
        "1e999",
        "1e400",
        "1j",
        "1+",
        "(" * 150 + "1" + ")" * 40,
        "-" * 199 + "1" * 300,
        "1\x00",
    ],
)
def test_input_that_is_not_arithmetic_is_refused_quickly(expression: str) -> None:
    before = time.process_time()
    with pytest.raises(ValueError):
        calculate(expression)
    assert time.process_time() - before < 0.5


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9), st.sampled_from("+-*"))
def test_whole_numbers_are_exact(a: int, b: int, sign: str) -> None:
    expected = {"+": a + b, "-": a - b, "*": a * b}[sign]
    assert calculate(f"({a}){sign}({b})") == str(expected)


@given(st.text(alphabet="0123456789+-*/%().eE_ ^", max_size=200))
def test_any_arithmetic_characters_give_a_number_or_a_value_error(line: str) -> None:
    with contextlib.suppress(ValueError):
        Fraction(calculate(line))


def test_nothing_but_arithmetic_reaches_the_parser() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(ValueError):
            calculate("1if 1else 2")
    assert warned == []
