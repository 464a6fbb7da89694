"""Fake provider servers, and a tool with a side effect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents import mock_provider
from tests.agents.mock_provider import MockProvider
from threadline.agents.tools import Tool, tool

A_MOMENT = 1e-6
"""How far past its end a clock finds a wait; without it, rounding ends some waits before their time."""


@pytest.fixture(scope="session")
def aimock() -> Iterator[MockProvider]:
    with mock_provider.running() as provider:
        yield provider


@pytest.fixture
async def idle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's time passes only while everybody waits, and then at once: no busy machine takes an answer's time. For
    tests that wait for nothing outside the loop."""
    loop: Any = asyncio.get_running_loop()
    selector = loop._selector  # noqa: SLF001 - the loop has no public access to it
    now, select = loop.time(), selector.select

    def pass_time(timeout: float | None = None) -> Any:
        nonlocal now
        found = select(0 if timeout is not None else None)
        if timeout and not found:
            now += timeout + A_MOMENT
        return found

    monkeypatch.setattr(loop, "time", lambda: now)
    monkeypatch.setattr(selector, "select", pass_time)


@pytest.fixture
def booked() -> list[str]:
    return []


@pytest.fixture
def book(booked: list[str]) -> Tool:
    async def book(seat: str = "a") -> dict[str, str]:
        booked.append(seat)
        return {"booked": seat}

    return tool(book)
