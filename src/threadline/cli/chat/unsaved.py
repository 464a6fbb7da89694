"""A chat without a database: the turn is completed, the history lives in memory, nothing is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from threadline.bootstrap import Threadline
from threadline.core.errors import StoreFailed
from threadline.core.event_fold import Fold
from threadline.core.events import Event
from threadline.core.parts import TextPart
from threadline.core.prompts import Prompt, PromptMessage
from threadline.core.repair import repair
from threadline.core.threads import Scope
from threadline.ports import Agent, AgentServices, Approver
from threadline.turns.journal import UnstoredJournal


class Wishes(Protocol):
    """What the person asked for when they started the chat."""

    @property
    def agent(self) -> str | None: ...
    @property
    def model(self) -> str | None: ...
    @property
    def system(self) -> str | None: ...


class Unsaved:
    def __init__(self, threadline: Threadline, scope: Scope, approver: Approver) -> None:
        self._threadline = threadline
        self._scope = scope
        self._approver = approver
        self._said: list[PromptMessage] = []

    async def answer(self, text: str, wishes: Wishes) -> AsyncIterator[Event]:
        self._said.append(PromptMessage("user", (TextPart(text),)))
        system = [] if wishes.system is None else [PromptMessage("system", (TextPart(wishes.system),))]
        prompt = Prompt(messages=repair([*system, *self._said]), model=wishes.model)
        agent = await self._agent(wishes.agent or self._threadline.settings.agent)
        fold = Fold()
        async for event in agent.run(prompt, AgentServices(UnstoredJournal(), self._approver)):
            for shown in fold.add(event):
                yield shown
        self._said.append(PromptMessage("assistant", tuple(fold.parts())))

    async def _agent(self, agent_id: str) -> Agent:
        try:
            return await self._threadline.directory.find(self._scope, agent_id)
        except StoreFailed:
            return self._threadline.directory.find_configured(agent_id)
