"""The tool loop: ask the model, run the tools it calls, give it their results, until it calls no more tools.

Tools of one round run concurrently; their results are emitted in the order of the calls. Every call gets exactly one
result before the next round. If a call waits for approval, or for the output of a tool that the client runs, the other
calls of the round run and the reply ends. The loop is one async generator: closing it cancels the running tools and
waits for them to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import count

import msgspec

from threadline.agents.call_runner import Hooks, Outcome, ToolCallRunner
from threadline.agents.limits import RunLimits, TimeBudget
from threadline.agents.models import Model, RoundSettings, ToolSpec
from threadline.agents.reply_builder import ReplyBuilder
from threadline.agents.tools import Tool, ToolSource
from threadline.core.errors import AgentFailed, InvalidInput
from threadline.core.events import (
    Event,
    Status,
    StepStart,
)
from threadline.core.prompts import Prompt
from threadline.ports import AgentServices

INVALID_CALLS = 12
"""Calls in a row that cannot be run. A model corrects a mistake in one or two rounds; one that does not only costs."""


class LoopAgent:
    """An agent made of a model and tools. It keeps no state between or during runs, so one object can serve any number
    of turns concurrently."""

    def __init__(
        self,
        model: Model,
        tools: Sequence[Tool] = (),
        hooks: Hooks | None = None,
        limits: RunLimits | None = None,
        *,
        sources: Sequence[ToolSource] = (),
    ) -> None:
        self._model = model
        self._sources = tuple(sources)
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            raise InvalidInput(f"tool names must be unique, got {', '.join(sorted(tool.name for tool in tools))}")
        self._hooks = hooks or Hooks()
        self._limits = limits or RunLimits()

    @property
    def tool_names(self) -> list[str]:
        return list(self._tools)

    def with_tools(self, tools: Sequence[Tool] = (), sources: Sequence[ToolSource] = ()) -> LoopAgent:
        """This agent with more tools. Both use the same model, so only one of them is to be closed."""
        every = (*self._tools.values(), *tools)
        return LoopAgent(self._model, every, self._hooks, self._limits, sources=(*self._sources, *sources))

    async def close(self) -> None:
        await self._model.close()

    async def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        settings = RoundSettings(prompt.model, prompt.turn_id, prompt.response_format, prompt.model_options)
        reply = ReplyBuilder(prompt, limit=self._limits.reply_bytes)
        tools, warnings = await self._offered(services)
        for warning in warnings:
            yield Status(warning)
        specs = tuple(tool.spec for tool in tools.values())
        with TimeBudget(self._limits.seconds) as budget:
            runner = ToolCallRunner(tools, self._hooks, services, budget, parallel=self._limits.parallel)
            for event in reply.replay_open_calls():
                yield event
            for number in count():
                async with aclosing(self._run_calls(reply, runner)) as outcomes:
                    async for outcome in outcomes:
                        yield outcome
                if reply.waits:
                    break
                if runner.invalid_in_a_row >= INVALID_CALLS:
                    raise AgentFailed(
                        f"the model called unknown tools or sent invalid input {runner.invalid_in_a_row} times in a "
                        "row, so the reply was stopped"
                    )
                if services.steered is not None and reply.has_begun:
                    reply.take_in(await services.steered.take())
                if number == self._limits.rounds:
                    raise AgentFailed(f"the agent called tools for {number} rounds without finishing its reply")
                async with aclosing(self._run_round(reply, specs, settings, budget)) as events:
                    async for event in events:
                        yield event
                if not reply.calls:
                    break
                settings = msgspec.structs.replace(settings, options=settings.options.after_first_round())
        yield reply.end

    async def write(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """See `WritingAgent`."""
        stream = self._model.round(prompt.messages, (), RoundSettings(model=prompt.model))
        async with aclosing(stream):
            async for event in stream:
                yield event

    async def _offered(self, services: AgentServices) -> tuple[dict[str, Tool], list[str]]:
        """The agent's own tools, those of its sources, and those that the request declared: of two with one name, the
        first. Where the caller cannot run tools, none of those that it would have to run. Then warnings."""
        tools, warnings = dict(self._tools), list[str]()
        for source in self._sources:
            offered = await source.offer()
            tools |= {tool.name: tool for tool in offered.tools if tool.name not in tools}
            warnings += offered.warnings
        if services.client_tools is None:
            return {name: tool for name, tool in tools.items() if tool.runs_on != "client"}, warnings
        declared = [each for each in services.client_tools if each.name not in tools]
        return tools | {each.name: Tool.from_declared(each) for each in declared}, warnings

    async def _run_round(
        self, reply: ReplyBuilder, specs: tuple[ToolSpec, ...], settings: RoundSettings, budget: TimeBudget
    ) -> AsyncGenerator[Event, None]:
        stream = self._model.round(reply.messages(), specs, settings)
        for event in reply.add(StepStart()):
            yield event
        async with aclosing(stream):
            while (given := await budget.next_from(stream)) is not None:
                for event in reply.add(given):
                    yield event

    async def _run_calls(self, reply: ReplyBuilder, runner: ToolCallRunner) -> AsyncGenerator[Outcome, None]:
        """Runs all open calls concurrently and yields their results in the order of the calls."""
        calls, reply.calls = reply.calls, []
        tasks = [
            asyncio.create_task(runner.run(call, reply.approvals.get(call.call_id)), name=f"tool {call.name}")
            for call in calls
        ]
        try:
            for task in tasks:
                outcome = await task
                if outcome is None:
                    reply.wait()
                else:
                    yield reply.add_outcome(outcome)
        finally:
            for task in tasks:
                task.cancel()
            # Exceptions of cancelled tools are of no use to anyone: the reply has ended.
            await asyncio.gather(*tasks, return_exceptions=True)
