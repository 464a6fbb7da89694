"""Lists the promises of docs/requirements.md with the tests that prove them, and those not proved yet.

It reads the `req` markers out of the source, so it needs neither a run nor a database. What it cannot see is whether
the tests are green: `make test` says that.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "requirements.md"
TESTS = (ROOT / "tests", ROOT / "src" / "threadline" / "testing")
SHAPE = re.compile(r"(?:S[0-4X]|[ACFGHKMPRT])-\d\d")


class Proof(NamedTuple):
    promise_id: str
    test: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--open", action="store_true", help="only those not proved yet")
    arguments = parser.parse_args()
    tests: dict[str, list[str]] = defaultdict(list)
    for proof in proofs():
        tests[proof.promise_id].append(proof.test)
    told = promises()
    for promise_id, sentence in told.items():
        proved = tests.get(promise_id)
        if proved and not arguments.open:
            print(f"{promise_id}  proved   {sentence}", *proved, sep="\n                ")
        elif not proved:
            print(f"{promise_id}  not yet  {sentence}")
    print(f"{sum(promise_id in tests for promise_id in told)} of {len(told)} promises are proved by tests.")
    return 0


def promises(page: Path = PAGE) -> dict[str, str]:
    """The sentences of the page by id, in its order."""
    return dict(re.findall(r"^- (\S+-\d+) (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE))


def proofs() -> Iterator[Proof]:
    for folder in TESTS:
        for path in sorted(folder.rglob("*.py")):
            yield from proofs_in(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))


def proofs_in(source: str, place: str) -> Iterator[Proof]:
    """Every id in a `pytest.mark.req(...)`, with the test, class or file that carries it."""
    yield from _proofs_below(ast.parse(source), place)


def _proofs_below(node: ast.AST, place: str) -> Iterator[Proof]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _proofs_below(child, f"{place}::{child.name}")
            continue
        if isinstance(child, ast.Call) and ast.unparse(child.func) == "pytest.mark.req":
            for argument in child.args:
                yield Proof(ast.literal_eval(argument), place)
        yield from _proofs_below(child, place)


if __name__ == "__main__":
    sys.exit(main())
