"""Runs one tool call: validation, hooks, approval, journal, tool, result.

Every call gets exactly one result, also if a hook raises or cancels, approval cannot be requested or is denied, or the
tool fails. The journal stores the intent before the tool starts and the result right after it, so that a turn taken
over from a crashed process never runs an unrepeatable tool twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from threadline.agents.limits import TimeBudget
from threadline.agents.tool_execution import ToolFailed, describe_error, to_json_data
from threadline.agents.tools import Tool
from threadline.core.errors import quote
from threadline.core.events import ApprovalRequest, ToolCall, ToolDenied, ToolError, ToolResult
from threadline.core.ids import new_id
from threadline.core.parts import Approval
from threadline.core.tool_records import describe_unknown_outcome, encode_result, recorded_result
from threadline.ports import AgentServices, Verdict


class Cancel(NamedTuple):
    """Returned by a `before` hook to skip the tool: the model gets `output` as the result of the call."""

    output: Any


ToolOutcome: TypeAlias = ToolResult | ToolError
"""Of a tool that ran."""
Outcome: TypeAlias = ToolResult | ToolError | ToolDenied | ApprovalRequest
"""Of a call: the tool may also have been denied or be waiting for approval."""
Before: TypeAlias = Callable[[ToolCall], Awaitable[Cancel | None]]
After: TypeAlias = Callable[[ToolCall, ToolOutcome], Awaitable[ToolOutcome | None]]


class Hooks(NamedTuple):
    """Called in order before and after each tool. If a hook raises, the result of the call is an error.

    `before` may return `Cancel`; `after` gets the result of a tool that ran, and may return a different one."""

    before: tuple[Before, ...] = ()
    after: tuple[After, ...] = ()


class ToolCallRunner:
    """Runs the calls of one reply, at most `parallel` at a time. Approvals are requested one after the other."""

    def __init__(
        self, tools: Mapping[str, Tool], hooks: Hooks, services: AgentServices, budget: TimeBudget, *, parallel: int
    ) -> None:
        self._tools = tools
        self._hooks = hooks
        self._services = services
        self._budget = budget
        # A person can answer only one question at a time, and hooks see the calls in the model's order.
        self._approval_lock = asyncio.Lock()
        self._slots = asyncio.Semaphore(parallel)
        self.invalid_in_a_row = 0
        """Calls of unknown tools or with invalid input since the last valid call."""

    async def run(self, call: ToolCall, approval: Approval | None = None) -> Outcome | None:
        """The result of the call; None if the client runs the tool and the call stays open. `approval` is the decision
        on a request of an earlier turn. Errors of the journal are raised, because nothing may run without a stored
        intent."""
        try:
            try:
                tool = self._find(call.name)
                keywords = tool.check(call.input)
            except ToolFailed:
                self.invalid_in_a_row += 1
                raise
            self.invalid_in_a_row = 0
            async with self._approval_lock:
                refusal = await self._check_permission(call, tool, approval)
            if refusal is not None or tool.runs_on == "client":
                return refusal
            async with self._slots:
                result = await self._run_once(call, tool, keywords)
            return await self._call_after_hooks(call, result)
        except ToolFailed as exc:
            return ToolError(call.call_id, str(exc))

    def _find(self, name: str) -> Tool:
        found = self._tools.get(name)
        if found is None:
            known = ", ".join(sorted(self._tools)) or "none"
            raise ToolFailed(f"unknown tool {quote(name)}; available: {known}")
        return found

    async def _check_permission(self, call: ToolCall, tool: Tool, approval: Approval | None) -> Outcome | None:
        for hook in self._hooks.before:
            try:
                answer = await hook(call)
            except Exception as exc:
                raise ToolFailed(f"a hook failed before {call.name}: {describe_error(exc)}") from exc
            if answer is not None:
                return ToolResult(call.call_id, to_json_data(answer.output, tool.output_bytes))
        if not tool.needs_approval:
            return None
        verdict = await self._verdict(call, approval)
        match verdict.answer:
            case "allow":
                return None
            case "deny":
                return ToolDenied(call.call_id, verdict.reason)
            case "defer":
                return ApprovalRequest(call.call_id, new_id())

    async def _verdict(self, call: ToolCall, approval: Approval | None) -> Verdict:
        if approval is not None and approval.approved is not None:
            return Verdict("allow" if approval.approved else "deny", approval.reason)
        try:
            with self._budget.paused():
                return await self._services.approver.decide(call)
        except Exception as exc:
            raise ToolFailed(f"approval for {call.name} could not be requested: {describe_error(exc)}") from exc

    async def _run_once(self, call: ToolCall, tool: Tool, keywords: dict[str, Any]) -> ToolOutcome:
        earlier = await self._services.journal.begin(call, repeatable=tool.repeatable)
        if earlier is not None and (recorded := recorded_result(earlier)) is not None:
            return recorded
        if earlier is not None and not (tool.repeatable and earlier.repeatable):
            return ToolError(call.call_id, describe_unknown_outcome(earlier))
        result = await self._run_tool(call, tool, keywords)
        await self._services.journal.end(call.call_id, encode_result(result))
        return result

    async def _run_tool(self, call: ToolCall, tool: Tool, keywords: dict[str, Any]) -> ToolOutcome:
        try:
            return ToolResult(call.call_id, await tool.run(keywords, at_most=max(self._budget.remaining, 0.0)))
        except ToolFailed as exc:
            return ToolError(call.call_id, str(exc))

    async def _call_after_hooks(self, call: ToolCall, result: ToolOutcome) -> ToolOutcome:
        for hook in self._hooks.after:
            try:
                result = await hook(call, result) or result
            except Exception as exc:
                raise ToolFailed(f"{call.name} ran, but a hook after it failed: {describe_error(exc)}") from exc
        return result
