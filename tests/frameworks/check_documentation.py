"""Runs in the environment of the frameworks: the `py` block of `docs/agents.md`, which needs a framework."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
BLOCK = re.compile(r"(?ms)^```py\n(.*?)^```$")


@pytest.mark.filterwarnings("ignore")
async def test_the_block_with_an_agent_of_a_framework_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = BLOCK.findall(PAGE.read_text())
    names: dict[str, Any] = {}
    done = eval(compile(block, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.iscoroutine(done):
        await done
