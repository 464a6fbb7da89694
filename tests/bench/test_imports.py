"""What the bench imports from Threadline exists: the bench runs seldom and is not type-checked."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conventions import rules
from threadline.core.errors import ExtraMissing


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
    try:
        found = import_module(module)
    except ExtraMissing:
        # An adapter, whose framework only the bench's own environment has.
        assert name in exported_names(module)
        return
    if not hasattr(found, name):
        import_module(f"{module}.{name}")


def exported_names(module: str) -> list[str]:
    """What the module's source gives as `__all__`."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []
