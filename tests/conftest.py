"""What every test here shares: when slow tests run, and that chance plays no part in a quick run.

Quick runs draw the same Hypothesis examples each time, so a red suite is red for everyone. `--slow` draws new ones,
more of them, and runs the tests marked `slow`.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("quick", derandomize=True, deadline=None, database=None)
settings.register_profile("slow", deadline=None, max_examples=2_000, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, and search harder in the rest")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("slow" if config.getoption("--slow") else "quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))
