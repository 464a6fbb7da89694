"""Runs in the environment of the frameworks: all of them can be imported there, beside Threadline."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize("name", ["agents", "google.adk", "langgraph.graph", "pydantic_ai", "threadline"])
def test_the_framework_can_be_imported(name: str) -> None:
    importlib.import_module(name)
