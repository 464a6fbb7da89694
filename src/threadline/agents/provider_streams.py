"""Streams of Anthropic and OpenAI, as plain JSON data, into events. Pure: JSON in, events out, no connection.

Nothing about the JSON is certain: what has another shape raises RequestFailed. Token counts are the exception, because
a reply must not fail over a missing or odd count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from threadline.core import jsontext
from threadline.core.errors import InvalidInput
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
from threadline.net.retry import RequestFailed

_ANTHROPIC_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool-calls",
    "refusal": "content-filter",
}
_OPENAI_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
}


class _Block:
    def __init__(self, block: dict[str, Any]) -> None:
        self.kind = _text(block.get("type"))
        self.call_id = _text(block.get("id"))
        self.name = _text(block.get("name"))
        self.signature = _text(block.get("signature"))
        self.data = _text(block.get("data"))
        self.input_chunks: list[str] = []


class AnthropicStream:
    """One round of Anthropic's messages API: `feed` each event, then `end`.

    A thinking block's signature arrives after its text and is kept byte for byte, because Anthropic accepts the block
    only unchanged. A redacted block has no text."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._usage = Usage()
        self._reason = ""

    def feed(self, event: Any) -> Iterator[Event]:
        match event:
            case {"type": "message_start", "message": dict(message)}:
                self._add_usage(message.get("usage"))
            case {"type": "content_block_start", "index": int(index), "content_block": dict(given)}:
                self._blocks[index] = _Block(given)
                yield from self._start_block(self._blocks[index], given)
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)} if index in self._blocks:
                yield from self._extend_block(self._blocks[index], delta)
            case {"type": "content_block_stop", "index": int(index)} if index in self._blocks:
                yield from self._end_block(self._blocks[index])
            case {"type": "message_delta", "delta": dict(delta)}:
                self._reason = _text(delta.get("stop_reason")) or self._reason
                self._add_usage(event.get("usage"))
            case {"type": "message_start" | "content_block_start" | "content_block_delta" | "message_delta"}:
                raise _unreadable()
            case {"type": str()}:
                pass  # a ping, or an event type added after this was written
            case _:
                raise _unreadable()

    def _start_block(self, block: _Block, given: dict[str, Any]) -> Iterator[Event]:
        if block.kind == "tool_use":
            yield ToolInputStart(block.call_id, block.name)
        elif text := _text(given.get("text")):
            yield TextDelta(text)
        elif thinking := _text(given.get("thinking")):
            yield ReasoningDelta(thinking)

    def _extend_block(self, block: _Block, delta: dict[str, Any]) -> Iterator[Event]:
        match _text(delta.get("type")):
            case "text_delta":
                yield TextDelta(_text(delta.get("text")))
            case "thinking_delta":
                yield ReasoningDelta(_text(delta.get("thinking")))
            case "signature_delta":
                block.signature += _text(delta.get("signature"))
            case "input_json_delta":
                if chunk := _text(delta.get("partial_json")):
                    block.input_chunks.append(chunk)
                    yield ToolInputDelta(block.call_id, chunk)
            case "citations_delta":
                for citation in _objects([delta.get("citation") or {}]):
                    if url := _text(citation.get("url")):
                        yield Source(source_id=url, url=url, title=_text(citation.get("title")) or None)

    def _end_block(self, block: _Block) -> Iterator[Event]:
        match block.kind:
            case "thinking":
                yield ReasoningEnd({"anthropic": {"signature": block.signature}} if block.signature else None)
            case "redacted_thinking":
                yield ReasoningEnd({"anthropic": {"redactedData": block.data}})
            case "tool_use":
                yield ToolCall(block.call_id, block.name, _parse_input("".join(block.input_chunks)))

    def _add_usage(self, usage: Any) -> None:
        # The first event counts the prompt, the last one the reply; some servers send both at the end.
        cached = _token_count(usage, "cache_read_input_tokens")
        prompt = _token_count(usage, "input_tokens") + cached + _token_count(usage, "cache_creation_input_tokens")
        self._usage = Usage(
            input_tokens=max(self._usage.input_tokens, prompt),
            output_tokens=max(self._usage.output_tokens, _token_count(usage, "output_tokens")),
            cached_tokens=max(self._usage.cached_tokens, cached),
        )

    def end(self) -> Iterator[Event]:
        """Usage and finish reason. RequestFailed if the stream ended without a finish reason."""
        if not self._reason:
            raise _incomplete()
        yield self._usage
        yield Finish(_ANTHROPIC_REASONS.get(self._reason, "other"))


class _Call:
    def __init__(self, call_id: str, name: str) -> None:
        self.call_id = call_id
        self.name = name
        self.input_chunks: list[str] = []


class OpenAIStream:
    """One round of OpenAI's chat completions: `feed` each chunk, then `end`.

    Accepts what OpenAI-compatible servers do differently: reasoning under two names, tool calls whole or in chunks,
    with or without index and id, usage once or in every chunk, tool calls that finish with `stop`."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_key: dict[int | str | None, _Call] = {}
        self._reason = ""
        self._usage: Any = None

    def feed(self, chunk: Any) -> Iterator[Event]:
        for body in _objects([chunk]):
            self._usage = body.get("usage") or self._usage
            for choice in _objects(body.get("choices")):
                for delta in _objects([choice.get("delta") or {}]):
                    yield from self._read_delta(delta)
                self._reason = _text(choice.get("finish_reason")) or self._reason

    def _read_delta(self, delta: dict[str, Any]) -> Iterator[Event]:
        if reasoning := _text(delta.get("reasoning_content") or delta.get("reasoning")):
            yield ReasoningDelta(reasoning)
        if text := _text(delta.get("content")) + _text(delta.get("refusal")):
            yield TextDelta(text)
        for entry in _objects(delta.get("tool_calls")):
            yield from self._read_tool_call(entry)

    def _read_tool_call(self, entry: dict[str, Any]) -> Iterator[Event]:
        for function in _objects([entry.get("function") or {}]):
            name, arguments = _text(function.get("name")), _text(function.get("arguments"))
            call_id = _text(entry.get("id"))
            index = entry.get("index") if isinstance(entry.get("index"), int) else None
            call = self._find_call(index, call_id, is_start=bool(name))
            if call is None:
                call = _Call(call_id or f"call_{len(self._calls)}", name or "unnamed")
                self._calls.append(call)
                yield ToolInputStart(call.call_id, call.name)
            self._by_key[index] = self._by_key[call_id or call.call_id] = call
            if arguments:
                call.input_chunks.append(arguments)
                yield ToolInputDelta(call.call_id, arguments)

    def _find_call(self, index: int | None, call_id: str, *, is_start: bool) -> _Call | None:
        """The call that an entry continues: by its id, else by its index, else the last one."""
        if call_id in self._by_key:
            return self._by_key[call_id]
        # Some servers number every call 0 and distinguish them only by id, or not at all.
        if is_start and (call_id or index is None):
            return None
        return self._by_key.get(index) or (self._calls[-1] if self._calls and not is_start else None)

    def end(self) -> Iterator[Event]:
        """The complete calls, usage and finish reason. RequestFailed if the stream ended without a finish reason."""
        if not self._reason:
            raise _incomplete()
        for call in self._calls:
            yield ToolCall(call.call_id, call.name, _parse_input("".join(call.input_chunks)))
        if self._usage is not None:
            yield Usage(
                input_tokens=_token_count(self._usage, "prompt_tokens"),
                output_tokens=_token_count(self._usage, "completion_tokens"),
                cached_tokens=_token_count(self._usage, "prompt_tokens_details", "cached_tokens"),
                reasoning_tokens=_token_count(self._usage, "completion_tokens_details", "reasoning_tokens"),
            )
        yield Finish("tool-calls" if self._calls else _OPENAI_REASONS.get(self._reason, "other"))


def _unreadable() -> RequestFailed:
    return RequestFailed("the provider sent a reply that cannot be read", transient=True)


def _incomplete() -> RequestFailed:
    return RequestFailed("the provider stopped in the middle of its reply", transient=True)


def _text(value: Any) -> str:
    """A string; "" for null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _unreadable()
    return value


def _objects(value: Any) -> list[dict[str, Any]]:
    """A list of objects; [] for null."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise _unreadable()
    return value


def _token_count(value: Any, *path: str) -> int:
    """The count under these keys, 0 if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def _parse_input(text: str) -> Any:
    """A call's input. Text that is not JSON, for example because it was cut off, stays a string."""
    try:
        return jsontext.parse(text or "{}", "tool input")
    except InvalidInput:
        return text
