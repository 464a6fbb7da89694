"""The project's rules for a source file, each a function that yields the places where it is broken.

They are what ruff, mypy and import-linter do not say. A rule takes a `Source` and yields sentences that begin with
the place, so that a red test reads like a compiler's message.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

ROOT = Path(__file__).resolve().parents[2]

FILE_LINES = 400
FUNCTION_LINES = 60
DOCSTRING_LINES = range(1, 11)
NAMES_WITHOUT_AN_IDEA = frozenset(("util", "utils", "common", "helper", "helpers", "base", "manager", "misc"))

CORE_MAY_IMPORT = sys.stdlib_module_names - {"asyncio", "logging", "os", "pathlib", "socket", "sqlite3", "subprocess"}
CORE_MAY_IMPORT_TOO = frozenset(("msgspec", "re2", "threadline.core", "os.urandom"))

HOMES = {
    "apsw": "threadline.stores.sqlite",
    "markdown_it": "threadline.channels threadline.matrix",
    "asyncpg": "threadline.stores.postgres",
    "anthropic": "threadline.agents",
    "jwt": "threadline.service",
    "mcp": "threadline.agents threadline.mcp_server",
    "nio": "threadline.matrix",
    "openai": "threadline.agents threadline.adapters.openai_agents",
    "prompt_toolkit": "threadline.cli",
    "re2": "threadline.core",
    "rich": "threadline.cli",
    "starlette": "threadline.service",
    "uvicorn": "threadline.service",
}


class Source(NamedTuple):
    path: Path
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def module(self) -> str:
        """Its dotted name, for a file below src; a package goes by its own name."""
        return ".".join(self.path.with_suffix("").parts[1:]).removesuffix(".__init__")


Rule: TypeAlias = Callable[[Source], Iterator[str]]
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def read(*folders: str) -> list[Source]:
    """Every Python file below the folders, with paths relative to the repository."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [Source(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in found]


def functions(source: Source) -> list[Function]:
    return [node for node in ast.walk(source.tree) if isinstance(node, Function)]


def length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def says_what_it_owns(source: Source) -> Iterator[str]:
    """A module docstring of one to ten lines, not counting drawings and examples, which are indented."""
    docstring = ast.get_docstring(source.tree) or ""
    lines = [line for line in docstring.splitlines() if line and not line.startswith(" ")]
    if len(lines) not in DOCSTRING_LINES:
        yield f"{source.path}:1 has a docstring of {len(lines)} lines, not of 1 to {DOCSTRING_LINES.stop - 1}"


def is_one_idea_long(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > FILE_LINES:
        yield f"{source.path}:1 has {lines} lines, more than {FILE_LINES}: look for the second idea in it"


def has_short_functions(source: Source) -> Iterator[str]:
    for function in functions(source):
        if length(function) > FUNCTION_LINES:
            yield f"{source.path}:{function.lineno} {function.name} has {length(function)} lines"


def is_named_for_an_idea(source: Source) -> Iterator[str]:
    for part in source.path.with_suffix("").parts:
        if part in NAMES_WITHOUT_AN_IDEA:
            yield f"{source.path}:1 is called {part!r}, which says nothing"


def swallows_no_error(source: Source) -> Iterator[str]:
    """No `except Exception: pass`, in either of its spellings."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler) and _is_anything(node.type) and _does_nothing(node.body):
            yield f"{source.path}:{node.lineno} swallows every error"
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("suppress")
            and any(map(_is_anything, node.args))
        ):
            yield f"{source.path}:{node.lineno} suppresses every error"


def _is_anything(caught: ast.expr | None) -> bool:
    return caught is None or ast.unparse(caught) in {"Exception", "BaseException"}


def _does_nothing(body: list[ast.stmt]) -> bool:
    return all(isinstance(line, ast.Pass | ast.Continue) or _is_ellipsis(line) for line in body)


def _is_ellipsis(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """What a file imports, inside functions too, as dotted names with their lines."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def stays_pure_in_the_core(source: Source) -> Iterator[str]:
    """The core imports itself, msgspec, re2, and those parts of the standard library that do no I/O."""
    if not _is_in(source.module, "threadline.core"):
        return
    for line, module in imports(source):
        if module.split(".")[0] in CORE_MAY_IMPORT or any(_is_in(module, allowed) for allowed in CORE_MAY_IMPORT_TOO):
            continue
        yield f"{source.path}:{line} imports {module}, and the core does no I/O and knows no one outside"


def keeps_libraries_at_home(source: Source) -> Iterator[str]:
    """Each library that one adapter is built on is imported by that adapter alone."""
    for line, module in imports(source):
        home = HOMES.get(module.split(".")[0])
        homes = (*home.split(), "threadline.testing") if home else ()
        if homes and not any(_is_in(source.module, each) for each in homes):
            yield f"{source.path}:{line} imports {module}, which belongs to {home}"


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
