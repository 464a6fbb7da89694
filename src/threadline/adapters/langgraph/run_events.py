"""The stream of a LangGraph graph as events: messages of models and nodes, results of tools, what nodes write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage

from threadline.adapters.framework_agent import read_output
from threadline.core.errors import AgentFailed
from threadline.core.events import (
    Event,
    File,
    ReasoningDelta,
    Status,
    StepStart,
    TextDelta,
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
    Usage,
)


class RunEvents:
    def __init__(self) -> None:
        self._open: dict[str, AIMessageChunk] = {}
        """Messages that stream, by id, as far as they came."""
        self._seen: set[str] = set()
        self._called: set[str] = set()

    def read(self, mode: str, data: Any) -> Iterator[Event]:
        if mode == "messages":
            yield from self._message(data[0])
        elif mode == "custom":
            # `get_stream_writer()` in a node: events as they are, a text as a status.
            if isinstance(data, Event):
                yield data
            elif isinstance(data, str):
                yield Status(data)
        elif isinstance(data, dict):
            yield from self.flush()
            if waiting := data.get("__interrupt__"):
                raise AgentFailed(_describe_interrupt(waiting))

    def _message(self, message: BaseMessage) -> Iterator[Event]:
        if isinstance(message, AIMessageChunk):
            yield from self._chunk(message, message.id or "")
        elif isinstance(message, AIMessage):
            if message.id not in self._seen:
                self._seen.add(message.id or "")
                yield StepStart()
                yield from _content(message)
                yield from self._calls(message)
        elif isinstance(message, ToolMessage):
            yield from self.flush()
            yield from self._result(message)

    def _chunk(self, chunk: AIMessageChunk, message_id: str) -> Iterator[Event]:
        before = self._open.get(message_id)
        if before is None:
            yield from self.flush()
            self._seen.add(message_id)
            yield StepStart()
        self._open[message_id] = chunk if before is None else before + chunk
        yield from _content(chunk)
        for piece in chunk.tool_call_chunks:
            if piece["id"] and piece["name"]:
                yield ToolInputStart(piece["id"], piece["name"])
            call_id = piece["id"] or self._id_of(message_id, piece["index"])
            if call_id and piece["args"]:
                yield ToolInputDelta(call_id, piece["args"])
        if chunk.chunk_position == "last":
            yield from self.flush()

    def _id_of(self, message_id: str, index: Any) -> str | None:
        pieces = self._open[message_id].tool_call_chunks
        return next((piece["id"] for piece in pieces if piece["index"] == index), None)

    def flush(self) -> Iterator[Event]:
        """The calls of messages that have come to their end: their input is complete."""
        while self._open:
            _, message = self._open.popitem()
            yield from self._calls(message)

    def _calls(self, message: AIMessage) -> Iterator[Event]:
        # The input of an invalid call is the text that the model wrote.
        for call in [*message.tool_calls, *message.invalid_tool_calls]:
            call_id = str(call.get("id") or "")
            if call_id and call_id not in self._called:
                self._called.add(call_id)
                yield ToolCall(call_id, str(call.get("name") or "tool"), read_output(call.get("args")))

    def _result(self, message: ToolMessage) -> Iterator[Event]:
        if message.tool_call_id not in self._called or message.id in self._seen:
            return
        self._seen.add(message.id or "")
        if message.status == "error":
            yield ToolError(message.tool_call_id, str(message.text) or "failed")
        else:
            yield ToolResult(message.tool_call_id, read_output(message.content))


def _content(message: AIMessage) -> Iterator[Event]:
    for block in message.content_blocks:
        match block:
            case {"type": "text", "text": str(text)} if text:
                yield TextDelta(text)
            case {"type": "reasoning", "reasoning": str(text)} if text:
                yield ReasoningDelta(text)
            case {"type": "image", "base64": str(data), "mime_type": str(media)}:
                yield File(media, f"data:{media};base64,{data}")
    if used := message.usage_metadata:
        cached = (used.get("input_token_details") or {}).get("cache_read") or 0
        thought = (used.get("output_token_details") or {}).get("reasoning") or 0
        yield Usage(used["input_tokens"], used["output_tokens"], cached, thought)


def _describe_interrupt(waiting: Any) -> str:
    first = waiting[0].value if waiting else None
    asked = f" ({str(first)[:200]})" if first is not None else ""
    return (
        f"the graph called interrupt(){asked}, which nobody can answer here: an agent of Threadline must run without "
        "interrupts"
    )
