"""What one run of a turn has shown so far: the agent's events, shaped and masked, on the stream and in the reply."""

from __future__ import annotations

from typing import Any

from threadline.core import events
from threadline.core.event_fold import Fold
from threadline.core.event_normalizer import EventNormalizer
from threadline.core.events import Event
from threadline.core.parts import Part, ToolPart
from threadline.turns.streams import LiveStream
from threadline.turns.takeover import Begun


class Run:
    def __init__(self, stream: LiveStream, shaper: EventNormalizer) -> None:
        self.stream = stream
        self.fold = Fold()
        self.seen: dict[str, Any] = {}
        self.failure: str | None = None
        self._shaper = shaper
        self._closed = False

    def go_on_with(self, parts: tuple[Part, ...]) -> None:
        """The reply of an earlier turn, whose approvals this one answers. What of it was there before is kept with the
        turn, for readers that come when the stream is no longer there."""
        self.fold = Fold(parts)
        still_open = [part.call_id for part in parts if isinstance(part, ToolPart) and not part.is_answered]
        self.seen = {**self.seen, "begun": {"parts": len(parts), "open": still_open}}

    def take_up(self, earlier: Begun) -> None:
        self.stream.take_up(earlier.chunks)
        for event in earlier.standing:
            self.fold.add(event)

    def show(self, event: Event) -> None:
        for shaped in self._shaper.add(event):
            self._keep(shaped)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for shaped in self._shaper.flush():
                self._keep(shaped)

    def _keep(self, event: Event) -> None:
        if isinstance(event, events.Failure):
            self.failure = event.error
            return
        for published in self.fold.add(event):
            self.stream.publish(events.to_json(published))
