"""Headless dispatch: a question to an agent without a thread. What the user pinned goes along; nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from threadline.core.chat_messages import from_chat
from threadline.core.context import SNAPSHOT_HEAD
from threadline.core.dispatch import normalise
from threadline.core.errors import GuardRefused
from threadline.core.events import Event, Usage
from threadline.core.folding import Fold
from threadline.core.ids import check_id
from threadline.core.parts import plain_text
from threadline.core.prompts import Prompt, PromptMessage, say
from threadline.core.repair import repair
from threadline.core.shaping import Shaper, StreamingMasker
from threadline.core.threads import Scope
from threadline.ports import Approver, Desk, Guard
from threadline.usecases.directory import Directory
from threadline.usecases.journal import UnstoredJournal
from threadline.usecases.prompting import Prompting


class Headless:
    def __init__(
        self,
        directory: Directory,
        prompting: Prompting,
        approver: Approver,
        *,
        guard: Guard | None = None,
        masker: StreamingMasker | None = None,
    ) -> None:
        self._directory = directory
        self._prompting = prompting
        self._approver = approver
        self._guard = guard
        self._masker = masker

    async def answer(self, scope: Scope, agent_id: str, body: Mapping[str, Any]) -> AsyncIterator[Event]:
        """The agent's events. `body` holds `messages`, or `role` and `content`. InvalidMessage, NotFound (the agent),
        GuardRefused, RoleRefused: nothing was dispatched. AgentFailed: the agent could not go on."""
        scope.require("member")
        asked = from_chat(normalise(body))
        agent = await self._directory.find(scope, check_id("agent", agent_id))
        await self._check(scope, asked)
        prompt = await self._prompt(scope, agent_id, asked)
        shaper, fold = Shaper(self._masker), Fold()
        async for event in agent.answer(prompt, Desk(UnstoredJournal(), self._approver)):
            for shaped in shaper.add(event):
                for shown in _published(fold, shaped):
                    yield shown
        for shaped in shaper.flush():
            for shown in _published(fold, shaped):
                yield shown

    async def _check(self, scope: Scope, asked: tuple[PromptMessage, ...]) -> None:
        said = "\n".join(plain_text(message.parts) for message in asked if message.role == "user")
        if self._guard is not None and (reason := await self._guard.check(said, scope)):
            raise GuardRefused(reason)

    async def _prompt(self, scope: Scope, agent_id: str, asked: tuple[PromptMessage, ...]) -> Prompt:
        snapshot = await self._prompting.snapshot(scope, agent_id)
        row = await self._directory.row(scope, agent_id)
        first = () if snapshot is None else (say("system", SNAPSHOT_HEAD + snapshot),)
        own = () if row is None or not row.system_prompt else (say("system", row.system_prompt),)
        return Prompt(
            messages=(*first, *own, *repair(asked)), model=None if row is None else row.model, agent_id=agent_id
        )


def _published(fold: Fold, event: Event) -> tuple[Event, ...]:
    """What is shown of an event; usage is the caller's to see, because no turn keeps it."""
    return (event,) if isinstance(event, Usage) else tuple(fold.add(event))
