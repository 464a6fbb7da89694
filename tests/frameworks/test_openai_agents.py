"""Sessions of OpenAI's Agents SDK: what they promise, and the SDK's own tests with `ThreadlineSession` in them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import postgres_database
from tests.framework_packages import run_in_frameworks, run_pytest
from tests.framework_sources import source_distribution
from tools.bootstrap import ROOT

HERE = Path(__file__).parent
EXCLUDED = HERE / "openai_agents_excluded.txt"
SESSIONS = ("tests/memory/test_session.py", "tests/memory/test_session_limit.py")
# Every file in which a session is opened, and those about writing to one.
RUNNERS = (
    "tests/deferred_session_writes",
    "tests/memory/test_compaction_model_visibility.py",
    "tests/memory/test_compaction_suffix.py",
    "tests/memory/test_openai_responses_compaction_session.py",
    "tests/memory/test_session_context_wrapper.py",
    "tests/memory/test_session_persistence_sanitize.py",
    "tests/test_agent_runner.py",
    "tests/test_agent_runner_streamed.py",
    "tests/test_hitl_session_scenario.py",
    "tests/test_max_turns.py",
    "tests/test_native_tool_failure_history.py",
    "tests/test_programmatic_tool_calling.py",
    "tests/test_run_impl_resume_paths.py",
    "tests/test_soft_cancel.py",
    "tests/test_tool_batch_failure_history.py",
    "tests/test_tool_failure_boundaries.py",
)
_SUMMARY = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_COUNT = re.compile(r"(\d+) passed")


@pytest.mark.req("G-01")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_sessions_keep_what_a_runner_stores(kind: str, tmp_path: Path) -> None:
    database = str(tmp_path / "sessions.db") if kind == "sqlite" else await postgres_database()
    variables = {"FRAMEWORK_TEST_DATABASE": database}
    run_pytest([HERE / "check_openai_agents.py"], seconds=300, variables=variables)


@pytest.mark.req("G-01")
def test_the_sdks_session_tests_pass_except_those_that_look_into_its_own_tables() -> None:
    assert run_sdk_tests(SESSIONS) >= 53


# One file after the other: a test that takes five minutes counts as one that hangs.
@pytest.mark.slow
@pytest.mark.req("G-01")
@pytest.mark.parametrize("path", RUNNERS)
def test_the_sdks_runner_tests_pass_except_those_that_look_into_its_own_tables(path: str) -> None:
    assert run_sdk_tests([path])


@pytest.mark.req("G-01")
def test_every_listed_exception_is_of_a_suite_that_runs() -> None:
    assert [name for name in excluded() if not name.startswith((*SESSIONS, *RUNNERS))] == []


def run_sdk_tests(paths: Sequence[str]) -> int:
    """How many passed. Exactly those that are listed must fail: a listed test that passes fails this one."""
    done = run_in_frameworks(
        *("-m", "pytest", "-q", "--tb=line", "-rfE", "-p", "swapped_session", "-p", "no:cacheprovider", *paths),
        seconds=290,
        folder=source_distribution("openai-agents"),
        # `tests` are the SDK's there.
        variables={"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(HERE)])},
    )
    listed = {name for name in excluded() if name.startswith(tuple(paths))}
    assert set(_SUMMARY.findall(done.stdout)) == listed, done.stdout
    count = _COUNT.search(done.stdout)
    assert count is not None, done.stdout
    return int(count[1])


def excluded() -> dict[str, str]:
    """The tests that cannot apply, each with its reason."""
    found = {}
    for line in EXCLUDED.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition("  ")
            assert reason.strip(), f"{EXCLUDED.name} gives no reason for {name}"
            found[name] = reason.strip()
    return found
