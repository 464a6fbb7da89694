"""Normalizes an agent's events so that they can be shown and stored, and removes secrets from them.

Text and reasoning run through a stream masker each, so that a secret split over deltas does not get out. What it holds
back is emitted when the text ends: when another text, reasoning, tool call or step begins, or the run ends. A status, a
source, a result or any other event in between ends no text and passes at once. The input of a tool runs through a
stream of its own, see `masking.json_stream`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from threadline.core.events import (
    Data,
    Event,
    Failure,
    File,
    FinalText,
    Finish,
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
from threadline.core.masking.json_stream import JsonStream
from threadline.core.sealing import Masker, TextStream

# A tuple: a union would be made again for every event of a stream.
_DELTAS = (TextDelta, ReasoningDelta)
_ENDS_TEXT = (ReasoningEnd, StepStart, Restart, Finish, Failure)


class EventNormalizer:
    """One per run. Without a masker, events pass unchanged."""

    def __init__(self, masker: Masker | None) -> None:
        self._masker = masker
        self._reasoning = self._reasoning_shown = ""
        self._texts: dict[type[TextDelta | ReasoningDelta], TextStream] = {}
        self._open: type[TextDelta | ReasoningDelta] | None = None
        """The kind that may have text held back: only the last one that was fed, because others are flushed first."""
        self._inputs: dict[str, JsonStream] = {}
        """Inputs that are not complete, by call id."""
        if masker is not None:
            self._texts = {TextDelta: masker.stream(), ReasoningDelta: masker.stream()}

    def add(self, event: Event) -> Iterator[Event]:
        if self._masker is None:
            yield event
        elif isinstance(event, _DELTAS):
            kind = type(event)
            if self._open is not kind:
                yield from self.flush()
                self._open = kind
            if isinstance(event, ReasoningDelta):
                self._reasoning += event.text
            yield from self._delta(kind, self._texts[kind].feed(event.text))
        else:
            if isinstance(event, FinalText) and event.text:
                self._drop_held_text()
            elif self._ends_text(event):
                yield from self.flush()
            yield from self._masked(self._masker, event)

    def _ends_text(self, event: Event) -> bool:
        if isinstance(event, ToolInputStart | ToolCall):
            # A call that has begun does not begin again when its input is complete.
            return event.call_id not in self._inputs
        return isinstance(event, _ENDS_TEXT)

    def flush(self) -> Iterator[Event]:
        """What is still held back: when the text ends, and at the end of a run however it ended."""
        if self._open is not None:
            kind, self._open = self._open, None
            yield from self._delta(kind, self._texts[kind].flush())

    def _drop_held_text(self) -> None:
        """The final text contains what is held back, and is masked as a whole; what was shown is its beginning."""
        if self._open is TextDelta:
            self._open = None
            self._texts[TextDelta].flush()

    def _delta(self, kind: type[TextDelta | ReasoningDelta], text: str) -> Iterator[Event]:
        if text:
            if kind is ReasoningDelta:
                self._reasoning_shown += text
            yield kind(text)

    def _signed(self, event: ReasoningEnd) -> ReasoningEnd:
        """A signature is valid only for the text it was made for: if masking changed that, the signature is dropped."""
        is_unchanged = self._reasoning == self._reasoning_shown
        self._reasoning = self._reasoning_shown = ""
        return event if is_unchanged else ReasoningEnd()

    def _masked(self, masker: Masker, event: Event) -> Iterator[Event]:
        replace = msgspec.structs.replace
        match event:
            case ToolInputStart():
                self._inputs.setdefault(event.call_id, JsonStream(masker))
                yield event
            case ToolInputDelta():
                yield from self._input(event)
            case ToolCall():
                self._inputs.pop(event.call_id, None)
                yield replace(event, input=masker.mask_json(event.input))
            case ReasoningEnd():
                yield self._signed(event)
            case ToolResult():
                yield replace(event, output=masker.mask_json(event.output))
            case ToolError() | Failure():
                yield replace(event, error=masker.mask_text(event.error))
            case FinalText() | Status():
                yield replace(event, text=masker.mask_text(event.text))
            case ToolDenied() if event.reason is not None:
                yield replace(event, reason=masker.mask_text(event.reason))
            case Data():
                yield replace(event, data=masker.mask_json(event.data))
            case MessageMetadata():
                yield replace(event, metadata=masker.mask_json(event.metadata))
            case Source() | SourceDocument() | File():
                yield _mask_fields(masker, event)
            case _:
                yield event

    def _input(self, event: ToolInputDelta) -> Iterator[Event]:
        stream = self._inputs.get(event.call_id)
        # A piece of an unknown call is passed on without its text: the fold counts it.
        shown = "" if stream is None else stream.feed(event.text)
        if shown or stream is None:
            yield ToolInputDelta(event.call_id, shown)


def _mask_fields(masker: Masker, event: Source | SourceDocument | File) -> Event:
    fields = msgspec.structs.asdict(event)
    masked = {name: masker.mask_text(value) for name, value in fields.items() if value is not None}
    return msgspec.structs.replace(event, **masked)
