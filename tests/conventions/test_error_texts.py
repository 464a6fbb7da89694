"""Error messages have one style: the fault first, then the fix, in lower case and without a full stop.

The texts are collected from the source: every string, f-strings included, that is passed to a class which descends
from ThreadlineError or is listed in `OTHER_ERRORS`. A `{}` marks an inserted value. Texts that state a rule as if
it were the fault ("the body is a JSON object") leave the reader to guess what was wrong, so they are rejected.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conventions import rules
from tests.conventions.rules import Source

OTHER_ERRORS = {"Problem": 2, "ToolFailed": 0, "RequestFailed": 0, "NotSent": 0}
"""Errors outside the tree that people read, with the position of the message among the arguments."""
MESSAGE_AT = {"InvalidImport": 1}
"""Where the message is not the first argument."""
BUILT_FROM_VALUES = frozenset(
    ("LimitExceeded", "NotFound", "HeadMoved", "DuplicateId", "KeyReused", "TurnRunning", "RoleRefused", "ExtraMissing")
)
"""Errors that write their own message; tests/core/test_errors.py reads those."""

NAMES = frozenset(
    [
        "Anthropic",
        "Authorization",
        "Citus",
        "Content-Length",
        "Content-Type",
        "GET",
        "JSON",
        "Last-Event-ID",
        "Markdown",
        "Matrix",
        "OpenAI",
        "POST",
        "PostgreSQL",
        "SQLite",
        "Slack",
        "Telegram",
        "Threadline",
        "WhatsApp",
    ]
)
"""First words that are written with a capital anywhere in a sentence."""
SUBJECT = r"(?:the |an? |each )?(?:[\w'`{}./-]+ ){1,4}?"
RULE_AS_FAULT = re.compile(
    SUBJECT + r"(?:(?:is|are) (?:an? |one of |at most |at least |1 to |either |only |true or |the )"
    r"|(?:has|have) (?:an? |at most |at least |1 to |only |one )"
    r"|(?:holds?|takes?|begins?|needs?|contains?|ends?) (?:an? |at most |at least |only |text|with )"
    r"|cannot be (?:empty|negative))"
)
SAYS_WHAT_WAS_GOT = re.compile(
    r"\bmust\b|, got |: (?:add|choose|export|give|install|make|name|read|remove|restore|run|send|set|use|wait)\b"
)

ALLOWED: dict[str, str] = {
    "{} is a SQLite database, but not one of Threadline's": "it is the fault: the file belongs to another program",
}
"""Texts that may break a rule, each with its reason."""


class Text(NamedTuple):
    place: str
    error: str
    text: str


def error_classes(sources: list[Source]) -> dict[str, int]:
    """Every class that descends from ThreadlineError by name, with the position of its message."""
    bases = {
        node.name: [ast.unparse(base).split(".")[-1] for base in node.bases]
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"ThreadlineError"}
    while more := {name for name, parents in bases.items() if name not in found and found & set(parents)}:
        found |= more
    return {name: MESSAGE_AT.get(name, 0) for name in found - BUILT_FROM_VALUES} | OTHER_ERRORS


def texts(sources: list[Source]) -> Iterator[Text]:
    classes = error_classes(sources)
    for source in sources:
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Call):
                continue
            error = ast.unparse(node.func).split(".")[-1]
            if error in classes and len(node.args) > classes[error]:
                for text in literals(node.args[classes[error]]):
                    yield Text(f"{source.path}:{node.lineno}", error, text)


def literals(node: ast.expr) -> Iterator[str]:
    """The strings an argument can be: of a conditional expression both, of an f-string the text around its values."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr():
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        case ast.IfExp():
            yield from literals(node.body)
            yield from literals(node.orelse)
        case ast.BoolOp():
            for value in node.values:
                yield from literals(value)


def faults(text: str) -> Iterator[str]:
    first = text.split(maxsplit=1)[0].rstrip(":,'s") if text.strip() else ""
    # A name in capitals (a variable, a header) is a name anywhere.
    if text[:1].isupper() and first not in NAMES and not first.isupper():
        yield "begins with a capital letter"
    if text.rstrip().endswith(".") and not text.endswith("..."):
        yield "ends with a full stop"
    if RULE_AS_FAULT.match(text) and not SAYS_WHAT_WAS_GOT.search(text):
        yield "states a rule as if it were the fault: say what must be, and what was got"


def test_error_messages_have_one_style() -> None:
    found = [
        f"{text.place} {text.error}({text.text!r}) {fault}"
        for text in texts(rules.read("src"))
        if text.text not in ALLOWED
        for fault in faults(text.text)
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_every_allowed_text_still_exists() -> None:
    known = {text.text for text in texts(rules.read("src"))}
    assert [text for text in ALLOWED if text not in known] == []


@pytest.mark.parametrize(
    "text",
    [
        "The body is missing",
        "body is missing.",
        "the body is a JSON object",
        "{} is a string",
        "limit is 1 to {}, not {}",
        "a message's role is one of {}, not {}",
        "ids are at most 128 characters",
        "offset cannot be negative",
        "a message has an array of parts",
    ],
)
def test_a_text_that_breaks_the_style_is_found(text: str) -> None:
    assert list(faults(text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "`limit` must be {}–{}, got {}",
        "PostgreSQL is not reachable at {}: start it",
        "THREADLINE_DATABASE is not set",
        "turn {} is still running on this thread: wait for it or stop it",
        "idempotency key {} was used for a different request: send a new key",
        "{}",
        "",
    ],
)
def test_a_text_in_the_style_passes(text: str) -> None:
    assert list(faults(text)) == []


def test_texts_are_collected_from_every_kind_of_string() -> None:
    source = Source(
        Path("src/threadline/x.py"),
        "raise errors.InvalidInput(f'got {x}')\n"
        "raise InvalidInput('one' if a else 'two')\n"
        "raise Mine('three')\n"
        "raise InvalidImport(1, 'four')\n"
        "raise ValueError('five')\n"
        "class InvalidInput(ThreadlineError): ...\n"
        "class InvalidImport(InvalidInput): ...\n"
        "class Mine(errors.InvalidInput): ...\n",
    )
    assert {text.text for text in texts([source])} == {"got {}", "one", "two", "three", "four"}
