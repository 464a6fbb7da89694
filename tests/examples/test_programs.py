"""Every program of `examples/` runs as its first lines say, and prints what they say."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conventions.rules import ROOT

EXAMPLES = ROOT / "examples"
# A server: `tests/service/test_remote_agents.py` drives it.
SERVERS = {"remote_agent.py"}
PROGRAMS = [path for path in sorted(EXAMPLES.glob("*.py")) if path.name not in SERVERS]


def promised(program: Path) -> list[str]:
    """The lines after "Prints:" in the program's docstring."""
    _, _, lines = (ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or "").partition("Prints:\n")
    return [line.strip() for line in lines.splitlines() if line.strip()]


@pytest.mark.req("K-11")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_prints_what_it_says(program: Path, tmp_path: Path) -> None:
    assert promised(program), "the docstring must have `Prints:` and the lines"
    # Settings of the person who runs the tests do not count.
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, program],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr, done.stdout.splitlines()) == (0, "", promised(program))


def test_the_list_of_examples_names_every_program() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f"({path.name})" not in listed] == []
