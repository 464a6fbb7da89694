"""Events as UI message chunks, which the npm package `ai` reads while a turn runs.

The clients are strict: an unknown type, an extra key, a null or a delta before its start is an error, and a part that
is not ended stays "streaming" for ever. So the writer tracks the open part, closes it before the next one starts, and
leaves out absent keys. How the stream ends depends on the turn's stored status, not on the agent's last event: `end`
writes it, and nothing is written after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from threadline.core import jsontext
from threadline.core.events import (
    ApprovalRequest,
    Data,
    Event,
    Failure,
    File,
    FinalText,
    Finish,
    FinishReason,
    MessageMetadata,
    ReasoningDelta,
    ReasoningEnd,
    Restart,
    Source,
    SourceDocument,
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
from threadline.core.turns import TurnStatus

OLDEST = 5
"""The oldest supported major version of the AI SDK. It has no approvals and stops reading at one; its releases before
5.0.92 also stop at a finish reason."""

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-store",
    "X-Vercel-AI-UI-Message-Stream": "v1",
    "X-Accel-Buffering": "no",
}


class ChunkWriter:
    """One per stream. Gets every event of the turn from the first, because the open part depends on all of them.

    `major` is the version of the client's AI SDK, None if the client does not say: then the stream is one that every
    release reads, except for approval requests, which only version 5 cannot read."""

    def __init__(self, message_id: str, major: int | None = None) -> None:
        self._message_id = message_id
        self._has_approvals = major is None or major > OLDEST
        self._has_reason = major is not None and major > OLDEST
        self._open: Literal["text", "reasoning"] | None = None
        self._parts = 0
        self._in_step = False
        self._reason: FinishReason | None = None

    def start(self, event_id: str | None = None) -> bytes:
        """The first chunk: the id under which the reply will be stored."""
        return frame({"type": "start", "messageId": self._message_id}, event_id)

    def event(self, event: Event, event_id: str | None = None) -> bytes:
        """The chunks of one event. Only the last one has the event's id: a reader that has it has all of them."""
        if type(event) is TextDelta and self._open == "text":
            # Nearly every event of a long reply.
            delta = jsontext.dump(event.text, "chunk")
            head = b"" if event_id is None else b"id: %s\n" % event_id.encode()
            return b'%sdata: {"type":"text-delta","id":"%s","delta":%s}\n\n' % (head, self._part_id.encode(), delta)
        chunks = list(self._chunks(event))
        if not chunks:
            return b""
        return b"".join(frame(chunk) for chunk in chunks[:-1]) + frame(chunks[-1], event_id)

    def end(self, status: TurnStatus, error: str | None = None) -> bytes:
        """Closes the open part and writes how the turn ended."""
        chunks = [*self._close(), *self._end_step(), self._ending(status, error)]
        return b"".join(map(frame, chunks)) + DONE

    def _chunks(self, event: Event) -> Iterator[dict[str, Any]]:
        match event:
            case TextDelta():
                yield from self._delta("text", event.text)
            case ReasoningDelta():
                yield from self._delta("reasoning", event.text)
            case ReasoningEnd():
                yield from self._close()
            case Status():
                yield {"type": "data-status", "data": {"text": event.text}, "transient": True}
            case FinalText():
                yield from self._correct(event.text)
            case Source() | SourceDocument() | File() | Data() | MessageMetadata():
                yield _content_chunk(event)
            case StepStart() | Restart() | Finish() | Failure():
                yield from self._boundary(event)
            case ToolInputStart() | ToolCall():
                yield from self._close()
                yield from _tool_chunk(event)
            case ApprovalRequest() | ToolDenied() if not self._has_approvals:
                yield from _without_approvals(event)
            case _:
                yield from _tool_chunk(event)

    def _boundary(self, event: StepStart | Restart | Finish | Failure) -> Iterator[dict[str, Any]]:
        yield from self._close()
        yield from self._end_step()
        match event:
            case StepStart():
                self._in_step = True
                yield {"type": "start-step"}
            case Restart():
                # The protocol cannot retract output. Clients that know this chunk discard it, others when they reload.
                yield {"type": "data-again", "data": {}, "transient": True}
            case Finish():
                self._reason = event.reason

    def _correct(self, text: str) -> Iterator[dict[str, Any]]:
        """The final text differs from what was streamed. The protocol cannot replace a text, so the right one follows
        as a text of its own. Clients that know the chunk before it discard the texts since the last tool call."""
        yield from self._close()
        yield {"type": "data-corrected", "data": {}, "transient": True}
        yield from self._delta("text", text)

    def _delta(self, kind: Literal["text", "reasoning"], text: str) -> Iterator[dict[str, Any]]:
        if self._open != kind:
            yield from self._close()
            self._open = kind
            self._parts += 1
            yield {"type": f"{kind}-start", "id": self._part_id}
        yield {"type": f"{kind}-delta", "id": self._part_id, "delta": text}

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            yield {"type": f"{self._open}-end", "id": self._part_id}
            self._open = None

    def _end_step(self) -> Iterator[dict[str, Any]]:
        if self._in_step:
            self._in_step = False
            yield {"type": "finish-step"}

    def _ending(self, status: TurnStatus, error: str | None) -> dict[str, Any]:
        match status:
            case "executed" if self._has_reason:
                return {"type": "finish", "finishReason": self._reason or "stop"}
            case "executed":
                return {"type": "finish"}
            case "stopped":
                return {"type": "abort"}
        return {"type": "error", "errorText": error or f"turn ended with status {status}"}

    @property
    def _part_id(self) -> str:
        return f"p{self._parts}"


def _tool_chunk(event: Event) -> Iterator[dict[str, Any]]:
    match event:
        case ToolInputStart():
            yield {"type": "tool-input-start", "toolCallId": event.call_id, "toolName": event.name}
        case ToolInputDelta():
            yield {"type": "tool-input-delta", "toolCallId": event.call_id, "inputTextDelta": event.text}
        case ToolCall():
            yield {
                "type": "tool-input-available",
                "toolCallId": event.call_id,
                "toolName": event.name,
                "input": event.input,
            }
        case ApprovalRequest():
            yield {"type": "tool-approval-request", "approvalId": event.approval_id, "toolCallId": event.call_id}
        case ToolResult():
            chunk = {"type": "tool-output-available", "toolCallId": event.call_id, "output": event.output}
            yield {**chunk, "preliminary": True} if event.preliminary else chunk
        case ToolError():
            yield {"type": "tool-output-error", "toolCallId": event.call_id, "errorText": event.error}
        case ToolDenied():
            yield {"type": "tool-output-denied", "toolCallId": event.call_id}


def _content_chunk(event: Source | SourceDocument | File | Data | MessageMetadata) -> dict[str, Any]:
    match event:
        case Source():
            chunk = {"type": "source-url", "sourceId": event.source_id, "url": event.url}
            return _with(chunk, title=event.title)
        case SourceDocument():
            head = {"type": "source-document", "sourceId": event.source_id, "mediaType": event.media_type}
            return _with(head, title=event.title, filename=event.filename)
        case File():
            # The chunk has no place for a file name; the stored part has it.
            return {"type": "file", "url": event.url, "mediaType": event.media_type}
        case Data():
            head = {"type": f"data-{event.name}", "data": event.data}
            return _with(head, id=event.id, transient=event.transient or None)
        case MessageMetadata():
            return {"type": "message-metadata", "messageMetadata": event.metadata}


def _with(chunk: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The chunk with those keys that have a value: clients reject a null."""
    return chunk | {key: value for key, value in more.items() if value is not None}


def _without_approvals(event: ApprovalRequest | ToolDenied) -> Iterator[dict[str, Any]]:
    """For version 5: a pending call has no result yet, and a denial is an error."""
    if isinstance(event, ToolDenied):
        denied = "denied" if event.reason is None else f"denied: {event.reason}"
        yield {"type": "tool-output-error", "toolCallId": event.call_id, "errorText": denied}


def frame(chunk: dict[str, Any], event_id: str | None = None) -> bytes:
    """One server-sent event. JSON has no raw newline, so no text can end the event early."""
    head = b"" if event_id is None else b"id: %s\n" % event_id.encode()
    return head + b"data: " + jsontext.dump(chunk, "chunk") + b"\n\n"
