"""The position in the sync up to which everything has been delivered.

Batches are processed side by side and end in any order; the position moves past the oldest ones that are done. So an
event that was read and not yet delivered is read again after a crash; the inbox recognises what it had already.
"""

from __future__ import annotations

from collections import deque

from threadline.matrix.device import DeviceFolder, Progress

# Unreadable messages that are remembered: keys that have not arrived by then are unlikely to.
_MOST_UNREAD = 200


class OpenBatch:
    """A batch of the sync that is being processed."""

    def __init__(self, cursor: SyncCursor, position: str) -> None:
        self._cursor = cursor
        self.position = position
        self._open = 1

    @property
    def is_done(self) -> bool:
        return self._open == 0

    def add(self) -> None:
        """One more thing to do."""
        self._open += 1

    def done(self) -> None:
        """One thing less; the batch itself counts as one until everything in it was added."""
        self._open -= 1
        if self.is_done:
            self._cursor.advance()


class SyncCursor:
    def __init__(self, folder: DeviceFolder) -> None:
        self._folder = folder
        stored = folder.progress()
        self.position = stored.position if stored else None
        self._unread = dict.fromkeys(stored.unread) if stored else {}
        self._batches: deque[OpenBatch] = deque()

    @property
    def unread(self) -> list[tuple[str, str]]:
        """Messages without a key: room and event."""
        return list(self._unread)

    def begin(self, position: str) -> OpenBatch:
        batch = OpenBatch(self, position)
        self._batches.append(batch)
        return batch

    def remember_unread(self, room_id: str, event_id: str) -> None:
        self._unread[room_id, event_id] = None
        while len(self._unread) > _MOST_UNREAD:
            self._unread.pop(next(iter(self._unread)))

    def forget_unread(self, room_id: str, event_id: str) -> None:
        self._unread.pop((room_id, event_id), None)

    def advance(self) -> None:
        has_moved = False
        while self._batches and self._batches[0].is_done:
            self.position, has_moved = self._batches.popleft().position, True
        if has_moved and self.position is not None:
            self._folder.store_progress(Progress(self.position, tuple(self._unread)))
