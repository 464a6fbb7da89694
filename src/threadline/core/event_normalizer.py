"""Shaping: an agent's events made fit to be shown and stored, secrets removed on the way.

Text and reasoning run through a stream masker each, so that a secret split over deltas does not get out; what is held
back comes out before the next event of another kind, so order is kept. Tool inputs that are still being written are
not passed on: by their key, values in them may be secrets, and that can only be told once they are complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from threadline.core.events import (
    Event,
    Failure,
    FinalText,
    ReasoningDelta,
    ReasoningEnd,
    Source,
    Status,
    TextDelta,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolResult,
)
from threadline.core.sealing import Masker


class TextStream(Protocol):
    def feed(self, text: str) -> str: ...

    def flush(self) -> str: ...


class StreamingMasker(Masker, Protocol):
    def stream(self) -> TextStream:
        """A masker for one text that arrives in pieces."""
        ...


class EventNormalizer:
    """One per run. Without a masker, everything passes as it is."""

    def __init__(self, masker: StreamingMasker | None) -> None:
        self._masker = masker
        self._thought = self._thought_shown = ""
        self._texts: dict[type[TextDelta | ReasoningDelta], TextStream] = {}
        if masker is not None:
            self._texts = {TextDelta: masker.stream(), ReasoningDelta: masker.stream()}

    def add(self, event: Event) -> Iterator[Event]:
        if self._masker is None:
            yield event
        elif isinstance(event, TextDelta | ReasoningDelta):
            yield from self._flush(but=type(event))
            if isinstance(event, ReasoningDelta):
                self._thought += event.text
            yield from self._delta(type(event), self._texts[type(event)].feed(event.text))
        else:
            yield from self._flush()
            yield from self._masked(self._masker, event)

    def flush(self) -> Iterator[Event]:
        """What is still held back, at the end of a run however it ended."""
        yield from self._flush()

    def _flush(self, but: type[TextDelta | ReasoningDelta] | None = None) -> Iterator[Event]:
        for kind, text in self._texts.items():
            if kind is not but:
                yield from self._delta(kind, text.flush())

    def _delta(self, kind: type[TextDelta | ReasoningDelta], text: str) -> Iterator[Event]:
        if text:
            if kind is ReasoningDelta:
                self._thought_shown += text
            yield kind(text)

    def _signed(self, event: ReasoningEnd) -> ReasoningEnd:
        """A signature fits only the words it was made for: where masking changed them, it is dropped."""
        is_whole = self._thought == self._thought_shown
        self._thought = self._thought_shown = ""
        return event if is_whole else ReasoningEnd()

    def _masked(self, masker: Masker, event: Event) -> Iterator[Event]:
        match event:
            case ToolInputDelta():
                return
            case ReasoningEnd():
                yield self._signed(event)
            case ToolCall():
                yield msgspec.structs.replace(event, input=masker.mask_json(event.input))
            case ToolResult():
                yield msgspec.structs.replace(event, output=masker.mask_json(event.output))
            case ToolError() | Failure():
                yield msgspec.structs.replace(event, error=masker.mask_text(event.error))
            case FinalText() | Status():
                yield msgspec.structs.replace(event, text=masker.mask_text(event.text))
            case ToolDenied() if event.reason is not None:
                yield msgspec.structs.replace(event, reason=masker.mask_text(event.reason))
            case Source():
                title = None if event.title is None else masker.mask_text(event.title)
                yield msgspec.structs.replace(event, url=masker.mask_text(event.url), title=title)
            case _:
                yield event
