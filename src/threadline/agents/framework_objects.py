"""Finds the adapter for an agent of another framework, so that it can be given where an agent is expected.

Adapters are in a layer above this one and need their framework, so they are imported by name, and only for an object of
that framework. A class is recognised by where it or a base of it is defined, its name, and an attribute: a program may
have a package that is called `agents` too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple, cast

from threadline.ports import Agent


class _Kind(NamedTuple):
    package: str
    name: str
    attribute: str
    adapter: str


_KINDS = (
    _Kind("agents", "Agent", "handoffs", "openai_agents"),
    _Kind("google.adk", "App", "root_agent", "adk"),
    _Kind("google.adk", "BaseAgent", "run_live", "adk"),
    _Kind("langgraph", "Pregel", "astream", "langgraph"),
    _Kind("pydantic_ai", "AbstractAgent", "run_stream_events", "pydantic_ai"),
)


def is_framework_object(given: Any) -> bool:
    return _kind_of(given) is not None


def adapt(given: Any) -> Agent | None:
    """The agent for an object of a framework, None for any other object. ExtraMissing if the framework is incomplete,
    InvalidInput if the object cannot be an agent."""
    kind = _kind_of(given)
    if kind is None:
        return None
    adapter = import_module(f"threadline.adapters.{kind.adapter}")
    # The adapter's own signature says so; by name the type checker cannot see it.
    return cast("Agent", adapter.agent(given))


def _kind_of(given: Any) -> _Kind | None:
    bases = [(f"{base.__module__}.", base.__name__) for base in type(given).__mro__]
    for kind in _KINDS:
        is_named = any(name == kind.name and module.startswith(f"{kind.package}.") for module, name in bases)
        if is_named and hasattr(given, kind.attribute):
            return kind
    return None
