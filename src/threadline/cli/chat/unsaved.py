"""Answers without a store: when the local database fails, the chat continues in memory and nothing is saved."""

from __future__ import annotations

from collections.abc import AsyncIterator

from threadline.bootstrap import Threadline
from threadline.cli.chat.session import ChatOptions
from threadline.core.errors import StoreFailed
from threadline.core.event_fold import Fold
from threadline.core.events import Event
from threadline.core.parts import TextPart
from threadline.core.prompts import Prompt, PromptMessage
from threadline.core.repair import repair
from threadline.core.threads import Scope
from threadline.ports import Agent, AgentServices, Approver
from threadline.turns.journal import UnstoredJournal


class UnsavedChat:
    """Keeps the messages since the database failed, and asks the agent directly."""

    def __init__(self, threadline: Threadline, scope: Scope, approver: Approver) -> None:
        self._threadline = threadline
        self._scope = scope
        self._approver = approver
        self._messages: list[PromptMessage] = []

    async def ask(self, text: str, options: ChatOptions) -> AsyncIterator[Event]:
        self._messages.append(PromptMessage("user", (TextPart(text),)))
        system = [] if options.system is None else [PromptMessage("system", (TextPart(options.system),))]
        prompt = Prompt(messages=repair([*system, *self._messages]), model=options.model)
        agent = await self._find_agent(options.agent or self._threadline.settings.agent)
        fold = Fold()
        async for event in agent.run(prompt, AgentServices(UnstoredJournal(), self._approver)):
            for visible in fold.add(event):
                yield visible
        self._messages.append(PromptMessage("assistant", tuple(fold.parts())))

    async def _find_agent(self, agent_id: str) -> Agent:
        try:
            return await self._threadline.directory.find(self._scope, agent_id)
        except StoreFailed:
            # The tenant's own agents are in the database; those of the settings are not.
            return self._threadline.directory.find_configured(agent_id)
