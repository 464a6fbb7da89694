"""Events as they are, for clients that speak Threadline's own vocabulary: no event and no field is lost.

The interface is that of `chunk_writer.ChunkWriter`. The stream begins with `start` (message and turn id), carries each
event as its JSON, and closes with `end` (status, error) and `[DONE]`. `Finish` is an event like any other: whether the
turn was executed is said by `end`, once that is stored.
"""

from __future__ import annotations

from threadline.core import events, jsontext
from threadline.core.events import Event
from threadline.core.turns import TurnStatus

EVENTS = 0
"""In place of a major version of the AI SDK."""
_DONE = b"data: [DONE]\n\n"


class EventWriter:
    def __init__(self, message_id: str, turn_id: str) -> None:
        self._message_id = message_id
        self._turn_id = turn_id

    def start(self, event_id: str | None = None) -> bytes:
        head = {"type": "start", "messageId": self._message_id, "turnId": self._turn_id}
        return _frame(jsontext.dump(head, "chunk"), event_id)

    def event(self, event: Event, event_id: str | None = None) -> bytes:
        return _frame(events.to_json(event), event_id)

    def end(self, status: TurnStatus, error: str | None = None) -> bytes:
        return _frame(jsontext.dump({"type": "end", "status": status, "error": error}, "chunk"), None) + _DONE


def _frame(data: bytes, event_id: str | None) -> bytes:
    head = b"" if event_id is None else b"id: %s\n" % event_id.encode()
    return head + b"data: " + data + b"\n\n"
