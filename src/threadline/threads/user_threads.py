"""Threads: what a user does with conversations, apart from talking in them.

Every door (library, terminal, HTTP, Matrix) goes through here: names are checked, messages sealed, and only then does
the store see anything. Bound to one scope; what is not the scope's does not exist.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Sequence

from threadline.core.errors import InvalidInput, LimitExceeded, NotFound
from threadline.core.ids import (
    check_id,
    check_state_key,
    title_from,
)
from threadline.core.messages import Message, NewMessage
from threadline.core.sealing import CleanText, Sealed, Sealer
from threadline.core.threads import (
    Appended,
    Hit,
    NewThread,
    Page,
    SavedPoint,
    Scope,
    Thread,
    ThreadChanges,
    Timeline,
)
from threadline.core.turns import Surface
from threadline.ports import Clock, Store, Transaction
from threadline.threads.field_checks import admit_changes, admit_name, admit_thread
from threadline.threads.keyed_moves import move_once

LIST_LIMIT = 100
_PAGE = 500


class Threads:
    """The use cases of one scope."""

    def __init__(self, store: Store, sealer: Sealer, clock: Clock, scope: Scope) -> None:
        self.scope = scope
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self._tx: Transaction = store.scoped(scope)

    async def create(self, new: NewThread | None = None) -> Thread:
        self.scope.require("member")
        return await self._tx.create_thread(admit_thread(self._sealer, new or NewThread()))

    async def get(self, thread_id: str, *, deleted: bool = False) -> Thread | None:
        return await self._tx.thread(check_id("thread", thread_id), deleted=deleted)

    async def find(self, thread_id: str) -> Thread:
        """By id, else by state key. NotFound."""
        found = await self.get(thread_id) or await self._tx.thread_by_key(thread_id)
        if found is None:
            raise NotFound("thread", thread_id)
        return found

    async def get_by_key(self, state_key: str) -> Thread | None:
        return await self._tx.thread_by_key(check_state_key(state_key))

    async def page(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
        archived: bool | None = False,
        deleted: bool = False,
    ) -> Page[Thread]:
        if not 1 <= limit <= LIST_LIMIT:
            raise InvalidInput(f"limit is 1 to {LIST_LIMIT}, not {limit}")
        if offset < 0:
            raise InvalidInput("offset cannot be negative")
        return await self._tx.threads(limit=limit, cursor=cursor, offset=offset, archived=archived, deleted=deleted)

    async def surfaces(self, threads: Sequence[Thread]) -> dict[str, tuple[Surface, ...]]:
        """From where each was talked in lately, by thread id."""
        return await self._tx.surfaces([thread.id for thread in threads])

    async def update(self, thread_id: str, changes: ThreadChanges) -> Thread:
        self.scope.require("member")
        return await self._tx.update_thread(check_id("thread", thread_id), admit_changes(self._sealer, changes))

    async def delete(self, thread_id: str) -> bool:
        self.scope.require("member")
        return await self._tx.delete_thread(check_id("thread", thread_id))

    async def restore(self, thread_id: str) -> Thread:
        self.scope.require("member")
        return await self._tx.restore_thread(check_id("thread", thread_id))

    async def prune(self, *, older_than: dt.timedelta = dt.timedelta(0)) -> int:
        """Removes threads that never held a message and saw no activity for so long."""
        self.scope.require("member")
        return await self._tx.prune_threads(idle_since=self._clock.now() - older_than)

    async def purge(self, thread_id: str) -> bool:
        self.scope.require("member")
        return await self._tx.purge_thread(check_id("thread", thread_id))

    async def append(
        self,
        thread_id: str,
        messages: Sequence[NewMessage],
        *,
        key: str | None = None,
        expected_count: int | None = None,
    ) -> Appended:
        """All of them or none, once. See `Transaction.append` for what makes a repeat safe."""
        self.scope.require("member")
        if key is not None:
            check_id("key", key)
        sealed = self._seal(messages)
        return await self._tx.append(
            check_id("thread", thread_id), sealed, key=key, expected_count=expected_count, title=first_title(sealed)
        )

    async def messages(
        self,
        thread_id: str,
        *,
        first: int = 0,
        last: int | None = None,
        limit: int | None = None,
        timeline_id: str | None = None,
    ) -> list[Message]:
        return await self._tx.messages(
            check_id("thread", thread_id), first=first, last=last, limit=limit, timeline_id=timeline_id
        )

    async def stream(self, thread_id: str) -> AsyncIterator[Message]:
        """The whole history in pages, as it stood when reading began, in little memory whatever its length."""
        thread = await self._tx.thread(check_id("thread", thread_id))
        if thread is None:
            raise NotFound("thread", thread_id)
        for first in range(0, thread.message_count, _PAGE):
            last = min(first + _PAGE, thread.message_count) - 1
            for message in await self._tx.messages(thread_id, first=first, last=last, timeline_id=thread.timeline_id):
                yield message

    async def message(self, thread_id: str, message_id: str) -> Message | None:
        return await self._tx.message(check_id("thread", thread_id), check_id("message", message_id))

    async def last_turns(self, thread_id: str, turns: int) -> list[Message]:
        if turns < 1:
            raise InvalidInput("ask for one turn or more")
        return await self._tx.last_turns(check_id("thread", thread_id), turns)

    async def search(self, query: str, *, limit: int = 20, offset: int = 0) -> list[Hit]:
        if not query.strip():
            raise InvalidInput("search for at least one word")
        if not 1 <= limit <= LIST_LIMIT:
            raise InvalidInput(f"limit is 1 to {LIST_LIMIT}, not {limit}")
        return await self._tx.search(query, limit=limit, offset=offset)

    async def branch(self, thread_id: str, new: NewThread | None = None, *, at: int | str | None = None) -> Thread:
        """`at` is a seq or a message's id; the new thread begins with everything up to and with it."""
        self.scope.require("member")
        seq = await self._seq(thread_id, at)
        return await self._tx.branch(
            check_id("thread", thread_id), admit_thread(self._sealer, new or NewThread()), at=seq
        )

    async def rewind(self, thread_id: str, at: int | str, *, before: bool = False) -> Thread:
        """The thread goes on from `at` (or from just before it) on a new timeline."""
        self.scope.require("member")
        seq = await self._seq(thread_id, at)
        assert seq is not None
        return await self._tx.move(check_id("thread", thread_id), seq - 1 if before else seq)

    async def undo(self, thread_id: str, *, key: str | None = None) -> Thread:
        """With a key once, however often it is asked for under it."""
        self.scope.require("member")
        check_id("thread", thread_id)
        if key is None:
            return await self._tx.undo(thread_id)
        return await move_once(self._store, self.scope, thread_id, key, "undo", lambda tx: tx.undo(thread_id))

    async def switch(self, thread_id: str, timeline_id: str) -> Thread:
        self.scope.require("member")
        return await self._tx.switch(check_id("thread", thread_id), check_id("timeline", timeline_id))

    async def timelines(self, thread_id: str) -> list[Timeline]:
        return await self._tx.timelines(check_id("thread", thread_id))

    async def save(self, thread_id: str, name: str, *, at: int | str | None = None) -> SavedPoint:
        self.scope.require("member")
        seq = await self._seq(thread_id, at)
        return await self._tx.save(check_id("thread", thread_id), self.saved_name(name), at=seq)

    def saved_name(self, name: str) -> str:
        """A saved point's name in the one spelling under which it is kept."""
        return admit_name(self._sealer, "saved point", name)

    async def load(self, thread_id: str, name: str, *, key: str | None = None) -> Thread:
        """With a key once, however often it is asked for under it."""
        self.scope.require("member")
        check_id("thread", thread_id)
        saved = self.saved_name(name)
        if key is None:
            return await self._tx.load(thread_id, saved)
        what = f"load {saved}"
        return await move_once(self._store, self.scope, thread_id, key, what, lambda tx: tx.load(thread_id, saved))

    async def saved_points(self) -> list[SavedPoint]:
        return await self._tx.saved_points()

    async def forget_saved_point(self, name: str) -> bool:
        self.scope.require("member")
        return await self._tx.forget_saved_point(self.saved_name(name))

    async def _seq(self, thread_id: str, at: int | str | None) -> int | None:
        if at is None or isinstance(at, int):
            return at
        message = await self._tx.message(check_id("thread", thread_id), check_id("message", at))
        if message is None:
            raise NotFound("message", at)
        return message.seq

    def _seal(self, messages: Sequence[NewMessage]) -> list[Sealed]:
        most = self._sealer.limits.messages_per_append
        if len(messages) > most:
            raise LimitExceeded("messages per append", most, len(messages))
        return [self._sealer.message(message) for message in messages]


def first_title(sealed: Sequence[Sealed]) -> CleanText | None:
    """The title that the first user message among these gives, if it has words."""
    text = next((message.text for message in sealed if message.role == "user"), "")
    return CleanText(title_from(text)) if text.strip() else None
