"""Replays a stored reply as events, for readers of a stream whose chunks were dropped.

Folding these events gives the parts again. Deltas and statuses are lost: a text comes as one delta.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from threadline.core.events import (
    ApprovalRequest,
    Data,
    Event,
    File,
    ReasoningDelta,
    ReasoningEnd,
    Source,
    SourceDocument,
    StepStart,
    TextDelta,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputStart,
    ToolResult,
)
from threadline.core.parts import (
    DataPart,
    FilePart,
    Part,
    ReasoningPart,
    SourceDocumentPart,
    SourceUrlPart,
    StepStartPart,
    TextPart,
    ToolPart,
)


def replay_events(parts: Iterable[Part], *, known: int = 0, still_open: Collection[str] = ()) -> list[Event]:
    """The first `known` parts were there before the stream began: of those, only the results of `still_open` calls."""
    found: list[Event] = []
    for number, part in enumerate(parts):
        if number >= known:
            found += _events_of(part)
        elif isinstance(part, ToolPart) and part.call_id in still_open:
            found += _outcome(part)
    return found


def _events_of(part: Part) -> list[Event]:
    match part:
        case TextPart():
            return [TextDelta(part.text)]
        case ReasoningPart():
            ended = ReasoningEnd(part.provider_metadata)
            return [ReasoningDelta(part.text), ended] if part.text else [ended]
        case StepStartPart():
            return [StepStart()]
        case SourceUrlPart():
            return [Source(part.source_id, part.url, part.title)]
        case SourceDocumentPart():
            return [SourceDocument(part.source_id, part.media_type, part.title, part.filename)]
        case FilePart():
            return [File(part.media_type, part.url, part.filename)]
        case DataPart():
            return [Data(part.name, part.data, part.id)]
        case ToolPart(state="input-streaming"):
            return [ToolInputStart(part.call_id, part.name)]
        case ToolPart():
            return [ToolCall(part.call_id, part.name, part.input_value()), *_outcome(part)]
    return []


def _outcome(part: ToolPart) -> list[Event]:
    match part.state:
        case "output-available":
            return [ToolResult(part.call_id, part.output_value())]
        case "output-error":
            return [ToolError(part.call_id, part.error or "")]
        case "output-denied":
            return [ToolDenied(part.call_id, None if part.approval is None else part.approval.reason)]
        case "approval-requested" if part.approval is not None:
            return [ApprovalRequest(part.call_id, part.approval.id)]
    return []
