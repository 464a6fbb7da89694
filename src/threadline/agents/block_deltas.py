"""Anthropic's streamed events into ours. Pure: events in, events out, no connection.

A thinking block's signature arrives after its text and closes it, and goes into the metadata byte for byte, because the
block must go back exactly as it came. A redacted one has no text at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from threadline.agents.chat_deltas import arguments_of
from threadline.agents.patience import Fault
from threadline.core.events import (
    Event,
    Finish,
    FinishReason,
    ReasoningDelta,
    ReasoningEnd,
    Source,
    TextDelta,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)

_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool-calls",
    "refusal": "content-filter",
}


class _Block:
    def __init__(self, block: Any) -> None:
        self.kind: str = block.type
        self.call_id: str = getattr(block, "id", None) or ""
        self.name: str = getattr(block, "name", None) or ""
        self.pieces: list[str] = []
        self.signature = getattr(block, "signature", None) or ""
        self.data = getattr(block, "data", None)


class BlockDeltas:
    """One round. `feed` each event, then `end`."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._input_tokens = 0
        self._cached_tokens = 0
        self._output_tokens = 0
        self._reason: str | None = None

    def feed(self, event: Any) -> list[Event]:
        """Fault where the event is of another shape: the client does not check what it reads."""
        try:
            return list(self._events(event))
        except (TypeError, AttributeError, KeyError) as exc:
            raise Fault("The provider sent an answer that cannot be read.", passing=True) from exc

    def _events(self, event: Any) -> Iterator[Event]:
        match event.type:
            case "message_start":
                self._count(event.message.usage)
            case "content_block_start":
                block = self._blocks[event.index] = _Block(event.content_block)
                yield from self._begin(block, event.content_block)
            case "content_block_delta":
                yield from self._delta(self._blocks[event.index], event.delta)
            case "content_block_stop":
                yield from self._end_block(self._blocks[event.index])
            case "message_delta":
                self._reason = event.delta.stop_reason or self._reason
                self._count(event.usage)

    def _begin(self, block: _Block, given: Any) -> Iterator[Event]:
        if block.kind == "tool_use":
            yield ToolInputStart(block.call_id, block.name)
        elif block.kind == "text" and given.text:
            yield TextDelta("" + given.text)
        elif block.kind == "thinking" and given.thinking:
            yield ReasoningDelta("" + given.thinking)

    def _delta(self, block: _Block, delta: Any) -> Iterator[Event]:
        match delta.type:
            case "text_delta":
                yield TextDelta("" + delta.text)
            case "thinking_delta":
                yield ReasoningDelta("" + delta.thinking)
            case "signature_delta":
                block.signature += delta.signature
            case "input_json_delta" if delta.partial_json:
                block.pieces.append(delta.partial_json)
                yield ToolInputDelta(block.call_id, delta.partial_json)
            case "citations_delta":
                url = getattr(delta.citation, "url", None)
                if url:
                    yield Source(source_id=url, url=url, title=getattr(delta.citation, "title", None))

    def _end_block(self, block: _Block) -> Iterator[Event]:
        match block.kind:
            case "thinking":
                yield ReasoningEnd({"anthropic": {"signature": block.signature}} if block.signature else None)
            case "redacted_thinking":
                yield ReasoningEnd({"anthropic": {"redactedData": block.data}})
            case "tool_use":
                yield ToolCall(block.call_id, block.name, arguments_of("".join(block.pieces)))

    def _count(self, usage: Any) -> None:
        read = getattr(usage, "cache_read_input_tokens", None) or 0
        written = getattr(usage, "cache_creation_input_tokens", None) or 0
        # The first event counts the prompt, the last one the answer; some servers say both at the end.
        self._input_tokens = max(self._input_tokens, (getattr(usage, "input_tokens", None) or 0) + read + written)
        self._cached_tokens = max(self._cached_tokens, read)
        self._output_tokens = max(self._output_tokens, getattr(usage, "output_tokens", None) or 0)

    def end(self) -> Iterator[Event]:
        """What it cost and why it ended. Fault if the provider never said that it had."""
        if self._reason is None:
            raise Fault("The provider broke off in the middle of its answer.", passing=True)
        yield Usage(self._input_tokens, self._output_tokens, self._cached_tokens)
        yield Finish(_REASONS.get(self._reason, "other"))
