"""Servers that stand in for providers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agents import mock_provider
from tests.agents.mock_provider import MockProvider


@pytest.fixture(scope="session")
def aimock() -> Iterator[MockProvider]:
    with mock_provider.running() as provider:
        yield provider
