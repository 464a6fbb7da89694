"""Folds a turn's events, one by one, into the parts of its reply and into what is published.

`add` takes what the agent emitted and returns what readers are sent: the same events without usage, without results
that belong to no call, with sanitized text and distinct call ids. Folding what was published gives the same parts, so
what is streamed and what is stored agree. `parts` can be read at any moment and contains what was shown until then.
`add` never raises, whatever an agent emits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from threadline.core.agent_anomalies import AnomalyCounter
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
    Usage,
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
from threadline.core.tool_calls import Call, Calls, Taken

Published: TypeAlias = tuple[Event, ...]

_RESERVED_METADATA = frozenset(("status", "limit"))
"""How a reply ended is written under these keys; an agent's metadata cannot set them."""
_Reference = TypeVar("_Reference", bound=Source | SourceDocument | File)
_FILE_SCHEMES = ("data:", "https://", "http://")


class _Text:
    def __init__(self) -> None:
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def part(self) -> Part:
        return TextPart(self.text)


class _Reasoning(_Text):
    metadata: dict[str, Any] | None = None

    def part(self) -> Part:
        return ReasoningPart(self.text, self.metadata)


class Fold:
    """The reply of one turn so far. `usage`, `finish` and `failure` are for the turn, never for the message; `metadata`
    is the message's.

    `begun` is what the reply contained before this turn: its parts come first, its open calls wait for results.
    `metadata` is what it had."""

    def __init__(self, begun: Sequence[Part] = (), metadata: dict[str, Any] | None = None) -> None:
        self.usage = Usage()
        self.finish: FinishReason | None = None
        self.failure: str | None = None
        self.anomalies = AnomalyCounter()
        self._begun = begun
        self._begun_metadata = agent_metadata(metadata or {})
        self._open: _Text | None = None
        self._restart()

    def _restart(self) -> None:
        self.metadata = self._begun_metadata
        self._calls = Calls(self.anomalies)
        self._pieces: list[_Text | Call | Part] = [
            self._calls.restore(part) if isinstance(part, ToolPart) else part for part in self._begun
        ]
        self._since_call = len(self._pieces)

    def parts(self) -> tuple[Part, ...]:
        """The reply so far: what was shown, in that order."""
        return tuple(piece.part() if isinstance(piece, _Text | Call) else piece for piece in self._pieces)

    @property
    def part_count(self) -> int:
        return len(self._pieces)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was shown: then there is no message to store. A step's start is not shown."""
        return not any(
            bool(piece.text.strip()) if isinstance(piece, _Text) else not isinstance(piece, StepStartPart)
            for piece in self._pieces
        )

    def add(self, event: Event) -> Published:
        """Folds the event in and returns what to publish of it."""
        match event:
            case TextDelta():
                return self._add_text(event.text)
            case FinalText():
                return self._settle_text(event)
            case ReasoningDelta():
                return self._add_reasoning(event)
            case ReasoningEnd():
                return self._end_reasoning(event)
            case ToolInputStart() | ToolInputDelta() | ToolCall():
                return self._add_call(self._calls.take(event))
            case ApprovalRequest() | ToolResult() | ToolError() | ToolDenied():
                return self._calls.answer(event).published
            case Source() | SourceDocument() | File():
                return self._add_reference(event)
            case Data():
                return self._add_data(event)
            case MessageMetadata():
                return self._add_metadata(event)
            case Status():
                return (Status(self.anomalies.sanitize_text(event.text)),)
            case Usage():
                self.usage = _sum(self.usage, event)
                return ()
        return self._mark(event)

    def _mark(self, event: StepStart | Restart | Finish | Failure) -> Published:
        self._open = None
        match event:
            case Restart():
                self._restart()
            case StepStart():
                self._pieces.append(StepStartPart())
            case Finish():
                self.finish = event.reason
            case Failure():
                self.failure = self.anomalies.sanitize_text(event.error)
                return (Failure(self.failure),)
        return (event,)

    def _add_text(self, text: str) -> Published:
        if not text:
            return ()
        if type(self._open) is not _Text:
            self._begin(_Text())
        return (TextDelta(self._extend(text)),)

    def _add_reasoning(self, event: ReasoningDelta) -> Published:
        if not event.text:
            return ()
        if not isinstance(self._open, _Reasoning):
            self._begin(_Reasoning())
        return (ReasoningDelta(self._extend(event.text)),)

    def _begin(self, piece: _Text) -> None:
        self._open = piece
        self._pieces.append(piece)

    def _extend(self, text: str) -> str:
        assert self._open is not None
        sanitized = self.anomalies.sanitize_text(text)
        self._open.pieces.append(sanitized)
        return sanitized

    def _end_reasoning(self, event: ReasoningEnd) -> Published:
        if not isinstance(self._open, _Reasoning):
            if not event.metadata:
                return ()
            self._begin(_Reasoning())
        reasoning, self._open = self._open, None
        assert isinstance(reasoning, _Reasoning)
        reasoning.metadata = self.anomalies.sanitize_json(event.metadata or None, "reasoning metadata").value
        return (ReasoningEnd(reasoning.metadata),)

    def _settle_text(self, event: FinalText) -> Published:
        final = self.anomalies.sanitize_text(event.text)
        texts = [piece for piece in self._pieces[self._since_call :] if type(piece) is _Text]
        streamed = "".join(piece.text for piece in texts)
        if final.startswith(streamed):
            return self._add_text(final[len(streamed) :])
        if not final:
            # An agent that sends no final text does not mean that its reply was empty.
            return ()
        # In the last place, not the first: the reasoning and the sources in between led to this text.
        *others, last = texts
        last.pieces = [final]
        self._pieces = [piece for piece in self._pieces if piece not in others]
        self.anomalies.note("diverging-text")
        return (FinalText(final),)

    def _add_call(self, taken: Taken) -> Published:
        if taken.begun is not None:
            self._open = None
            self._pieces.append(taken.begun)
            self._since_call = len(self._pieces)
        return taken.published

    def _add_reference(self, event: Source | SourceDocument | File) -> Published:
        clean = self._clean_fields(event)
        match clean:
            case Source():
                self._pieces.append(SourceUrlPart(clean.source_id, clean.url, clean.title))
            case SourceDocument():
                part = SourceDocumentPart(clean.source_id, clean.media_type, clean.title, clean.filename)
                self._pieces.append(part)
            case File() if clean.url.startswith(_FILE_SCHEMES):
                self._pieces.append(FilePart(clean.media_type, clean.url, clean.filename))
            case File():
                self.anomalies.note("refused-file")
                return ()
        return (clean,)

    def _clean_fields(self, event: _Reference) -> _Reference:
        fields = msgspec.structs.asdict(event)
        clean = {name: self.anomalies.sanitize_text(value) for name, value in fields.items() if value is not None}
        return msgspec.structs.replace(event, **clean)

    def _add_data(self, event: Data) -> Published:
        name = self.anomalies.sanitize_text(event.name) or "unnamed"
        part_id = None if event.id is None else self.anomalies.sanitize_text(event.id)
        data = self.anomalies.sanitize_json(event.data, "data part").value
        if not event.transient:
            self._place_data(DataPart(name, data, part_id))
        return (Data(name, data, part_id, event.transient),)

    def _place_data(self, part: DataPart) -> None:
        for index, piece in enumerate(self._pieces):
            if part.id is not None and isinstance(piece, DataPart) and (piece.name, piece.id) == (part.name, part.id):
                self._pieces[index] = part
                return
        self._pieces.append(part)

    def _add_metadata(self, event: MessageMetadata) -> Published:
        clean = self.anomalies.sanitize_json(event.metadata, "message metadata").value
        given = agent_metadata(clean)
        self.metadata = _merge(self.metadata, given)
        return (MessageMetadata(given),) if given else ()


def agent_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """What an agent may set, or has set, of a reply's metadata."""
    return {key: value for key, value in metadata.items() if key not in _RESERVED_METADATA}


def _merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Objects are merged key by key, as clients of the AI SDK do; any other value replaces the earlier one."""
    merged = dict(one)
    for key, value in other.items():
        earlier = merged.get(key)
        merged[key] = _merge(earlier, value) if isinstance(earlier, dict) and isinstance(value, dict) else value
    return merged


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_tokens + other.cached_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
    )
