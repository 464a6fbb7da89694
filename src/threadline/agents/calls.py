"""One tool call, from what the model asked to the one result it gets.

Whatever happens on the way, the call is answered: a hook that raises, a hook that cancels, an approval that cannot be
asked, a denial, a tool that fails, a tool that succeeds. The intent to run is stored before the tool starts and what
came of it right after, so a turn taken over from a dead process never runs an unrepeatable tool twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from threadline.agents.limits import Allowance
from threadline.agents.outputs import ToolFailed, plain
from threadline.agents.tool_execution import describe
from threadline.agents.tools import Tool
from threadline.core import jsontext
from threadline.core.events import ApprovalRequest, ToolCall, ToolDenied, ToolError, ToolResult
from threadline.core.ids import new_id
from threadline.core.parts import Approval
from threadline.core.turns import ToolRun
from threadline.ports import AgentServices, Verdict


class Cancel(NamedTuple):
    """What a hook returns to keep a tool from running: the model gets `output` as the call's result."""

    output: Any


Ran: TypeAlias = ToolResult | ToolError
Outcome: TypeAlias = ToolResult | ToolError | ToolDenied | ApprovalRequest
Before: TypeAlias = Callable[[ToolCall], Awaitable[Cancel | None]]
After: TypeAlias = Callable[[ToolCall, Ran], Awaitable[Ran | None]]


class Hooks(NamedTuple):
    """Called around each tool, in order. A hook that raises makes the call's result an error.

    `before` may return `Cancel`; `after` sees what a tool that ran came to, and may return another result instead."""

    before: tuple[Before, ...] = ()
    after: tuple[After, ...] = ()


class CallSettler:
    """Settles the calls of one answer. Calls may be settled at the same time; people are asked one after the other."""

    def __init__(
        self, tools: Mapping[str, Tool], hooks: Hooks, services: AgentServices, allowance: Allowance, *, parallel: int
    ) -> None:
        self._tools = tools
        self._hooks = hooks
        self._desk = services
        self._allowance = allowance
        self._asking = asyncio.Lock()
        self._places = asyncio.Semaphore(parallel)

    async def settle(self, call: ToolCall, approval: Approval | None = None) -> Outcome:
        """The call's one result. `approval` is what a person answered to a request of an earlier turn. What the
        journal raises is raised: without a stored intent nothing runs."""
        try:
            tool = self._find(call.name)
            keywords = tool.check(call.input)
            async with self._asking:
                refusal = await self._permit(call, tool, approval)
            if refusal is not None:
                return refusal
            async with self._places:
                ran = await self._run_once(call, tool, keywords)
            return await self._after(call, ran)
        except ToolFailed as exc:
            return ToolError(call.call_id, str(exc))

    def _find(self, name: str) -> Tool:
        found = self._tools.get(name)
        if found is None:
            known = ", ".join(sorted(self._tools)) or "none"
            raise ToolFailed(f"there is no tool {name!r}; the tools are: {known}")
        return found

    async def _permit(self, call: ToolCall, tool: Tool, approval: Approval | None) -> Outcome | None:
        for hook in self._hooks.before:
            try:
                answer = await hook(call)
            except Exception as exc:
                raise ToolFailed(f"a hook stopped {call.name}: {describe(exc)}") from exc
            if answer is not None:
                return ToolResult(call.call_id, plain(answer.output, tool.output_bytes))
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
            with self._allowance.standing_still():
                return await self._desk.approver.decide(call)
        except Exception as exc:
            raise ToolFailed(f"approval for {call.name} could not be asked: {describe(exc)}") from exc

    async def _run_once(self, call: ToolCall, tool: Tool, keywords: dict[str, Any]) -> Ran:
        earlier = await self._desk.journal.begin(call, repeatable=tool.repeatable)
        if earlier is not None and earlier.output_json is not None:
            return _recorded(call, earlier.output_json)
        if earlier is not None and not (tool.repeatable and earlier.repeatable):
            return ToolError(call.call_id, _unknown_outcome(earlier))
        ran = await self._run(call, tool, keywords)
        await self._desk.journal.end(call.call_id, _record(ran))
        return ran

    async def _run(self, call: ToolCall, tool: Tool, keywords: dict[str, Any]) -> Ran:
        try:
            return ToolResult(call.call_id, await tool.run(keywords, at_most=max(self._allowance.left, 0.0)))
        except ToolFailed as exc:
            return ToolError(call.call_id, str(exc))

    async def _after(self, call: ToolCall, ran: Ran) -> Ran:
        for hook in self._hooks.after:
            try:
                ran = await hook(call, ran) or ran
            except Exception as exc:
                raise ToolFailed(f"{call.name} ran, but a hook after it failed: {describe(exc)}") from exc
        return ran


def _record(ran: Ran) -> dict[str, Any]:
    return {"error": ran.error} if isinstance(ran, ToolError) else {"output": ran.output}


def _recorded(call: ToolCall, output_json: bytes) -> Ran:
    record = jsontext.parse(output_json, "a tool's recorded result")
    if "error" in record:
        return ToolError(call.call_id, record["error"])
    return ToolResult(call.call_id, record["output"])


def _unknown_outcome(run: ToolRun) -> str:
    return (
        f"{run.name} was started earlier in this turn and cut off; whether it took effect is not known. "
        "It cannot be repeated safely, so it was not run again."
    )
