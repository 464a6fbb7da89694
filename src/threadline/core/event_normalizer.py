"""Normalizes an agent's events so that they can be shown and stored, and removes secrets from them.

Text and reasoning run through a stream masker each, so that a secret split over deltas does not get out; what is held
back is emitted before the next event of another kind, so the order is kept. Partial tool inputs are not passed on: some
values are secret because of their key, and that is known only when the input is complete.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from threadline.core.sealing import Masker, TextStream


class EventNormalizer:
    """One per run. Without a masker, events pass unchanged."""

    def __init__(self, masker: Masker | None) -> None:
        self._masker = masker
        self._reasoning = self._reasoning_shown = ""
        self._texts: dict[type[TextDelta | ReasoningDelta], TextStream] = {}
        self._open: type[TextDelta | ReasoningDelta] | None = None
        """The kind that may have text held back: only the last one that was fed, because others are flushed first."""
        if masker is not None:
            self._texts = {TextDelta: masker.stream(), ReasoningDelta: masker.stream()}

    def add(self, event: Event) -> Iterator[Event]:
        if self._masker is None:
            yield event
        elif isinstance(event, TextDelta | ReasoningDelta):
            kind = type(event)
            if self._open is not kind:
                yield from self.flush()
                self._open = kind
            if isinstance(event, ReasoningDelta):
                self._reasoning += event.text
            shown = self._texts[kind].feed(event.text)
            yield from self._delta(kind, shown)
        else:
            yield from self.flush()
            yield from self._masked(self._masker, event)

    def flush(self) -> Iterator[Event]:
        """What is still held back: before an event of another kind, and at the end of a run however it ended."""
        if self._open is not None:
            kind, self._open = self._open, None
            yield from self._delta(kind, self._texts[kind].flush())

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
