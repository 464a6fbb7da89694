"""The tool loop: ask the model, run the tools it calls, tell it what came of them, until it calls no more.

Tools of one round run at the same time; their results are told in the order of the calls. Every call gets exactly one
result before the model is asked again or the turn ends, and a turn that waits for an approval ends with the request.
The loop is one async generator: closing it cancels what it started and waits until that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import count

from threadline.agents.calls import CallSettler, Hooks, Outcome
from threadline.agents.limits import Allowance, Limits
from threadline.agents.models import Model, RoundSettings
from threadline.agents.replies import Reply
from threadline.agents.tools import Tool
from threadline.core.errors import AgentFailed, InvalidInput
from threadline.core.events import (
    Event,
    StepStart,
)
from threadline.core.prompts import Prompt
from threadline.ports import AgentServices


class LoopAgent:
    """An agent from one model and some tools. Holds no state of a turn: one object answers any number at a time."""

    def __init__(
        self, model: Model, tools: Sequence[Tool] = (), hooks: Hooks | None = None, limits: Limits | None = None
    ) -> None:
        self._model = model
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            raise InvalidInput(f"two tools have the same name: {', '.join(sorted(tool.name for tool in tools))}")
        self._specs = tuple(tool.spec for tool in tools)
        self._hooks = hooks or Hooks()
        self._limits = limits or Limits()

    async def close(self) -> None:
        await self._model.close()

    async def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        settings = RoundSettings(model=prompt.model, turn_id=prompt.turn_id)
        reply = Reply(prompt, limit=self._limits.reply_bytes)
        with Allowance(self._limits.seconds) as allowance:
            settler = CallSettler(self._tools, self._hooks, services, allowance, parallel=self._limits.parallel)
            for event in reply.say_again():
                yield event
            for number in count():
                async with aclosing(self._settle(reply, settler)) as outcomes:
                    async for outcome in outcomes:
                        yield outcome
                if reply.awaits_approval:
                    break
                if number == self._limits.rounds:
                    raise AgentFailed(f"The agent called tools for {number} rounds and came to no answer.")
                async with aclosing(self._round(reply, settings, allowance)) as events:
                    async for event in events:
                        yield event
                if not reply.calls:
                    break
        yield reply.end

    async def _round(self, reply: Reply, settings: RoundSettings, allowance: Allowance) -> AsyncGenerator[Event, None]:
        stream = self._model.round(reply.messages(), self._specs, settings)
        for event in reply.add(StepStart()):
            yield event
        async with aclosing(stream):
            while (said := await allowance.next_of(stream)) is not None:
                for event in reply.add(said):
                    yield event

    async def _settle(self, reply: Reply, settler: CallSettler) -> AsyncGenerator[Outcome, None]:
        """Gives each open call its result, in order, while all of them are at work."""
        calls, reply.calls = reply.calls, []
        tasks = [
            asyncio.create_task(settler.settle(call, reply.approvals.get(call.call_id)), name=f"tool {call.name}")
            for call in calls
        ]
        try:
            for task in tasks:
                yield reply.answer(await task)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
