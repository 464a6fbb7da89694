"""Tests with the agent frameworks from PyPI. They run in an environment of their own: `tests/framework_packages.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import postgres_database
from tests.framework_packages import run_pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ["environment"])
def test_in_the_environment_of_the_frameworks(name: str) -> None:
    run_pytest([HERE / f"check_{name}.py"])


@pytest.mark.req("G-02")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_langgraph_stores_its_threads_here(kind: str, tmp_path: Path) -> None:
    database = str(tmp_path / "graphs.db") if kind == "sqlite" else await postgres_database()
    run_pytest([HERE / "check_langgraph.py"], variables={"FRAMEWORK_TEST_DATABASE": database})


@pytest.mark.req("A-08")
def test_agents_of_frameworks_are_agents_here() -> None:
    run_pytest([HERE / "check_agents.py"], seconds=900)


@pytest.mark.req("G-03")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_adk_stores_its_sessions_here(kind: str, tmp_path: Path) -> None:
    database = str(tmp_path / "sessions.db") if kind == "sqlite" else await postgres_database()
    run_pytest([HERE / "check_adk.py"], seconds=300, variables={"FRAMEWORK_TEST_DATABASE": database})
