"""Store operations on conversations: threads, messages and timelines.

Every operation is bound to one scope (see `threadline.ports`). Its docstring is its whole contract.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

from threadline.core.messages import Message
from threadline.core.sealing import CleanText, Sealed
from threadline.core.thread_filters import EVERY_THREAD, ThreadFilter
from threadline.core.threads import (
    Appended,
    Hit,
    NewThread,
    Page,
    SavedPoint,
    Thread,
    ThreadChanges,
    ThreadHits,
    Timeline,
)


class ThreadOperations(Protocol):
    async def create_thread(self, new: NewThread, *, created_at: dt.datetime | None = None) -> Thread:
        """Creates an empty thread on a new timeline. `created_at` is the time of both, for a thread that comes from
        elsewhere. DuplicateId if the tenant already has a thread with this id, or
        the owner a thread with this state key that is not deleted."""
        ...

    async def thread(self, thread_id: str, *, deleted: bool = False) -> Thread | None:
        """The thread with this id; None if there is none. A deleted thread is returned only with `deleted`."""
        ...

    async def thread_by_key(self, state_key: str) -> Thread | None:
        """The thread with this state key that is not deleted; None if there is none."""
        ...

    async def threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
        archived: bool | None = False,
        deleted: bool = False,
        matching: ThreadFilter = EVERY_THREAD,
    ) -> Page[Thread]:
        """A page of threads: latest activity first, then the greater id first. `archived` None lists archived and other
        threads; `deleted` lists only deleted threads; `matching` lists only threads that have every label, a turn from
        the surface, and their last activity in the time. A cursor costs the same at any depth, and the page after it
        never repeats a thread. InvalidCursor if the cursor was not issued for this list. InvalidInput if `limit` is
        below 1, or `offset` below 0."""
        ...

    async def tenant_threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        archived: bool | None = False,
        deleted: bool = False,
        matching: ThreadFilter = EVERY_THREAD,
    ) -> Page[Thread]:
        """Threads of every user of the tenant, the greatest id first: generated ids are in order of creation. The
        filters are those of `threads`. InvalidCursor. System scope only (RoleRefused)."""
        ...

    async def update_thread(self, thread_id: str, changes: ThreadChanges) -> Thread:
        """Changes only the given fields; never a message. The time of the last activity stays the same. NotFound."""
        ...

    async def suggest_title(self, thread_id: str, title: CleanText) -> bool:
        """Sets the title, unless a person chose the present one. The time of the last activity stays the same. False if
        it was not set, also if there is no such thread."""
        ...

    async def delete_thread(self, thread_id: str) -> bool:
        """Hides the thread from every read; its state key can be used again. False if there is no such thread."""
        ...

    async def restore_thread(self, thread_id: str) -> Thread:
        """Restores a deleted thread. NotFound if there is no deleted thread with this id; DuplicateId if another thread
        has its state key now."""
        ...

    async def prune_threads(self, *, idle_since: dt.datetime) -> int:
        """Removes the owner's threads that never had a message and have had no activity since `idle_since`. Returns how
        many."""
        ...


class MessageOperations(Protocol):
    """No read returns a hidden message: its seq is missing then."""

    async def append(
        self,
        thread_id: str,
        messages: Sequence[Sealed],
        *,
        key: str | None = None,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
        after: int | None = None,
        turn_id: str | None = None,
        tokens: int = 0,
        title: CleanText | None = None,
    ) -> Appended:
        """Writes the messages at the head, all or none, and updates the thread's activity. A thread without a title
        gets `title`, which a person can change later. A message that has `created_us` keeps that time.
        `Appended.thread` has what an append changes about its thread, so that a caller need not read it again.

        A repeated call is safe: with the same key, or with message ids that are already in this history in this order
        with this role and content, nothing is written and the first result is returned as `replayed`. A key is valid
        within its thread. KeyReused: the key was used with other messages; ids may differ, because sealing generates
        missing ids. DuplicateId: a message id is in this history and this is not a repeat (other content, another
        order, or only some of them). HeadMoved: `expected_count` is not the count, or `expected_timeline` is not the
        timeline. With `after` the thread is first moved to a new timeline that continues after this seq (-1: before the
        first message), in the same commit; a repeat does not move it, and InvalidInput: there is no such seq. NotFound:
        there is no such thread, or it is deleted. LimitExceeded: the thread would have more messages than the store's
        limit. InvalidInput if `messages` is empty."""
        ...

    async def messages(
        self,
        thread_id: str,
        *,
        first: int = 0,
        last: int | None = None,
        limit: int | None = None,
        timeline_id: str | None = None,
        deleted: bool = False,
    ) -> list[Message]:
        """The messages `first` to `last` (inclusive) of the history, in order, at most `limit` of them. `timeline_id`
        reads another timeline of the thread instead of the current one. A deleted thread is read only with `deleted`.
        NotFound if there is no such thread, or the
        timeline is not one of the thread's; an empty thread is []. InvalidInput if `limit` is negative."""
        ...

    async def last_turns(self, thread_id: str, turns: int, *, before: int | None = None) -> list[Message]:
        """The messages from the `turns`-th last user message on, in order; all messages if there are fewer. [] if
        `turns` is 0. With `before`, only messages with a lower seq count. Costs the same at any length of the thread.
        NotFound if there is no such thread."""
        ...

    async def message(self, thread_id: str, message_id: str) -> Message | None:
        """The message of the current history with this id. None if the thread or the message does not exist."""
        ...

    async def search(
        self, query: str, *, limit: int = 20, offset: int = 0, matching: ThreadFilter = EVERY_THREAD
    ) -> list[Hit]:
        """Messages that contain all the words, in the current history of threads that are not deleted, best match
        first. The last word also finds words that begin with it, from three letters on, unless a space follows it. In
        scripts without spaces any part of a sentence is found. A message that several threads share is found once, in
        the thread it was written in if it is still in its history. Every word is literal: no search operator of a
        database works. Finds every message that was acknowledged before the call. `matching` applies to the thread that
        the hit is in. Of a word that more messages contain than the store ranks, the newest are considered."""
        ...

    async def search_threads(
        self,
        query: str,
        *,
        limit: int = 20,
        cursor: str | None = None,
        passages: int = 3,
        matching: ThreadFilter = EVERY_THREAD,
    ) -> Page[ThreadHits]:
        """Threads that are not deleted: those whose title contains all the words, latest activity first, then those
        with a message that does, best match first. Each has the number of its messages that match and the best
        `passages` of them. Words and messages are those of `search`. InvalidCursor if the cursor was not issued for
        this search."""
        ...


class TimelineOperations(Protocol):
    """Each of these operations writes one or two small rows and no message, at any length of the history. Moving a
    thread counts as activity. A move with `expected_count` or `expected_timeline` is HeadMoved, and changes nothing, if
    the thread's end is elsewhere when it commits."""

    async def branch(self, thread_id: str, new: NewThread, *, at: int | None = None) -> Thread:
        """Creates a thread whose history is the source's up to and including seq `at` (default: all of it; -1:
        nothing). The two are independent afterwards. Agent, model, system prompt and working directory that `new`
        leaves out are copied from the source. NotFound; InvalidInput if `at` is past the head; DuplicateId as in
        create_thread."""
        ...

    async def move(
        self,
        thread_id: str,
        seq: int,
        *,
        timeline_id: str | None = None,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
        created_at: dt.datetime | None = None,
    ) -> Thread:
        """Moves the thread to a new timeline that continues after `seq` of its history, or of another of its
        timelines. The previous timeline stays and can be switched to. `created_at` is the time of the new timeline and
        of the activity, for one that comes from elsewhere. NotFound; InvalidInput if the history has no
        message `seq`."""
        ...

    async def undo(
        self, thread_id: str, *, expected_count: int | None = None, expected_timeline: str | None = None
    ) -> Thread:
        """Moves the thread to a new timeline that ends before its last user message. InvalidInput if the history has no
        user message."""
        ...

    async def switch(
        self,
        thread_id: str,
        timeline_id: str,
        *,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
    ) -> Thread:
        """Moves the thread back to the end of one of its timelines; if it is there already, nothing changes.
        NotFound."""
        ...

    async def timelines(self, thread_id: str, *, deleted: bool = False) -> list[Timeline]:
        """Every timeline of the thread, oldest first; of a deleted thread only with `deleted`. NotFound."""
        ...

    async def save(self, thread_id: str, name: str, *, at: int | None = None) -> SavedPoint:
        """Saves the point under a name of the owner; an existing name is moved. The name is stored in Unicode's NFC,
        without spaces around it. NotFound; InvalidInput if `at` is past the head."""
        ...

    async def load(
        self, thread_id: str, name: str, *, expected_count: int | None = None, expected_timeline: str | None = None
    ) -> Thread:
        """Moves the thread to a new timeline that continues from the saved point, which may belong to any thread of the
        owner. NotFound."""
        ...

    async def saved_points(self) -> list[SavedPoint]:
        """The owner's saved points, by name."""
        ...

    async def saved_point(self, name: str) -> SavedPoint | None: ...

    async def forget_saved_point(self, name: str) -> bool:
        """False if there was none."""
        ...
