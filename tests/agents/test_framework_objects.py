"""Agents of other frameworks, where none is installed. With them: `tests/frameworks/check_agents.py`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest

from threadline.agents.function import as_agent
from threadline.core.errors import ExtraMissing


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("openai_agents", "agents", "openai-agents"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("langgraph", "langgraph.checkpoint.base", "langgraph"),
        ("adk", "google.adk", "adk"),
        ("langchain", "langchain_core.messages", "langchain"),
    ],
)
def test_an_adapter_without_its_framework_names_the_extra(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Importing it fails, also where it is installed.
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExtraMissing, match=rf"threadline\[{extra}\]"):
        import_module(f"threadline.adapters.{module}")


def test_a_program_may_have_a_package_that_is_called_agents() -> None:
    class Agent:
        def run(self, prompt: object, services: object) -> None: ...

    Agent.__module__ = "agents.mine"
    given: Any = Agent()
    assert as_agent(given) is given
