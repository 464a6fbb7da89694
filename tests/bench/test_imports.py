"""What the bench imports from Threadline exists: the bench runs seldom and is not type-checked."""

from __future__ import annotations

import ast
from importlib import import_module

import pytest

from tests.conventions import rules


def imported_names() -> list[tuple[str, str]]:
    found = {
        (node.module, alias.name)
        for source in rules.read("bench")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("threadline", "tests")
        for alias in node.names
    }
    return sorted((module or "", name) for module, name in found)


@pytest.mark.parametrize(("module", "name"), imported_names())
def test_a_name_that_the_bench_imports_exists(module: str, name: str) -> None:
    found = import_module(module)
    if not hasattr(found, name):
        import_module(f"{module}.{name}")
