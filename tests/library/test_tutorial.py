"""The tutorial's program runs twice: the second run finds the thread of the first."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import CodeType

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def program() -> CodeType:
    (source,) = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    code: CodeType = compile(source, str(TUTORIAL), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


async def test_the_tutorials_program_runs_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = program()
    for _ in range(2):
        running = eval(code, {})
        assert inspect.iscoroutine(running)
        await running
