"""Names and docstrings use the field's words: no gerund module names, no metaphors that a reader would have to learn.

CONTRIBUTING.md has the rules. An exception goes into an allow-list below, with its reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conventions import rules
from tests.conventions.rules import Source

GERUND_MODULES = {
    "testing": "the usual name for what a package ships for its users' tests",
    "tracing": "the field's name for it, as in OpenTelemetry",
    "masking": "the domain's own word (glossary: masker)",
    "sealing": "the domain's own word (glossary: sealed)",
    "messaging": "the field's name for chat platforms as a whole",
    "polling": "the field's name for asking a platform for updates",
    "monitoring": "the field's name for health checks and metrics",
    "channel_wiring": "wiring is a noun: the objects of the channels, connected",
}

# The word and what to write instead.
METAPHORS = {
    r"hous(?:e|es)": "system, service, installation",
    r"desks?": "services",
    r"errands?": "housekeeping, background work",
    r"strangers?": "unlinked sender, unknown user",
    r"nudg(?:e|es|ed|ing)": "wake",
    r"bur(?:y|ies|ied)": "dead letter",
    r"befall(?:s|en)?": "happen",
    r"anew|afresh": "again",
    r"whoever|whomever": "the caller, a process, a user",
    r"nobody|somebody": "no process, another user, …",
    r"meanwhile": "during that time, since then",
    r"(?:go|goes|going|gone|went)_on|(?:go|goes|going|gone|went) on": "continue",
    r"(?:come|comes|coming|came)_back|(?:come|comes|coming|came) back": "return, reconnect, restart",
    r"(?:take|takes|taking|taken|took)_up|(?:take|takes|taking|taken|took) up": "take over, claim, start",
    r"(?:look|looks|looking|looked)_after|(?:look|looks|looking|looked) after": "recover, supervise",
    r"stand(?:s|ing)?_in_(?:the_)?way|stands? (?:in|on|under|for)": "be, point to, replace",
    r"in the hand": "handle",
    r"of (?:its|their) own accord": "by itself",
}
PATTERN = re.compile(rf"(?<![a-zA-Z])(?:{'|'.join(METAPHORS)})(?![a-zA-Z])", re.IGNORECASE)

ALLOWED_WORDS: dict[str, str] = {}
"""Path → why its words are no metaphors."""


def find_words(source: Source) -> Iterator[str]:
    """Metaphors in identifiers, docstrings and comments; other string literals are data or texts for users."""
    for line, text in [*_identifiers(source), *_docstrings(source), *_comments(source)]:
        for found in PATTERN.finditer(text):
            yield f"{source.path}:{line} {found.group(0)!r} in {text.strip()[:80]!r}"


def _identifiers(source: Source) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source.tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


def _docstrings(source: Source) -> Iterator[tuple[int, str]]:
    """Every string that is a statement: docstrings of modules, classes and functions, and those below a constant."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for offset, text in enumerate(node.value.value.splitlines()):
                yield node.lineno + offset, text


def _comments(source: Source) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(source.text.splitlines(), start=1):
        if (comment := re.match(r"\s*# (.+)$", line)) is not None:
            yield number, comment.group(1)


def is_gerund(path: Path) -> bool:
    name = path.stem.removeprefix("test_")
    return name.endswith("ing") and name not in GERUND_MODULES


@pytest.mark.parametrize("folder", ["src", "tests", "tools", "bench"])
def test_modules_are_named_with_nouns(folder: str) -> None:
    gerunds = [str(source.path) for source in rules.read(folder) if is_gerund(source.path)]
    assert gerunds == []


@pytest.mark.parametrize("folder", ["src", "tests", "tools", "bench"])
def test_identifiers_docstrings_and_comments_have_no_metaphors(folder: str) -> None:
    sources = [source for source in rules.read(folder) if source.path.as_posix() not in ALLOWED_WORDS]
    found = [finding for source in sources if source.path.name != Path(__file__).name for finding in find_words(source)]
    if found:
        pytest.fail(f"{len(found)} metaphors; write the field's word instead (CONTRIBUTING.md):\n" + "\n".join(found))


def test_every_exception_is_needed() -> None:
    stems = {source.path.stem for folder in ("src", "tests", "tools", "bench") for source in rules.read(folder)}
    packages = {part for source in rules.read("src") for part in source.path.parts}
    assert {name for name in GERUND_MODULES if name not in stems | packages} == set()
    sources = {source.path.as_posix(): source for source in rules.read("src", "tests", "tools", "bench")}
    assert [path for path in ALLOWED_WORDS if path not in sources or not any(find_words(sources[path]))] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('"""The house goes on."""\n', 2),
        ("def look_after(desk): ...\n", 2),
        ("# Whoever comes back is served.\nx = 1\n", 2),
        ('x = "nobody reads this"\n', 0),
        ("warehouse = understand = 1\n", 0),
    ],
)
def test_a_metaphor_is_found_where_it_matters(text: str, count: int) -> None:
    assert len(list(find_words(Source(Path("src/threadline/core/x.py"), text)))) == count
