"""Server-sent events, read as they arrive: bytes in, events out.

Pure, and bounded in what it holds. Ids and retry times are read over: nobody here reconnects.
"""

from __future__ import annotations

import codecs
from typing import NamedTuple

from threadline.net.retry import Fault

LONGEST_EVENT = 1_048_576


class SseEvent(NamedTuple):
    name: str
    data: str


class SseReader:
    """Lines may end in LF, CRLF or CR, and pieces may end anywhere, in the middle of a character as well."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest = ""
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[SseEvent]:
        """The events that this piece completes. Fault if one grows past the limit."""
        text = self._rest + self._decoder.decode(piece)
        # A CR at the very end may be half of a CRLF.
        held = "\r" if text.endswith("\r") else ""
        lines = text[: len(text) - len(held)].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + held
        if len(self._rest) > LONGEST_EVENT:
            raise Fault("The agent sent a line that is too long.")
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
                raise Fault("The agent sent an event that is too long.")
            self._data.append(value)
        elif field == "event":
            self._name = value
