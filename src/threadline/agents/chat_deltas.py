"""OpenAI's streamed chunks into events. Pure: chunks in, events out, no connection.

OpenAI-compatible servers differ in small ways, and all of these are taken: reasoning under two names, tool calls whole
or in pieces, with or without index and id, usage once or in every chunk, calls that end with `stop`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from threadline.agents.patience import Fault
from threadline.core import jsontext
from threadline.core.errors import InvalidInput
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
    """One round. `feed` each chunk, then `end`."""

    def __init__(self) -> None:
        self._calls: dict[int | str, _Call] = {}
        self._reason: str | None = None
        self._usage: Any = None

    def feed(self, chunk: Any) -> list[Event]:
        """Fault where the chunk is of another shape: the client does not check what it reads."""
        try:
            return list(self._events(chunk))
        except (TypeError, AttributeError) as exc:
            raise Fault("The provider sent an answer that cannot be read.", passing=True) from exc

    def _events(self, chunk: Any) -> Iterator[Event]:
        if getattr(chunk, "usage", None) is not None:
            self._usage = chunk.usage
        for choice in chunk.choices or ():
            if choice.delta is not None:
                yield from self._delta(choice.delta)
            self._reason = choice.finish_reason or self._reason

    def _delta(self, delta: Any) -> Iterator[Event]:
        thought = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if isinstance(thought, str) and thought:
            yield ReasoningDelta(thought)
        for text in (delta.content, getattr(delta, "refusal", None)):
            if text:
                yield TextDelta("" + text)
        for piece in delta.tool_calls or ():
            yield from self._tool_call(piece)

    def _tool_call(self, piece: Any) -> Iterator[Event]:
        function = piece.function
        name, arguments = (function.name or "", function.arguments or "") if function is not None else ("", "")
        key = piece.index if piece.index is not None else piece.id or len(self._calls) - (0 if name else 1)
        call = self._calls.get(key)
        if call is None or (name and piece.id and piece.id != call.call_id):
            # Some servers number every call 0 and tell them apart by their ids alone.
            key = key if call is None else piece.id
            call = self._calls[key] = _Call(piece.id or f"call_{len(self._calls)}", name or "unnamed")
            yield ToolInputStart(call.call_id, call.name)
        if arguments:
            call.pieces.append(arguments)
            yield ToolInputDelta(call.call_id, arguments)

    def end(self) -> Iterator[Event]:
        """The complete calls, what it cost, and why it ended. Fault if the provider never said that it had."""
        if self._reason is None:
            raise Fault("The provider broke off in the middle of its answer.", passing=True)
        for call in self._calls.values():
            yield ToolCall(call.call_id, call.name, arguments_of("".join(call.pieces)))
        if self._usage is not None:
            yield _usage(self._usage)
        yield Finish("tool-calls" if self._calls else _REASONS.get(self._reason, "other"))


def arguments_of(text: str) -> Any:
    """A call's input; what is no JSON (it was cut off, say) stays the string it was."""
    try:
        return jsontext.parse(text or "{}", "tool input")
    except InvalidInput:
        return text


def _usage(usage: Any) -> Usage:
    prompt = getattr(usage, "prompt_tokens_details", None)
    completion = getattr(usage, "completion_tokens_details", None)
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cached_tokens=getattr(prompt, "cached_tokens", None) or 0,
        reasoning_tokens=getattr(completion, "reasoning_tokens", None) or 0,
    )
