"""Tests with the agent frameworks from PyPI. They run in an environment of their own: `tests/framework_packages.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import postgres_database
from tests.framework_packages import run_pytest
from tests.frameworks.suites import Suite, run_suite

HERE = Path(__file__).parent
STORES_IN_MEMORY = Suite(
    "langgraph-checkpoint",
    "langgraph_store_plugin",
    ("tests/test_store.py",),
    {},
)
STORES_ON_SQLITE = Suite(
    "langgraph-checkpoint-sqlite",
    "langgraph_store_plugin",
    ("tests/test_store.py",),
    {
        "test_nonnull_migrations": "reads the SQL of the store's own migrations",
        "test_sql_injection_vulnerability": "wants keys of filters refused that are dangerous in SQL; none reaches SQL",
        "test_vector_store_initialization": "asks the store's own SQLite connection for its tables",
    },
)


@pytest.mark.parametrize("name", ["documentation", "environment"])
def test_in_the_environment_of_the_frameworks(name: str) -> None:
    run_pytest([HERE / f"check_{name}.py"])


@pytest.mark.req("G-02")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_langgraph_stores_its_threads_here(kind: str, tmp_path: Path) -> None:
    database = str(tmp_path / "graphs.db") if kind == "sqlite" else await postgres_database()
    run_pytest([HERE / "check_langgraph.py"], variables={"FRAMEWORK_TEST_DATABASE": database})


@pytest.mark.req("A-08")
def test_agents_of_frameworks_are_agents_here() -> None:
    run_pytest([HERE / "check_agents.py"])


@pytest.mark.req("G-02")
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
async def test_langgraphs_own_tests_of_stores_pass(kind: str, tmp_path: Path) -> None:
    database = str(tmp_path / "store.db") if kind == "sqlite" else await postgres_database()
    variables = {"FRAMEWORK_TEST_DATABASE": database}
    assert run_suite(STORES_IN_MEMORY, variables) == 114
    assert run_suite(STORES_ON_SQLITE, variables) == 99


@pytest.mark.req("G-02")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_langgraphs_long_term_memory_is_stored_here(kind: str, tmp_path: Path) -> None:
    database = str(tmp_path / "store.db") if kind == "sqlite" else await postgres_database()
    run_pytest([HERE / "check_langgraph_store.py"], variables={"FRAMEWORK_TEST_DATABASE": database})


@pytest.mark.req("G-03")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_adk_stores_its_sessions_here(kind: str, tmp_path: Path) -> None:
    database = str(tmp_path / "sessions.db") if kind == "sqlite" else await postgres_database()
    run_pytest([HERE / "check_adk.py"], seconds=300, variables={"FRAMEWORK_TEST_DATABASE": database})


@pytest.mark.req("G-03")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_langchain_histories_are_threads(kind: str, tmp_path: Path) -> None:
    database = str(tmp_path / "histories.db") if kind == "sqlite" else await postgres_database()
    run_pytest([HERE / "check_langchain.py"], variables={"FRAMEWORK_TEST_DATABASE": database})


@pytest.mark.req("G-03")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_pydantic_ai_keeps_its_history_here(kind: str, tmp_path: Path) -> None:
    database = str(tmp_path / "history.db") if kind == "sqlite" else await postgres_database()
    run_pytest([HERE / "check_pydantic_ai.py"], variables={"FRAMEWORK_TEST_DATABASE": database})


@pytest.mark.req("G-09")
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
async def test_messages_and_state_of_frameworks_are_stored_together(kind: str, tmp_path: Path) -> None:
    database = str(tmp_path / "killed.db") if kind == "sqlite" else await postgres_database()
    run_pytest([HERE / "check_killed_writers.py"], variables={"FRAMEWORK_TEST_DATABASE": database})
