"""The stream of a Pydantic AI run as events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from threadline.adapters.framework_agent import read_input, read_output
from threadline.core import jsontext
from threadline.core.events import (
    Event,
    File,
    ReasoningDelta,
    ReasoningEnd,
    StepStart,
    TextDelta,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolResult,
    Usage,
)


class RunEvents:
    """`known` are calls that have been reported already: those of the reply that a run continues."""

    def __init__(self, known: frozenset[str]) -> None:
        self._called = set(known)
        self._has_output_tool = False
        self._used = Usage()

    def read(self, event: Any) -> Iterator[Event]:
        match event.event_kind:
            case "part_start":
                if event.index == 0:
                    yield StepStart()
                yield from self._begin(event.part)
            case "part_delta":
                text = getattr(event.delta, "content_delta", None)
                if text and event.delta.part_delta_kind == "text":
                    yield TextDelta(text)
                elif text and event.delta.part_delta_kind == "thinking":
                    yield ReasoningDelta(text)
            case "part_end":
                yield from self._end(event.part)
            case "function_tool_call":
                yield from self._call(event.part)
            case "function_tool_result":
                yield from self._result(event.part)
            case "output_tool_call":
                self._has_output_tool = True
            case "agent_run_result" if self._has_output_tool:
                # An output that came as a call of an output tool did not stream as text.
                output = event.result.output
                yield TextDelta(output if isinstance(output, str) else jsontext.dump(read_output(output)).decode())

    def _begin(self, part: Any) -> Iterator[Event]:
        match part.part_kind:
            case "text" if part.content:
                yield TextDelta(part.content)
            case "thinking" if part.content:
                yield ReasoningDelta(part.content)
            case "file":
                yield File(part.content.media_type, part.content.data_uri)

    def _end(self, part: Any) -> Iterator[Event]:
        match part.part_kind:
            case "thinking":
                yield ReasoningEnd()
            case "builtin-tool-call":
                yield from self._call(part)
            case "builtin-tool-return":
                yield from self._result(part)

    def _call(self, part: Any) -> Iterator[Event]:
        if part.tool_call_id not in self._called:
            self._called.add(part.tool_call_id)
            yield ToolCall(part.tool_call_id, part.tool_name, read_input(part.args))

    def _result(self, part: Any) -> Iterator[Event]:
        if part.tool_call_id not in self._called:
            return
        outcome = getattr(part, "outcome", "failed")
        if outcome == "success":
            yield ToolResult(part.tool_call_id, read_output(part.content))
        elif outcome == "denied":
            _, _, reason = str(part.content).partition("denied: ")
            yield ToolDenied(part.tool_call_id, reason or None)
        else:
            content = read_output(part.content)
            yield ToolError(part.tool_call_id, content if isinstance(content, str) else jsontext.dump(content).decode())

    def usage(self, total: Any) -> Iterator[Event]:
        """What was used since the last time."""
        details = total.details or {}
        now = Usage(
            total.input_tokens or 0,
            total.output_tokens or 0,
            total.cache_read_tokens or 0,
            details.get("reasoning_tokens") or 0,
        )
        was, self._used = self._used, now
        if now != was:
            yield Usage(
                now.input_tokens - was.input_tokens,
                now.output_tokens - was.output_tokens,
                now.cached_tokens - was.cached_tokens,
                now.reasoning_tokens - was.reasoning_tokens,
            )
