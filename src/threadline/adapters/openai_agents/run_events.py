"""The stream of an OpenAI Agents run as events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agents import RunItemStreamEvent

from threadline.adapters.framework_agent import read_input, read_output
from threadline.core.events import (
    Event,
    ReasoningDelta,
    ReasoningEnd,
    Source,
    StepStart,
    TextDelta,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
    Usage,
)


class RunEvents:
    """`known` are calls that have been reported already: those of the reply that a run continues."""

    def __init__(self, known: frozenset[str]) -> None:
        self._called = set(known)
        self._inputs: dict[str, str] = {}
        """Call ids of inputs that stream, by item id."""
        self._said = ""
        self._has_reasoned = False
        self._sources: set[str] = set()

    def read(self, event: Any) -> Iterator[Event]:
        if event.type == "raw_response_event":
            yield from self._raw(event.data)
        elif isinstance(event, RunItemStreamEvent):
            yield from self._item(event.name, event.item)

    def _raw(self, data: Any) -> Iterator[Event]:
        match data.type:
            case "response.created":
                self._said, self._has_reasoned = "", False
                yield StepStart()
            case "response.output_text.delta" | "response.refusal.delta":
                self._said += data.delta
                yield TextDelta(data.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._has_reasoned = True
                yield ReasoningDelta(data.delta)
            case "response.reasoning_summary_part.added" if self._has_reasoned:
                yield ReasoningDelta("\n\n")
            case "response.output_item.added" if data.item.type == "function_call":
                if data.item.call_id not in self._called:
                    self._inputs[data.item.id or ""] = data.item.call_id
                    yield ToolInputStart(data.item.call_id, data.item.name)
            case "response.function_call_arguments.delta" if data.item_id in self._inputs:
                yield ToolInputDelta(self._inputs[data.item_id], data.delta)
            case "response.completed" if data.response.usage is not None:
                yield _usage(data.response.usage)

    def _item(self, name: str, item: Any) -> Iterator[Event]:
        match name:
            case "message_output_created":
                yield from self._message(item.raw_item)
            case "reasoning_item_created":
                if not self._has_reasoned and (text := _reasoning(item.raw_item)):
                    yield ReasoningDelta(text)
                yield ReasoningEnd()
                self._has_reasoned = False
            case "tool_called" | "handoff_requested":
                yield from self._call(item.raw_item)
            case "tool_output" | "handoff_occured":
                call_id = str(_field(item.raw_item, "call_id") or "")
                output = getattr(item, "output", None)
                if call_id in self._called:
                    yield ToolResult(
                        call_id, read_output(_field(item.raw_item, "output") if output is None else output)
                    )

    def _message(self, message: Any) -> Iterator[Event]:
        """A message whose text did not stream, and what a message cites."""
        for content in message.content:
            text = getattr(content, "text", None) or getattr(content, "refusal", None) or ""
            if text and text not in self._said:
                yield TextDelta(text)
            for note in getattr(content, "annotations", None) or []:
                if note.type == "url_citation" and note.url not in self._sources:
                    self._sources.add(note.url)
                    yield Source(note.url, note.url, note.title or None)

    def _call(self, raw: Any) -> Iterator[Event]:
        kind = str(_field(raw, "type") or "")
        call_id = str(_field(raw, "call_id") or _field(raw, "id") or "")
        if not call_id or call_id in self._called:
            return
        self._called.add(call_id)
        if kind == "function_call":
            yield ToolCall(call_id, str(_field(raw, "name")), read_input(_field(raw, "arguments")))
            return
        # A tool that the model's provider ran (a search, code): the call has its result.
        yield ToolCall(call_id, kind.removesuffix("_call") or "tool", {})
        if _field(raw, "call_id") is None:
            yield ToolResult(call_id, read_output(raw))


def _field(raw: Any, name: str) -> Any:
    return raw.get(name) if isinstance(raw, dict) else getattr(raw, name, None)


def _reasoning(raw: Any) -> str:
    return "\n\n".join(part.text for part in [*(raw.summary or []), *(getattr(raw, "content", None) or [])])


def _usage(usage: Any) -> Usage:
    cached = getattr(usage.input_tokens_details, "cached_tokens", 0) or 0
    thought = getattr(usage.output_tokens_details, "reasoning_tokens", 0) or 0
    return Usage(usage.input_tokens or 0, usage.output_tokens or 0, cached, thought)
