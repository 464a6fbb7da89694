"""Fixtures for tests of turns: a scripted agent and a whole Threadline on each database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from threadline.agents.function import as_agent
from threadline.bootstrap import Threadline
from threadline.core.events import Event, Usage
from threadline.core.model_texts import TitleSettings
from threadline.core.parts import plain_text
from threadline.core.prompts import Prompt
from threadline.library import UserView
from threadline.ports import Store
from threadline.settings import Settings
from threadline.testing.clock import ManualClock


class ScriptedAgent:
    """Emits its lines, waits after the first one while a gate is set, and records the prompts it gets."""

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []
        self.lines: list[Any] = ["Hello, ", "you."]
        self.gate: asyncio.Event | None = None
        self.waiting = asyncio.Event()

    async def __call__(self, prompt: Prompt) -> AsyncGenerator[Event | str, None]:
        self.prompts.append(prompt)
        yield Usage(input_tokens=10, output_tokens=2)
        for index, line in enumerate(self.lines):
            if isinstance(line, BaseException):
                raise line
            yield line
            if index == 0 and self.gate is not None:
                self.waiting.set()
                await self.gate.wait()

    def prompt_texts(self, turn: int = -1) -> list[tuple[str, str]]:
        """The role and the text of each message of a turn's prompt."""
        return [(message.role, plain_text(message.parts)) for message in self.prompts[turn].messages]


@pytest.fixture
def scripted_agent() -> ScriptedAgent:
    return ScriptedAgent()


@pytest.fixture
def settings(tenant_id: str) -> Settings:
    # Scripted models count their calls; tests of titles switch them on.
    return Settings(tenant=tenant_id, user="alice", agent="scripted", titles=TitleSettings(by_model=False))


@pytest.fixture
async def threadline(
    store: Store, settings: Settings, clock: ManualClock, scripted_agent: ScriptedAgent
) -> AsyncIterator[Threadline]:
    made = make_threadline(store, settings, clock, scripted_agent)
    yield made
    await made.runner.close()


def make_threadline(store: Store, settings: Settings, clock: ManualClock, scripted_agent: ScriptedAgent) -> Threadline:
    return Threadline(store, settings, clock, agents={"scripted": make_agent(scripted_agent)})


def make_agent(scripted_agent: ScriptedAgent) -> Any:
    async def act(prompt: Prompt) -> AsyncGenerator[Event | str, None]:
        async for each in scripted_agent(prompt):
            yield each

    return as_agent(act)


@pytest.fixture
def me(threadline: Threadline) -> UserView:
    return threadline.as_user()
