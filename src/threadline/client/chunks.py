"""The AI SDK's stream read back: bytes in, events of the house out. Pure; the writer is the service's.

What the stream says only for the eyes of its own clients, where a part begins and ends, is passed over.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from threadline.core.errors import ServiceUnavailable
from threadline.core.events import (
    ApprovalRequest,
    Event,
    Failure,
    Finish,
    ReasoningDelta,
    ReasoningEnd,
    Restart,
    Source,
    Status,
    StepStart,
    TextDelta,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
)

STOPPED = "stopped by the user"
_DONE = b"[DONE]"


class Frame(NamedTuple):
    """One server-sent event: its id, if it has one, and its chunk; None is the end of the stream."""

    id: str | None
    chunk: dict[str, Any] | None


class FrameReader:
    """Takes a stream in pieces that may end anywhere. Only a newline ends a line: other characters that some readers
    take for one stand unescaped in JSON."""

    def __init__(self) -> None:
        self._rest = b""
        self._id: str | None = None
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[Frame]:
        """The frames that this piece completes. ServiceUnavailable for what is no chunk."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        frames = [self._line(line.removesuffix(b"\r")) for line in lines]
        return [frame for frame in frames if frame is not None]

    def _line(self, line: bytes) -> Frame | None:
        if line:
            self._field(line)
            return None
        data, frame_id = b"\n".join(self._data), self._id
        self._data, self._id = [], None
        if not data:
            return None
        return Frame(frame_id, None if data == _DONE else _chunk(data))

    def _field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"id":
            self._id = value.decode("utf-8", "replace")


def _chunk(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ServiceUnavailable("the service sent a stream that cannot be read") from exc


def to_event(chunk: dict[str, Any]) -> Event | None:
    """The event that a chunk tells of. ServiceUnavailable if a chunk lacks what its type has."""
    try:
        return _event(chunk)
    except KeyError as exc:
        raise ServiceUnavailable(f"the service sent a chunk without {exc}") from exc


def _event(chunk: dict[str, Any]) -> Event | None:
    match chunk.get("type"):
        case "text-delta":
            return TextDelta(chunk["delta"])
        case "reasoning-delta":
            return ReasoningDelta(chunk["delta"])
        case "reasoning-end":
            return ReasoningEnd()
        case "start-step":
            return StepStart()
        case "source-url":
            return Source(chunk["sourceId"], chunk["url"], chunk.get("title"))
        case "data-status":
            return Status(chunk["data"]["text"])
        case "data-again":
            return Restart()
        case "finish":
            return Finish(chunk.get("finishReason", "stop"))
        case "abort":
            return Failure(STOPPED)
        case "error":
            return Failure(chunk["errorText"])
    return _tool_event(chunk)


def _tool_event(chunk: dict[str, Any]) -> Event | None:
    match chunk.get("type"):
        case "tool-input-start":
            return ToolInputStart(chunk["toolCallId"], chunk["toolName"])
        case "tool-input-delta":
            return ToolInputDelta(chunk["toolCallId"], chunk["inputTextDelta"])
        case "tool-input-available":
            return ToolCall(chunk["toolCallId"], chunk["toolName"], chunk["input"])
        case "tool-approval-request":
            return ApprovalRequest(chunk["toolCallId"], chunk["approvalId"])
        case "tool-output-available":
            return ToolResult(chunk["toolCallId"], chunk["output"], chunk.get("preliminary", False))
        case "tool-output-error":
            return ToolError(chunk["toolCallId"], chunk["errorText"])
        case "tool-output-denied":
            return ToolDenied(chunk["toolCallId"])
    return None
