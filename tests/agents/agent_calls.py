"""Helpers for tests of the loop: run an agent, build calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from threadline.core.errors import AgentFailed
from threadline.core.events import (
    Event,
    Finish,
    TextDelta,
    ToolCall,
)
from threadline.core.prompts import Prompt
from threadline.ports import Agent, AgentServices
from threadline.testing.agents import memory_services, prompt_of

DONE = (TextDelta("Done."), Finish())


async def events_of(agent: Agent, prompt: Prompt | None = None, services: AgentServices | None = None) -> list[Event]:
    return [event async for event in agent.run(prompt or prompt_of("go"), services or memory_services())]


async def collect(events: AsyncIterator[Event]) -> tuple[list[Event], str | None]:
    """All events, and the error text if the run failed."""
    events_seen: list[Event] = []
    try:
        async for event in events:
            events_seen.append(event)  # noqa: PERF401 - events before a failure count
    except AgentFailed as exc:
        return events_seen, str(exc)
    return events_seen, None


def text_of(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def call(id: str, name: str = "book", **given: Any) -> ToolCall:
    return ToolCall(id, name, given)
