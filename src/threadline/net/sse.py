"""Parser for server-sent events: bytes in, events out. Pure, with bounded memory.

Event ids and retry times are ignored, because this client does not reconnect.
"""

from __future__ import annotations

import codecs
from typing import NamedTuple

from threadline.net.retry import RequestFailed

LONGEST_EVENT = 1_048_576


class SseEvent(NamedTuple):
    name: str
    data: str


class SseReader:
    """Accepts lines that end in LF, CRLF or CR, and chunks that end anywhere, also inside a character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest = ""
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completes. RequestFailed if one exceeds the limit."""
        text = self._rest + self._decoder.decode(chunk)
        # A CR at the very end may be the first half of a CRLF.
        held = "\r" if text.endswith("\r") else ""
        lines = text[: len(text) - len(held)].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + held
        if len(self._rest) > LONGEST_EVENT:
            raise RequestFailed(f"the agent sent a line of more than {LONGEST_EVENT:,} characters")
        events: list[SseEvent] = []
        for line in lines:
            if line:
                self._field(line)
            elif self._data:
                events.append(SseEvent(self._name or "message", "\n".join(self._data)))
                self._name, self._data, self._size = "", [], 0
            else:
                self._name = ""
        return events

    def _field(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._size += len(value)
            if self._size > LONGEST_EVENT:
                raise RequestFailed(f"the agent sent an event of more than {LONGEST_EVENT:,} characters")
            self._data.append(value)
        elif field == "event":
            self._name = value
