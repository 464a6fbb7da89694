"""Dispatch without a thread: a body of messages goes to an agent, the pinned snapshot first, and nothing is stored.

Everything else is as on a thread: the guard checks the request, and the agent's events are masked and sanitized before
they are shown.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

from threadline.core.channels import Agent as AgentRow
from threadline.core.chat_messages import from_chat
from threadline.core.client_tools import ClientTool
from threadline.core.dispatch import normalize, texts, with_system_messages
from threadline.core.errors import GuardRefused, InvalidInput, StoreFailed
from threadline.core.event_fold import Fold
from threadline.core.event_normalizer import EventNormalizer
from threadline.core.events import Event
from threadline.core.messages import NewMessage
from threadline.core.model_options import ModelOptions
from threadline.core.prompts import Prompt
from threadline.core.repair import repair
from threadline.core.sealing import Masker
from threadline.core.threads import Scope
from threadline.core.turns import Surface
from threadline.ports import Agent, AgentServices, Approver, Guard, Store
from threadline.turns.journal import UnstoredJournal
from threadline.turns.loop_share import LoopShare
from threadline.turns.meters import Meter, Meters, choose_model

log = logging.getLogger("threadline.turns")
_SURFACE: Surface = "api"
_DEFAULTS = ModelOptions()


class _HeadlessRequest(NamedTuple):
    """What a meter needs to know of a request without a thread."""

    agent_id: str | None
    model: str | None
    surface: Surface = _SURFACE
    thread_id: str | None = None
    state_key: str | None = None
    key: str | None = None
    message: NewMessage | None = None


class Snapshots(Protocol):
    async def snapshot(self, scope: Scope, agent_id: str) -> str | None: ...


class AgentRows(Protocol):
    async def row(self, scope: Scope, agent_id: str) -> AgentRow | None: ...


class Dispatcher:
    def __init__(
        self,
        store: Store,
        snapshots: Snapshots,
        agents: AgentRows,
        meters: Meters,
        guard: Guard | None,
        masker: Masker | None,
        loop_share: LoopShare | None = None,
    ) -> None:
        self._store = store
        self._meters = meters
        self._snapshots = snapshots
        self._agents = agents
        self._guard = guard
        self._masker = masker
        self._loop_share = loop_share or LoopShare()

    async def prompt(
        self, scope: Scope, agent_id: str, body: Mapping[str, Any], model_options: ModelOptions = _DEFAULTS
    ) -> Prompt:
        """The prompt for the agent. InvalidMessage if the body contains no message; GuardRefused."""
        scope.require("member")
        sent = from_chat(normalize(body))
        if not any(message.parts for message in sent if message.role != "system"):
            raise InvalidInput("`messages` must contain a message to answer, got none")
        # Every text, whatever its role or key: an agent behind HTTP gets all of them.
        if self._guard is not None and (reason := await self._guard.check("\n\n".join(texts(body)), scope)):
            raise GuardRefused(reason)
        row = await self._agents.row(scope, agent_id)
        pinned = await self._snapshots.snapshot(scope, agent_id)
        full = with_system_messages(body, pinned, None if row is None else row.system_prompt)
        model = read_model(body)
        await self._meters.check_request(scope, _HeadlessRequest(agent_id, model))
        return Prompt(
            messages=repair(from_chat(full["messages"])),
            model=choose_model(model, None, row, agent_id),
            agent_id=agent_id,
            body=full,
            response_format=body.get("response_format"),
            model_options=model_options,
        )

    async def run(
        self,
        scope: Scope,
        agent: Agent,
        prompt: Prompt,
        approver: Approver,
        fold: Fold,
        client_tools: tuple[ClientTool, ...] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """The agent's events as they may be shown; `fold` collects them. What it used is counted, also if its reader
        goes away. AgentFailed."""
        agent_id = prompt.agent_id or ""
        row = await self._agents.row(scope, agent_id)
        meter = await self._meters.open_meter(scope, agent_id, row, prompt.model, _SURFACE)
        services = AgentServices(UnstoredJournal(), approver, client_tools)
        try:
            async with aclosing(self._run(agent, prompt, services, fold, meter)) as events:
                async for event in events:
                    yield event
        finally:
            await self._count(scope, meter)

    async def _count(self, scope: Scope, meter: Meter) -> None:
        try:
            await self._store.scoped(scope).count_usage(meter.charge)
        except StoreFailed:
            # The reply was shown: that it could not be counted must not fail it.
            log.warning("usage not counted", extra={"agent_id": meter.charge.agent_id})
        await self._meters.record(scope, _SURFACE, meter.charge)

    async def _run(
        self, agent: Agent, prompt: Prompt, services: AgentServices, fold: Fold, meter: Meter
    ) -> AsyncGenerator[Event, None]:
        normalizer = EventNormalizer(self._masker)
        async with aclosing(agent.run(prompt, services)) as answer:  # type: ignore[type-var]
            async for event in answer:
                await meter.add(event)
                for normalized in normalizer.add(event):
                    for shown in fold.add(normalized):
                        yield shown
                await self._loop_share.give_way()
        for normalized in normalizer.flush():
            for shown in fold.add(normalized):
                yield shown


def read_model(body: Mapping[str, Any]) -> str | None:
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidInput(f"`model` must be a string, got {type(model).__name__}")
    return model or None
