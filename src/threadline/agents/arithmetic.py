"""A calculator for one line of text: exact, bounded, without `eval`.

Numbers are fractions, so 0.1 + 0.2 is 0.3. Intermediate values are bounded, so that no input needs much time or memory.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

LONGEST = 200
_BITS = 2_048
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"})  # noqa: RUF001 - as people type them
# Checked before parsing: Python's parser accepts, and warns about, much more than arithmetic.
_SIGNS = re.compile(r"[0-9eE_.+\-*/%()\s]+")
_ROUNDED = Context(prec=12)

_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
    ast.Mod: operator.mod,
}


def calculate(expression: str) -> str:
    """The value of an expression of numbers, + - * / // % ** and parentheses. ValueError names the fault."""
    text = expression.translate(_SPELLINGS).strip()
    if not text or len(text) > LONGEST:
        raise ValueError(f"expression must be 1–{LONGEST} characters, got {len(text)}")
    if not _SIGNS.fullmatch(text):
        raise ValueError(f"{expression!r} is not arithmetic")
    try:
        tree = ast.parse(text, mode="eval")
        return _show(_value(tree.body))
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except (SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"{expression!r} is not arithmetic") from None


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            # Through its text, because 0.1 means a tenth. Infinity has no such text and raises ValueError.
            return _bounded(Fraction(str(number)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left), _value(right)))
    raise ValueError("expression is not arithmetic")


def _power(number: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ValueError(f"exponent of ** must be a whole number, got {exponent}")
    size = max(number.numerator.bit_length(), number.denominator.bit_length())
    if size * abs(exponent) > _BITS:
        raise ValueError("the result is too large")
    return number ** int(exponent)


def _bounded(number: Fraction) -> Fraction:
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _BITS:
        raise ValueError("the result is too large")
    return number


def _show(number: Fraction) -> str:
    if number.denominator == 1:
        return str(number.numerator)
    rounded = _ROUNDED.divide(Decimal(number.numerator), Decimal(number.denominator))
    return f"{rounded.normalize(_ROUNDED):f}"
