"""Servers that stand in for providers, and a tool with an effect."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agents import mock_provider
from tests.agents.mock_provider import MockProvider
from threadline.agents.tools import Tool, tool


@pytest.fixture(scope="session")
def aimock() -> Iterator[MockProvider]:
    with mock_provider.running() as provider:
        yield provider


@pytest.fixture
def booked() -> list[str]:
    return []


@pytest.fixture
def book(booked: list[str]) -> Tool:
    async def book(seat: str = "a") -> dict[str, str]:
        booked.append(seat)
        return {"booked": seat}

    return tool(book)
