"""OpenAI's streamed chunks, as plain JSON data, into events. Pure: chunks in, events out, no connection.

OpenAI-compatible servers differ in small ways, and all of these are taken: reasoning under two names, tool calls whole
or in pieces, with or without index and id, usage once or in every chunk, calls that end with `stop`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from threadline.agents.json_shapes import count, inputs_of, objects, text
from threadline.core.events import (
    Event,
    Finish,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)
from threadline.net.retry import Fault

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
}


class _Call:
    def __init__(self, call_id: str, name: str) -> None:
        self.call_id = call_id
        self.name = name
        self.pieces: list[str] = []


class ChatDeltas:
    """One round. `feed` each chunk, then `end`. Fault where a chunk is of another shape."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_key: dict[int | str | None, _Call] = {}
        self._reason = ""
        self._usage: Any = None

    def feed(self, chunk: Any) -> Iterator[Event]:
        for body in objects([chunk]):
            self._usage = body.get("usage") or self._usage
            for choice in objects(body.get("choices")):
                for delta in objects([choice.get("delta") or {}]):
                    yield from self._delta(delta)
                self._reason = text(choice.get("finish_reason")) or self._reason

    def _delta(self, delta: dict[str, Any]) -> Iterator[Event]:
        if thought := text(delta.get("reasoning_content") or delta.get("reasoning")):
            yield ReasoningDelta(thought)
        if said := text(delta.get("content")) + text(delta.get("refusal")):
            yield TextDelta(said)
        for piece in objects(delta.get("tool_calls")):
            yield from self._tool_call(piece)

    def _tool_call(self, piece: dict[str, Any]) -> Iterator[Event]:
        for function in objects([piece.get("function") or {}]):
            name, arguments, call_id = (
                text(function.get("name")),
                text(function.get("arguments")),
                text(piece.get("id")),
            )
            index = piece.get("index") if isinstance(piece.get("index"), int) else None
            call = self._known(index, call_id, begins=bool(name))
            if call is None:
                call = _Call(call_id or f"call_{len(self._calls)}", name or "unnamed")
                self._calls.append(call)
                yield ToolInputStart(call.call_id, call.name)
            self._by_key[index] = self._by_key[call_id or call.call_id] = call
            if arguments:
                call.pieces.append(arguments)
                yield ToolInputDelta(call.call_id, arguments)

    def _known(self, index: int | None, call_id: str, *, begins: bool) -> _Call | None:
        """The call that a piece goes on with: by its id, else by its index, else the last one."""
        if call_id in self._by_key:
            return self._by_key[call_id]
        # Some servers number every call 0 and tell them apart by their ids alone, or not even by these.
        if begins and (call_id or index is None):
            return None
        return self._by_key.get(index) or (self._calls[-1] if self._calls and not begins else None)

    def end(self) -> Iterator[Event]:
        """The complete calls, what it cost, and why it ended. Fault if the provider never said that it had."""
        if not self._reason:
            raise Fault("The provider broke off in the middle of its answer.", passing=True)
        for call in self._calls:
            yield ToolCall(call.call_id, call.name, inputs_of("".join(call.pieces)))
        if self._usage is not None:
            yield _usage(self._usage)
        yield Finish("tool-calls" if self._calls else _REASONS.get(self._reason, "other"))


def _usage(usage: Any) -> Usage:
    return Usage(
        input_tokens=count(usage, "prompt_tokens"),
        output_tokens=count(usage, "completion_tokens"),
        cached_tokens=count(usage, "prompt_tokens_details", "cached_tokens"),
        reasoning_tokens=count(usage, "completion_tokens_details", "reasoning_tokens"),
    )
