"""The timelines of one thread as a tree of messages, into which an import puts the timelines of its source.

A message is where it is in the source if the same ids lead to it. `place` follows the thread as long as it says the
same as the source; at its end it appends, and where the two differ it goes to a timeline that branches off there: one
of an earlier import, or a new one. So nothing is stored twice, and what was added here since stays.
"""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from threadline.core.errors import InvalidInput, quote
from threadline.core.hidden_parts import HiddenPart
from threadline.core.history import RecordPoint
from threadline.core.sealing import Sealed
from threadline.core.threads import Point, Thread
from threadline.ports import Transaction

_BATCH = 500
_HIDDEN = ""
"""In the place of the id of a message that was deleted here: it is not read, and its seq stays taken."""


class _Waiting(NamedTuple):
    message: Sealed
    turn_id: str | None
    is_hidden: bool


class _Timeline:
    """A timeline of the thread. `parent` is the point it forks at, on the timeline that holds that message; None for
    one that begins the history. `is_used` says that it is a timeline of the source."""

    __slots__ = ("count", "created_at", "first_id", "id", "is_used", "parent")

    def __init__(self, id: str, parent: Point | None, count: int, created_at: dt.datetime) -> None:
        self.id = id
        self.parent = parent
        self.count = count
        self.created_at = created_at
        self.is_used = False
        self.first_id: str | None = None

    @property
    def first_seq(self) -> int:
        return 0 if self.parent is None else self.parent.seq + 1

    @property
    def is_empty(self) -> bool:
        return self.count <= self.first_seq


class _Line:
    """A timeline of the source: where it begins, and from which seq on it is which timeline of the thread."""

    __slots__ = ("count", "created_at", "parent", "pieces")

    def __init__(self, parent: RecordPoint | None, created_at: dt.datetime | None) -> None:
        self.parent = parent
        self.created_at = created_at
        self.pieces: list[Point] = []
        self.count = 0 if parent is None else parent.seq + 1


class HistoryTree:
    def __init__(self, tx: Transaction, thread: Thread, *, is_new: bool) -> None:
        self.thread_id = thread.id
        self.line: str | None = None
        """The key of the source's timeline to which the next message belongs."""
        self.added = 0
        self.has_changed = False
        self._tx = tx
        self._is_new = is_new
        self._present = thread.timeline_id
        self._timelines: dict[str, _Timeline] = {}
        self._forks: dict[Point | None, list[_Timeline]] = {}
        self._lines: dict[str, _Line] = {}
        self._at: _Timeline | None = None
        self._seq = -1
        self._ahead_of = range(0)
        self._ahead: dict[int, str] = {}
        self._waiting: list[_Waiting] = []
        if is_new:
            self._know(_Timeline(thread.timeline_id, None, 0, thread.created_at))

    def _know(self, timeline: _Timeline) -> None:
        self._timelines[timeline.id] = timeline
        self._forks.setdefault(timeline.parent, []).append(timeline)

    async def read(self) -> None:
        """Reads the timelines of a thread that exists."""
        if self._is_new:
            return
        for found in await self._tx.timelines(self.thread_id):
            # A timeline of another thread is not part of this tree: the history before the fork counts as its own.
            is_own = found.parent is not None and found.parent.timeline_id in self._timelines
            parent = self._holding(found.parent) if is_own and found.parent is not None else None
            self._know(_Timeline(found.id, parent, found.message_count, found.created_at))

    def _holding(self, point: Point) -> Point | None:
        """The same point on the timeline that holds the message; None before the first message."""
        timeline_id, seq = point
        while seq >= 0:
            parent = self._timelines[timeline_id].parent
            if parent is None or seq > parent.seq:
                return Point(timeline_id, seq)
            timeline_id = parent.timeline_id
        return None

    async def begin(self, key: str, parent: RecordPoint | None, created_at: dt.datetime | None) -> None:
        """Begins a timeline of the source. InvalidInput for a key that was used before, or an unknown parent."""
        await self.flush()
        if key in self._lines:
            raise InvalidInput(f"timeline must have a key of its own, got {quote(key)} twice")
        if parent is not None:
            self.point(parent)
        self._lines[key] = _Line(parent, created_at)
        self.line = key
        self._at = None

    async def place(self, message: Sealed, turn_id: str | None, *, is_hidden: bool = False) -> None:
        """The next message of the source's timeline. One that is hidden here stays so, and one that is hidden there
        is not hidden here."""
        assert self.line is not None
        line = self._lines[self.line]
        if self._at is None:
            await self._enter(line, None if is_hidden else message.id)
        known = await self._next()
        if not is_hidden and known not in (message.id, _HIDDEN):
            known = await self._branch_off(line, message.id, must_fork=known is not None)
        if known is None:
            self._waiting.append(_Waiting(message, turn_id, is_hidden))
            self.added += not is_hidden
            self.has_changed = True
        self._seq += 1
        line.count += 1
        if len(self._waiting) >= _BATCH:
            await self._append()

    async def _next(self) -> str | None:
        """The id of the thread's own message after the last one, `_HIDDEN` if it was deleted; None at the end of the
        timeline."""
        assert self._at is not None
        seq = self._seq + 1
        if self._waiting or seq >= self._at.count:
            return None
        if seq not in self._ahead_of:
            self._ahead_of = range(seq, seq + _BATCH)
            found = await self._tx.messages(self.thread_id, first=seq, last=self._ahead_of[-1], timeline_id=self._at.id)
            self._ahead = {message.seq: message.id for message in found}
        return self._ahead.get(seq, _HIDDEN)

    async def _branch_off(self, line: _Line, message_id: str, *, must_fork: bool) -> str | None:
        """Goes to a timeline that forks here and begins with this message. With `must_fork` there will be one."""
        assert self._at is not None
        here = self._holding(Point(self._at.id, self._seq))
        fork = await self._find_fork(here, message_id)
        if fork is None and not must_fork:
            return None
        await self._append()
        if fork is None:
            fork = await self._fork(here, None)
        self._go_to(line, fork, self._seq)
        return await self._next()

    async def _enter(self, line: _Line, message_id: str | None) -> None:
        """Finds the timeline that the source's timeline is here, or makes one. Without a message it is an empty one."""
        parent = None if line.parent is None else self._holding(self.point(line.parent))
        found = None if message_id is None else await self._find_fork(parent, message_id)
        if found is None:
            same = [each for each in self._unused(parent) if line.created_at in (None, each.created_at)]
            empty = [each for each in same if each.is_empty or await self._first_id(each) == _HIDDEN]
            if empty or (same and message_id is None):
                found = (empty or same)[0]
        if found is None and self._is_new and len(self._lines) == 1:
            (found,) = self._timelines.values()
        if found is None:
            found = await self._fork(parent, line.created_at)
        self._go_to(line, found, -1 if parent is None else parent.seq)

    def _unused(self, parent: Point | None) -> list[_Timeline]:
        return [each for each in self._forks.get(parent, ()) if not each.is_used]

    async def _find_fork(self, parent: Point | None, message_id: str) -> _Timeline | None:
        for each in self._unused(parent):
            if not each.is_empty and await self._first_id(each) == message_id:
                return each
        return None

    async def _first_id(self, timeline: _Timeline) -> str | None:
        if timeline.first_id is None:
            seq = timeline.first_seq
            found = await self._tx.messages(self.thread_id, first=seq, last=seq, timeline_id=timeline.id)
            timeline.first_id = found[0].id if found else _HIDDEN
        return timeline.first_id

    async def _fork(self, parent: Point | None, created_at: dt.datetime | None) -> _Timeline:
        """A new timeline. Its time is never before that of an earlier one: it is what orders them."""
        latest = max(each.created_at for each in self._timelines.values())
        at = latest if created_at is None else max(created_at, latest)
        where = Point(self._present, -1) if parent is None else parent
        thread = await self._tx.move(self.thread_id, where.seq, timeline_id=where.timeline_id, created_at=at)
        self._present = thread.timeline_id
        self.has_changed = True
        made = _Timeline(thread.timeline_id, parent, where.seq + 1, at)
        self._know(made)
        return made

    def _go_to(self, line: _Line, timeline: _Timeline, seq: int) -> None:
        timeline.is_used = True
        line.pieces.append(Point(timeline.id, seq + 1))
        self._at, self._seq = timeline, seq
        self._ahead_of = range(0)

    async def flush(self) -> None:
        """Stores what waits, also a timeline without messages."""
        if self.line is not None and self._at is None:
            await self._enter(self._lines[self.line], None)
        await self._append()

    async def _append(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        assert self._at is not None
        await self._switch(self._at.id)
        start = 0
        first = self._at.count
        for end in range(1, len(waiting) + 1):
            if end < len(waiting) and waiting[end].turn_id == waiting[start].turn_id:
                continue
            messages = [each.message for each in waiting[start:end]]
            done = await self._tx.append(self.thread_id, messages, turn_id=waiting[start].turn_id)
            if done.replayed:
                raise InvalidInput(f"message id must be unique in its history, got {quote(messages[0].id)} twice")
            self._at.count += len(messages)
            start = end
        if hidden := [HiddenPart(self._at.id, seq) for seq, each in enumerate(waiting, first) if each.is_hidden]:
            await self._tx.hide_parts(self.thread_id, hidden)

    async def _switch(self, timeline_id: str) -> None:
        if self._present != timeline_id:
            await self._tx.switch(self.thread_id, timeline_id)
            self._present = timeline_id

    async def show(self, key: str | None) -> None:
        """Moves the thread to the end of what this timeline of the source is here."""
        if key is None:
            return
        await self._switch(self._line(key).pieces[-1].timeline_id)

    def point(self, place: RecordPoint) -> Point:
        """Where a point of the source is here. InvalidInput if the source has no such point."""
        line = self._line(place.timeline)
        if not -1 <= place.seq < line.count:
            raise InvalidInput(
                f"`seq` must be -1 to {line.count - 1} on timeline {quote(place.timeline)}, got {place.seq}"
            )
        while line.parent is not None and place.seq <= line.parent.seq:
            line = self._line(line.parent.timeline)
        holding = line.pieces[0]
        for piece in line.pieces:
            if piece.seq <= place.seq:
                holding = piece
        return Point(holding.timeline_id, place.seq)

    def _line(self, key: str) -> _Line:
        line = self._lines.get(key)
        if line is None:
            raise InvalidInput(f"timeline must be one that came before, got {quote(key)}")
        return line
