"""How far the bot is: the place in the sync up to which everything has been answered.

Batches are worked on side by side and end in any order; the place moves on past the oldest ones that are done. So what
was heard and not yet answered is heard again after a crash, and whatever was done about it is found by its key.
"""

from __future__ import annotations

from collections import deque

from threadline.matrix.device import DeviceFolder, Progress

_UNREAD_KEPT = 200


class OpenBatch:
    """A batch of the sync that is being worked on."""

    def __init__(self, tracking: Tracking, position: str) -> None:
        self._tracking = tracking
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
            self._tracking.advance()


class Tracking:
    def __init__(self, folder: DeviceFolder) -> None:
        self._folder = folder
        standing = folder.progress()
        self.position = standing.position if standing else None
        self._unread = dict.fromkeys(standing.unread) if standing else {}
        self._batches: deque[OpenBatch] = deque()

    @property
    def unread(self) -> list[tuple[str, str]]:
        """Messages whose keys have not come: room and event."""
        return list(self._unread)

    def begin(self, position: str) -> OpenBatch:
        batch = OpenBatch(self, position)
        self._batches.append(batch)
        return batch

    def remember_unread(self, room_id: str, event_id: str) -> None:
        self._unread[room_id, event_id] = None
        while len(self._unread) > _UNREAD_KEPT:
            self._unread.pop(next(iter(self._unread)))

    def forget_unread(self, room_id: str, event_id: str) -> None:
        self._unread.pop((room_id, event_id), None)

    def advance(self) -> None:
        moved = False
        while self._batches and self._batches[0].is_done:
            self.position, moved = self._batches.popleft().position, True
        if moved and self.position is not None:
            self._folder.keep_progress(Progress(self.position, tuple(self._unread)))
