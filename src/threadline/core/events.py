"""Events: what an agent emits while it runs.

Agents emit them, turns fold them into a message, streams carry them, surfaces render them. An event is a frozen value
with a `type` tag; its JSON is what a stream stores for replay. Deltas belong to the open part, which is closed when
another text, reasoning, tool call or step begins. A result changes the part of its call and closes nothing; neither
does a source, a file, a data part, a status or a usage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

FinishReason: TypeAlias = Literal["stop", "length", "content-filter", "tool-calls", "error", "other"]


# Deltas are not known to the garbage collector: there are many, and they refer to nothing but a text.
class TextDelta(msgspec.Struct, frozen=True, gc=False, tag="text-delta"):
    text: str


class FinalText(msgspec.Struct, frozen=True, tag="final-text"):
    """The whole text since the last tool call, from an agent that repeats its text at the end. The stored reply has it.

    Folding publishes what it adds to the deltas as a TextDelta, so a stream carries a FinalText only where the two
    differ. A surface that can correct what it showed does so; others ignore it."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False, tag="reasoning-delta"):
    text: str


class ReasoningEnd(msgspec.Struct, frozen=True, tag="reasoning-end"):
    """Closes the open reasoning; `metadata` is the provider's signature, stored byte for byte. With no reasoning open,
    metadata alone is a reasoning without text: an encrypted one."""

    metadata: dict[str, Any] | None = None


class ToolInputStart(msgspec.Struct, frozen=True, tag="tool-input-start"):
    call_id: str
    name: str


class ToolInputDelta(msgspec.Struct, frozen=True, gc=False, tag="tool-input-delta"):
    call_id: str
    text: str


class ToolCall(msgspec.Struct, frozen=True, tag="tool-call"):
    """The call is complete. `input` is plain JSON data; a malformed input is kept as the string it was."""

    call_id: str
    name: str
    input: Any


class ApprovalRequest(msgspec.Struct, frozen=True, tag="approval-request"):
    call_id: str
    approval_id: str


class ToolResult(msgspec.Struct, frozen=True, tag="tool-result"):
    """The result of a call. A preliminary one is streamed and not stored; only the last is stored."""

    call_id: str
    output: Any = None
    preliminary: bool = False


class ToolError(msgspec.Struct, frozen=True, tag="tool-error"):
    call_id: str
    error: str


class ToolDenied(msgspec.Struct, frozen=True, tag="tool-denied"):
    call_id: str
    reason: str | None = None


class Source(msgspec.Struct, frozen=True, tag="source"):
    """A web page that the reply is based on."""

    source_id: str
    url: str
    title: str | None = None


class SourceDocument(msgspec.Struct, frozen=True, tag="source-document"):
    """A document that the reply is based on."""

    source_id: str
    media_type: str
    title: str
    filename: str | None = None


class File(msgspec.Struct, frozen=True, tag="file"):
    """A file as part of the reply, by a `data:`, `https:` or `http:` URL. What a message may hold limits its size."""

    media_type: str
    url: str
    filename: str | None = None


class Data(msgspec.Struct, frozen=True, tag="data"):
    """A part of an application's own kind, `data-NAME` for clients of the AI SDK. One with the name and the id of an
    earlier one replaces it. A transient one is shown to current readers and not stored."""

    name: str
    data: Any
    id: str | None = None
    transient: bool = False


class MessageMetadata(msgspec.Struct, frozen=True, tag="message-metadata"):
    """Metadata of the reply, merged into what earlier events gave; objects are merged key by key. The keys `status` and
    `limit` are Threadline's."""

    metadata: dict[str, Any]


class StepStart(msgspec.Struct, frozen=True, tag="step-start"):
    """A round of the model begins."""


class Restart(msgspec.Struct, frozen=True, tag="again"):
    """The process that ran the agent is gone and another one runs it again: events before this no longer count."""


class Status(msgspec.Struct, frozen=True, tag="status"):
    """Shown to current readers; never stored in a message."""

    text: str


class Usage(msgspec.Struct, frozen=True, tag="usage"):
    """Tokens used; summed over a turn and stored in the turn's row, never streamed and never in a message."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    reason: FinishReason = "stop"


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The agent failed; `error` may be shown to the user."""

    error: str


Event: TypeAlias = (
    TextDelta
    | FinalText
    | ReasoningDelta
    | ReasoningEnd
    | ToolInputStart
    | ToolInputDelta
    | ToolCall
    | ApprovalRequest
    | ToolResult
    | ToolError
    | ToolDenied
    | Source
    | SourceDocument
    | File
    | Data
    | MessageMetadata
    | StepStart
    | Restart
    | Status
    | Usage
    | Finish
    | Failure
)

_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Event] = msgspec.json.Decoder(Event).decode


def to_json(event: Event) -> bytes:
    return _encode(event)


def from_json(raw: bytes) -> Event:
    return _decode(raw)
