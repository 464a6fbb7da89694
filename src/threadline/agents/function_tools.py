"""Tools for an agent that is a function: it calls them by name, through the same path as a model's calls.

Each call and its result are events of the reply, journalled and approved as any other. Ids of calls are derived from
the turn and the call, so that a turn that is run again after a crash finds the results of its tools in the journal. A
function cannot be continued later, so a call that would wait for approval is denied.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from threadline.agents.call_runner import Hooks, ToolCallRunner
from threadline.agents.limits import RunLimits, TimeBudget
from threadline.agents.tool_execution import ToolFailed
from threadline.agents.tools import Tool
from threadline.core import jsontext
from threadline.core.events import ApprovalRequest, Event, ToolCall, ToolDenied, ToolError, ToolResult
from threadline.ports import AgentServices

_NOT_NOW = "it needs approval, and this agent cannot wait for it"


class FunctionTools:
    """The tools of one run. `call` is what the function gets as `services.call_tool`."""

    def __init__(
        self, tools: Mapping[str, Tool], services: AgentServices, limits: RunLimits, turn_id: str | None
    ) -> None:
        budget = TimeBudget(limits.seconds)
        self._runner = ToolCallRunner(tools, Hooks(), services, budget, parallel=limits.parallel)
        self._turn_id = turn_id
        self._count = 0
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    async def call(self, name: str, /, **given: Any) -> Any:
        """The output of the tool. ToolFailed, with the reason, if it is unknown, fails or is denied."""
        self._count += 1
        seen = jsontext.dump([self._turn_id, self._count, name, given], "tool input")
        call = ToolCall(f"call_{hashlib.sha256(seen).hexdigest()[:16]}", name, given)
        self._events.put_nowait(call)
        outcome = await self._runner.run(call)
        if outcome is None or isinstance(outcome, ApprovalRequest):
            outcome = ToolDenied(call.call_id, _NOT_NOW)
        self._events.put_nowait(outcome)
        match outcome:
            case ToolResult():
                return outcome.output
            case ToolError():
                raise ToolFailed(outcome.error)
            case ToolDenied():
                raise ToolFailed(f"{name} was denied: {outcome.reason or 'no reason was given'}")

    async def merge(self, items: AsyncGenerator[Event, None]) -> AsyncIterator[Event]:
        """The function's own events, with those of its calls as they happen."""
        async with aclosing(items):
            while True:
                pending = asyncio.ensure_future(anext(items, None))
                try:
                    async for event in self._until(pending):
                        yield event
                    item = pending.result()
                finally:
                    # Closing the reply stops the function, which may be waiting for a tool.
                    pending.cancel()
                    await asyncio.gather(pending, return_exceptions=True)
                if item is None:
                    return
                yield item

    async def _until(self, pending: asyncio.Future[Event | None]) -> AsyncIterator[Event]:
        while not pending.done() or not self._events.empty():
            arrived = asyncio.ensure_future(self._events.get())
            either: set[asyncio.Future[Any]] = {pending, arrived}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if arrived.done():
                    yield arrived.result()
            finally:
                arrived.cancel()
