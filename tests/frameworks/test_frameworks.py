"""Tests with the agent frameworks from PyPI. They run in an environment of their own: `tests/framework_packages.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.framework_packages import run_pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ["environment"])
def test_in_the_environment_of_the_frameworks(name: str) -> None:
    run_pytest([HERE / f"check_{name}.py"])
