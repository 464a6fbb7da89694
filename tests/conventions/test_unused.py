"""Nothing public in core/ exists for tests alone.

A function, class, method or constant of the core must be used by other shipped code. `threadline.testing` does not
count: it is for tests. A name counts as used if any shipped file mentions it outside its own definition.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.conventions import rules
from tests.conventions.rules import Source

ALLOWED: dict[str, str] = {
    "messages_from_blocks": "the public codec for Anthropic's format, documented in docs/agents.md (S4-05)",
    "to_dict": "public API on the values that the library returns (docs/library.md)",
    "narrowed": "requirement S3-01 promises a smaller window by request; no surface offers it yet",
}
"""Names that only tests use in this repository, each with its reason."""


def public_names(source: Source) -> Iterator[tuple[str, int]]:
    for node in source.tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
                if isinstance(node, ast.ClassDef):
                    yield from ((each.name, each.lineno) for each in node.body if isinstance(each, rules.Function))
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node.lineno


def mentions(source: Source) -> Counter[str]:
    """How often each name is read, imported or exported; a definition is not a mention."""
    found: Counter[str] = Counter()
    for node in ast.walk(source.tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name) | ast.alias(name=name):
                found[name] += 1
            case ast.keyword(arg=str(name)) | ast.Constant(value=str(name)):
                found[name] += 1
    return found


def unused(core: list[Source], shipped: list[Source]) -> list[str]:
    used = Counter[str]()
    for source in shipped:
        used += mentions(source)
    return [
        f"{source.path}:{line} {name} is used by tests only: delete it, or move it to the tests"
        for source in core
        for name, line in public_names(source)
        if not name.startswith("_") and not used[name] and name not in ALLOWED
    ]


def test_everything_public_in_the_core_is_used_by_shipped_code() -> None:
    shipped = [source for source in rules.read("src") if "testing" not in source.path.parts]
    assert unused(rules.read("src/threadline/core"), shipped) == []


def test_every_allowed_name_still_exists() -> None:
    names = {name for source in rules.read("src/threadline/core") for name, _ in public_names(source)}
    assert [name for name in ALLOWED if name not in names] == []


def test_a_name_that_nothing_uses_is_found() -> None:
    core = [Source(Path("src/threadline/core/x.py"), "LIMIT = 1\n\n\ndef used(): ...\n\n\ndef alone(): ...\n")]
    other = [Source(Path("src/threadline/y.py"), "from threadline.core.x import used\n")]
    assert [finding.split()[1] for finding in unused(core, [*core, *other])] == ["LIMIT", "alone"]
