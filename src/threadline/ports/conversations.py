"""The store's verbs for a conversation: threads, their messages, and the timelines they stand on.

Each verb is bound to one scope, as `threadline.ports` says, and its docstring is the whole of its contract.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

from threadline.core.messages import Message
from threadline.core.sealing import CleanText, Sealed
from threadline.core.threads import Appended, Hit, NewThread, Page, SavedPoint, Thread, ThreadChanges, Timeline


class ThreadOperations(Protocol):
    async def create_thread(self, new: NewThread) -> Thread:
        """A new, empty thread on a new timeline. DuplicateId if the id is taken in this tenant, or the state key by a
        living thread of this owner."""
        ...

    async def thread(self, thread_id: str, *, deleted: bool = False) -> Thread | None:
        """The living thread (or, asked for, the deleted one as well); None if there is none."""
        ...

    async def thread_by_key(self, state_key: str) -> Thread | None:
        """The living thread under this state key; None if there is none."""
        ...

    async def threads(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
        archived: bool | None = False,
        deleted: bool = False,
    ) -> Page[Thread]:
        """Latest activity first, ties by id, the greater first. `archived` None lists both kinds; `deleted` lists the
        deleted ones instead of the living. A cursor costs the same at any depth, and a page after it never repeats a
        thread. InvalidCursor for one that was not issued here."""
        ...

    async def update_thread(self, thread_id: str, changes: ThreadChanges) -> Thread:
        """Changes only what is given; never a message. Activity is not moved by it. NotFound."""
        ...

    async def delete_thread(self, thread_id: str) -> bool:
        """Hides it from every read; its state key is free again. False if there was none: not an error."""
        ...

    async def restore_thread(self, thread_id: str) -> Thread:
        """Brings a deleted thread back. NotFound; DuplicateId if its state key is in use by now."""
        ...

    async def prune_threads(self, *, idle_since: dt.datetime) -> int:
        """Deletes for good the owner's threads that never held a message and had no activity since. How many."""
        ...


class MessageOperations(Protocol):
    async def append(
        self,
        thread_id: str,
        messages: Sequence[Sealed],
        *,
        key: str | None = None,
        expected_count: int | None = None,
        turn_id: str | None = None,
        tokens: int = 0,
        title: CleanText | None = None,
    ) -> Appended:
        """Writes the messages at the head, all or none, and touches the thread. A thread without a title takes `title`,
        which a person may change later. A message with a `created_us` of its own keeps it. `Appended.thread` has what
        an append changes about its thread, so that a caller need not read it again.

        The same call again is safe: with the same key, or with message ids that already stand in this history in this
        order with this role and content, nothing is written and the answer is the first one's, `replayed`.
        A key counts within its thread. KeyReused: the key came with other messages; ids may differ, since sealing may
        have made them up. DuplicateId: a message id stands in this history and this is no repeat (other content,
        another order, or only some of them). HeadMoved: `expected_count` is not the count. NotFound: no such living
        thread. LimitExceeded: the thread would hold more than the store's limit. Appending nothing is InvalidInput."""
        ...

    async def messages(
        self,
        thread_id: str,
        *,
        first: int = 0,
        last: int | None = None,
        limit: int | None = None,
        timeline_id: str | None = None,
    ) -> list[Message]:
        """Seqs `first` to `last` (inclusive) of the history, in order, at most `limit` of them. `timeline_id` reads
        one the thread stood on instead of the present one. NotFound for an unknown thread, or for a timeline it never
        stood on; an empty thread is []."""
        ...

    async def last_turns(self, thread_id: str, turns: int, *, before: int | None = None) -> list[Message]:
        """The newest messages that begin with the `turns`-th last user message, in order; all if there are fewer.
        `before` looks only at seqs below it. Costs the same at any length of the thread. NotFound for an unknown
        thread."""
        ...

    async def message(self, thread_id: str, message_id: str) -> Message | None:
        """One message of the present history by its id."""
        ...

    async def search(self, query: str, *, limit: int = 20, offset: int = 0) -> list[Hit]:
        """Messages in the present history of living threads that hold all the words, best first. A message that several
        threads show is found once, in the one it was written in if that still shows it. Every word is literal: no
        operator of any database works. Finds everything that was acknowledged before the call."""
        ...


class TimelineOperations(Protocol):
    """Each of these writes one or two small rows and no message, whatever the length of the history. A thread that goes
    on elsewhere is active by that."""

    async def branch(self, thread_id: str, new: NewThread, *, at: int | None = None) -> Thread:
        """A new thread whose history is the source's up to and with seq `at` (default: all of it; -1: nothing).
        Independent from then on. What `new` leaves out is taken from the source (agent, model, system prompt, working
        directory). NotFound; InvalidInput if `at` is past the head; DuplicateId as in create_thread."""
        ...

    async def move(self, thread_id: str, seq: int, *, timeline_id: str | None = None) -> Thread:
        """The thread goes on from `seq` of its history, or of another timeline of its own, on a new timeline. The old
        one stays and can be switched to. NotFound; InvalidInput if there is no such seq."""
        ...

    async def undo(self, thread_id: str) -> Thread:
        """The thread goes on, on a new timeline, from before its last user message. InvalidInput if it has none."""
        ...

    async def switch(self, thread_id: str, timeline_id: str) -> Thread:
        """The thread stands on one of its own timelines again, at that timeline's end; if it stands there already,
        nothing changes. NotFound."""
        ...

    async def timelines(self, thread_id: str) -> list[Timeline]:
        """Every timeline the thread has stood on, oldest first. NotFound."""
        ...

    async def save(self, thread_id: str, name: str, *, at: int | None = None) -> SavedPoint:
        """Gives the point a name of the owner's; a name used before moves. NotFound; InvalidInput past the head."""
        ...

    async def load(self, thread_id: str, name: str) -> Thread:
        """The thread goes on from the saved point, whichever thread it was saved in, on a new timeline. NotFound."""
        ...

    async def saved_points(self) -> list[SavedPoint]:
        """The owner's, by name."""
        ...

    async def saved_point(self, name: str) -> SavedPoint | None: ...

    async def forget_saved_point(self, name: str) -> bool:
        """False if there was none."""
        ...
