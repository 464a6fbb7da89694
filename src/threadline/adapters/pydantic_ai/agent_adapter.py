"""A Pydantic AI agent as an agent here.

Each turn is one streamed run. Deferred calls are handled while it runs: those that need approval are put to the turn's
approver, those that run elsewhere are tools of the client. If one must wait, the run is left and the turn ends with the
call open; the turn that brings the decision or the output continues with the history and the framework's deferred
results.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from pydantic_ai import AgentRunError
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import HandleDeferredToolCalls, ReinjectSystemPrompt
from pydantic_ai.exceptions import ToolFailed, UserError
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied

from threadline.adapters.framework_agent import Framework, Handover, read_input, run_framework
from threadline.adapters.pydantic_ai.prompt_messages import to_history
from threadline.adapters.pydantic_ai.run_events import RunEvents
from threadline.agents.limits import RunLimits
from threadline.core.errors import InvalidInput
from threadline.core.events import ApprovalRequest, Event, Finish, ToolCall
from threadline.core.ids import new_id
from threadline.core.prompts import Prompt
from threadline.ports import AgentServices

_FRAMEWORK = Framework("Pydantic AI", (AgentRunError, UserError))
_NOT_HERE = "this tool runs where the question came from, and nothing there can run it"


def agent(given: AbstractAgent[Any, Any], *, limits: RunLimits | None = None, **options: Any) -> PydanticAIAgent:
    """`options` are those of `Agent.run`, such as `deps`, `model_settings` and `usage_limits`."""
    return PydanticAIAgent(given, limits=limits, **options)


class PydanticAIAgent:
    """A model that the request or the thread chose takes the place of the agent's own."""

    def __init__(self, given: AbstractAgent[Any, Any], *, limits: RunLimits | None = None, **options: Any) -> None:
        if not isinstance(given, AbstractAgent):
            raise InvalidInput(f"a Pydantic AI agent must be a pydantic_ai.Agent, got {type(given).__name__}")
        if kept := {"message_history", "conversation", "deferred_tool_results"} & options.keys():
            raise InvalidInput(f"`{min(kept)}` cannot be given: Threadline keeps the conversation")
        self._agent = given
        self._limits = limits
        self._capabilities = [ReinjectSystemPrompt(), *options.pop("capabilities", ())]
        self._instructions = options.pop("instructions", None)
        self._options = options

    def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        return run_framework(_FRAMEWORK, self._reply, prompt, services, self._limits)

    async def close(self) -> None:
        """Nothing to close: the agent belongs to its program."""

    async def _reply(self, handover: Handover, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        events = RunEvents(handover.decided_ids)
        history = to_history(handover)
        deferred = _Deferred(services)
        options = dict(self._options)
        if prompt.model:
            options["model"] = prompt.model
        if handover.decided:
            options["deferred_tool_results"] = _decisions(handover)
        run = self._agent.run_stream_events(
            history.request,
            message_history=history.messages,
            instructions=[text for text in (handover.system, self._instructions) if text] or None,
            capabilities=[*self._capabilities, HandleDeferredToolCalls(deferred.handle)],
            infer_name=False,
            **options,
        )
        async with run as stream:
            try:
                async for item in stream:
                    for event in events.read(item):
                        yield event
                    for event in events.usage(stream.usage):
                        yield event
            except _Waits:
                for event in events.usage(stream.usage):
                    yield event
        if deferred.waits:
            for event in deferred.requests:
                yield event
            yield Finish("tool-calls")


class _Waits(Exception):
    """Leaves the run: a person or a client has to answer first."""


class _Deferred:
    """Answers the deferred calls of a run."""

    def __init__(self, services: AgentServices) -> None:
        self._services = services
        self.waits = False
        self.requests: list[ApprovalRequest] = []

    async def handle(self, context: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        results = DeferredToolResults()
        for call in requests.approvals:
            verdict = await self._services.approver.decide(
                ToolCall(call.tool_call_id, call.tool_name, read_input(call.args))
            )
            if verdict.answer == "defer":
                self.waits = True
                # A run continues only when every call has its decision, so all of them are put in one question.
                break
            results.approvals[call.tool_call_id] = verdict.answer == "allow" or _denied(verdict.reason)
        for call in requests.calls:
            if self._services.client_tools is None:
                results.calls[call.tool_call_id] = ToolFailed(_NOT_HERE)
            else:
                self.waits = True
        if self.waits:
            self.requests = [ApprovalRequest(call.tool_call_id, new_id()) for call in requests.approvals]
            raise _Waits
        return results


def _decisions(handover: Handover) -> DeferredToolResults:
    results = DeferredToolResults()
    for part in handover.decided:
        assert part.approval is not None, "a decided call has its decision"
        results.approvals[part.call_id] = bool(part.approval.approved) or _denied(part.approval.reason)
    return results


def _denied(reason: str | None) -> ToolDenied:
    return ToolDenied(f"denied: {reason}" if reason else "denied")
