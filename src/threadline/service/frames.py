"""The frames of a turn's stream, written once for everyone who reads it.

What a chunk looks like on the wire depends on all chunks before it and on the client's major, and on nothing else. So
readers of one turn share what was written: ten thousand of them cost one encoding, and one that comes back late is
given what is there. Frames are gone with their last reader.
"""

from __future__ import annotations

import copy
from weakref import WeakValueDictionary

from threadline.core import events
from threadline.core.turns import Chunk, Turn, TurnStatus
from threadline.service.aisdk.chunks import ChunkWriter
from threadline.turns.acceptance import reply_id


class Frames:
    def __init__(self, turn_id: str, major: int) -> None:
        self._turn_id = turn_id
        self._writer = ChunkWriter(reply_id(turn_id), major)
        self._frames: list[bytes] = []
        self._begun_again: list[int] = []
        self.start = self._writer.start(f"{turn_id}:0")

    def written(self, batch: list[Chunk], seen: int) -> bytes:
        """What of these chunks comes after number `seen`, in one piece. Chunks are numbered from 1, without a gap, and
        every reader begins with the first. One that has seen nothing, -1, is spared an answer that was given up."""
        first, last = batch[0].n, batch[-1].n
        for chunk in batch[len(self._frames) - first + 1 :] if last > len(self._frames) else ():
            self._write(chunk)
        if seen < 0 and first == 1:
            seen = max((n for n in self._begun_again if n <= last), default=seen)
        frames = self._frames[max(first - 1, seen) : last]
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def _write(self, chunk: Chunk) -> None:
        event = events.from_json(chunk.json)
        if isinstance(event, events.Restart):
            self._begun_again.append(chunk.n)
        self._frames.append(self._writer.event(event, f"{self._turn_id}:{chunk.n}"))

    def end(self, status: TurnStatus, error: str | None) -> bytes:
        """For a reader that was given every chunk."""
        return copy.copy(self._writer).end(status, error)


class SharedFrames:
    def __init__(self) -> None:
        self._found: WeakValueDictionary[tuple[str, str, int], Frames] = WeakValueDictionary()

    def of(self, tenant_id: str, turn: Turn, major: int) -> Frames:
        place = (tenant_id, turn.id, major)
        found = self._found.get(place)
        if found is None:
            found = self._found[place] = Frames(turn.id, major)
        return found
