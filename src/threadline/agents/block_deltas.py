"""Anthropic's streamed events, as plain JSON data, into ours. Pure: events in, events out, no connection.

A thinking block's signature arrives after its text and closes it, and goes into the metadata byte for byte, because the
block must go back exactly as it came. A redacted one has no text at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from threadline.agents.json_shapes import count, inputs_of, objects, text, unreadable
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
from threadline.net.retry import Fault

_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool-calls",
    "refusal": "content-filter",
}


class _Block:
    def __init__(self, block: dict[str, Any]) -> None:
        self.kind = text(block.get("type"))
        self.call_id = text(block.get("id"))
        self.name = text(block.get("name"))
        self.signature = text(block.get("signature"))
        self.data = text(block.get("data"))
        self.pieces: list[str] = []


class BlockDeltas:
    """One round. `feed` each event, then `end`. Fault where an event is of another shape."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._usage = Usage()
        self._reason = ""

    def feed(self, event: Any) -> Iterator[Event]:
        match event:
            case {"type": "message_start", "message": dict(message)}:
                self._count(message.get("usage"))
            case {"type": "content_block_start", "index": int(index), "content_block": dict(given)}:
                self._blocks[index] = _Block(given)
                yield from self._begin(self._blocks[index], given)
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)} if index in self._blocks:
                yield from self._delta(self._blocks[index], delta)
            case {"type": "content_block_stop", "index": int(index)} if index in self._blocks:
                yield from self._end_block(self._blocks[index])
            case {"type": "message_delta", "delta": dict(delta)}:
                self._reason = text(delta.get("stop_reason")) or self._reason
                self._count(event.get("usage"))
            case {"type": "message_start" | "content_block_start" | "content_block_delta" | "message_delta"}:
                raise unreadable()
            case {"type": str()}:
                pass  # a ping, or a kind of tomorrow
            case _:
                raise unreadable()

    def _begin(self, block: _Block, given: dict[str, Any]) -> Iterator[Event]:
        if block.kind == "tool_use":
            yield ToolInputStart(block.call_id, block.name)
        elif said := text(given.get("text")):
            yield TextDelta(said)
        elif thought := text(given.get("thinking")):
            yield ReasoningDelta(thought)

    def _delta(self, block: _Block, delta: dict[str, Any]) -> Iterator[Event]:
        match text(delta.get("type")):
            case "text_delta":
                yield TextDelta(text(delta.get("text")))
            case "thinking_delta":
                yield ReasoningDelta(text(delta.get("thinking")))
            case "signature_delta":
                block.signature += text(delta.get("signature"))
            case "input_json_delta":
                if piece := text(delta.get("partial_json")):
                    block.pieces.append(piece)
                    yield ToolInputDelta(block.call_id, piece)
            case "citations_delta":
                for citation in objects([delta.get("citation") or {}]):
                    if url := text(citation.get("url")):
                        yield Source(source_id=url, url=url, title=text(citation.get("title")) or None)

    def _end_block(self, block: _Block) -> Iterator[Event]:
        match block.kind:
            case "thinking":
                yield ReasoningEnd({"anthropic": {"signature": block.signature}} if block.signature else None)
            case "redacted_thinking":
                yield ReasoningEnd({"anthropic": {"redactedData": block.data}})
            case "tool_use":
                yield ToolCall(block.call_id, block.name, inputs_of("".join(block.pieces)))

    def _count(self, usage: Any) -> None:
        """The first event counts the prompt, the last one the answer; some servers say both at the end."""
        read = count(usage, "cache_read_input_tokens")
        asked = count(usage, "input_tokens") + read + count(usage, "cache_creation_input_tokens")
        self._usage = Usage(
            input_tokens=max(self._usage.input_tokens, asked),
            output_tokens=max(self._usage.output_tokens, count(usage, "output_tokens")),
            cached_tokens=max(self._usage.cached_tokens, read),
        )

    def end(self) -> Iterator[Event]:
        """What it cost and why it ended. Fault if the provider never said that it had."""
        if not self._reason:
            raise Fault("The provider broke off in the middle of its answer.", passing=True)
        yield self._usage
        yield Finish(_REASONS.get(self._reason, "other"))
