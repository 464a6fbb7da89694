"""An `Agent` of the OpenAI Agents SDK as an agent here.

Each turn is one streamed run of the SDK, which gets the conversation as input items. Calls that need approval are put
to the turn's approver. If that defers them, the turn ends; the turn that brings the decisions lets the SDK handle the
calls again, with a model that only repeats them, and applies the decisions.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from agents import Agent, AgentsException, Handoff, Model, ModelResponse, RunConfig, Runner, RunResultStreaming, Usage
from openai.types.responses import Response, ResponseCompletedEvent, ResponseFunctionToolCall

from threadline.adapters.framework_agent import Framework, Handover, read_input, run_framework
from threadline.adapters.openai_agents.run_events import RunEvents
from threadline.agents.limits import RunLimits
from threadline.core.errors import InvalidInput
from threadline.core.events import ApprovalRequest, Event, Finish, ToolCall, ToolDenied
from threadline.core.ids import new_id
from threadline.core.parts import ToolPart
from threadline.core.prompts import Prompt, PromptMessage, say
from threadline.core.response_items import to_items
from threadline.ports import AgentServices, Verdict

_FRAMEWORK = Framework("OpenAI Agents", (AgentsException,))


def agent(given: Agent[Any], *, limits: RunLimits | None = None, **options: Any) -> OpenAIAgentsAgent:
    """`options` are those of `Runner.run_streamed`, such as `context`, `hooks` and `run_config`."""
    return OpenAIAgentsAgent(given, limits=limits, **options)


class OpenAIAgentsAgent:
    """A model that the request or the thread chose takes the place of the agent's own."""

    def __init__(self, given: Agent[Any], *, limits: RunLimits | None = None, **options: Any) -> None:
        if not isinstance(given, Agent):
            raise InvalidInput(f"an agent of the OpenAI Agents SDK must be an agents.Agent, got {type(given).__name__}")
        if kept := {"session", "conversation_id", "previous_response_id"} & options.keys():
            raise InvalidInput(f"`{min(kept)}` cannot be given: Threadline keeps the conversation")
        self._agent = given
        self._limits = limits
        config = options.pop("run_config", None) or RunConfig()
        self._config: RunConfig = RunConfig(**config) if isinstance(config, dict) else config
        self._options = options

    def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        return run_framework(_FRAMEWORK, self._reply, prompt, services, self._limits)

    async def close(self) -> None:
        """Nothing to close: the SDK closes its clients."""

    async def _reply(self, handover: Handover, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        config = dataclasses.replace(self._config, model=prompt.model) if prompt.model else self._config
        events = RunEvents(handover.decided_ids)
        started: Agent[Any] = self._agent
        given: Any = _input_items(handover)
        first = config
        verdicts: dict[str, Verdict] = {}
        if handover.decided:
            started = _find_owner(self._agent, handover.decided[0].name)
            first = dataclasses.replace(config, model=_RepeatedCalls(handover.decided))
            verdicts = {part.call_id: _verdict(part) for part in handover.decided}
        while True:
            result = Runner.run_streamed(started, given, run_config=first, **self._options)
            async with aclosing(_stream(result)) as stream:
                async for item in stream:
                    for event in events.read(item):
                        yield event
            if not result.interruptions:
                return
            calls = [_call(item) for item in result.interruptions]
            for call in calls:
                if call.call_id not in verdicts:
                    verdicts[call.call_id] = await services.approver.decide(call)
            if any(verdicts[call.call_id].answer == "defer" for call in calls):
                # One question for all of them: a run continues only when every call has its decision.
                for call in calls:
                    yield ApprovalRequest(call.call_id, new_id())
                yield Finish("tool-calls")
                return
            given, first = result.to_state(), config
            for item, call in zip(result.interruptions, calls, strict=True):
                verdict = verdicts[call.call_id]
                if verdict.answer == "allow":
                    given.approve(item)
                else:
                    yield ToolDenied(call.call_id, verdict.reason)
                    given.reject(item, rejection_message=_refusal(verdict))


def _input_items(handover: Handover) -> list[dict[str, Any]]:
    """Without the calls that are to be run now, and without reasoning, which is valid only beside its response."""
    system = [say("system", handover.system)] if handover.system else []
    items = to_items([*system, *handover.messages])
    left_out = handover.decided_ids
    return [item for item in items if item.get("type") != "reasoning" and item.get("call_id") not in left_out]


async def _stream(result: RunResultStreaming) -> AsyncGenerator[Any, None]:
    try:
        async with aclosing(result.stream_events()) as events:
            try:
                async for event in events:
                    yield event
            except (GeneratorExit, asyncio.CancelledError):
                # Before the events are closed: closing them waits for the end of a run that was not cancelled.
                result.cancel()
                raise
    finally:
        # The run is a task of its own: when this ends, no tool of it must still run.
        task = result.run_loop_task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _call(item: Any) -> ToolCall:
    return ToolCall(str(item.call_id), str(item.name or "tool"), read_input(item.arguments))


def _verdict(part: ToolPart) -> Verdict:
    assert part.approval is not None, "a decided call has its decision"
    return Verdict("allow" if part.approval.approved else "deny", part.approval.reason)


def _refusal(verdict: Verdict) -> str:
    return f"denied: {verdict.reason}" if verdict.reason else "denied"


def _find_owner(root: Agent[Any], tool: str) -> Agent[Any]:
    """The agent that has the tool: the first one, or one that it hands over to."""
    seen: list[Agent[Any]] = [root]
    for each in seen:
        if any(getattr(one, "name", None) == tool for one in each.tools):
            return each
        for handoff in each.handoffs:
            reference = getattr(handoff, "_agent_ref", None) if isinstance(handoff, Handoff) else None
            target = reference() if reference is not None else handoff
            if isinstance(target, Agent) and target not in seen:
                seen.append(target)
    return root


class _RepeatedCalls(Model):
    """Answers once, with calls that an earlier turn made."""

    def __init__(self, calls: Sequence[ToolPart]) -> None:
        items = to_items([PromptMessage("assistant", tuple(calls))])
        self._calls = [ResponseFunctionToolCall(**item) for item in items if item["type"] == "function_call"]

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        return ModelResponse(output=list(self._calls), usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        response = Response(
            id="repeated",
            created_at=0,
            model="repeated",
            object="response",
            output=list(self._calls),
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")
