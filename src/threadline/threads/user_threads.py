"""Operations on the threads of one user: create, read, list, search, append, branch, save, load, undo.

The library, the HTTP service and chat commands all call `Threads`. It checks names and limits, seals messages (validate
and mask), and only then calls the store. It is bound to one scope: threads of other users are not found.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Unpack

import msgspec

from threadline.core.arguments import check_int, check_point, check_str
from threadline.core.checks import LARGEST_INTEGER
from threadline.core.errors import DuplicateId, InvalidInput, KeyReused, LimitExceeded, NotFound
from threadline.core.ids import check_id, check_thread_key, check_user_id, is_generated_id, is_id, title_from
from threadline.core.messages import Message, NewMessage
from threadline.core.sealing import CleanText, Sealed, Sealer
from threadline.core.thread_filters import ThreadFilterFields, thread_filter
from threadline.core.threads import (
    Appended,
    ExpectedHead,
    NewThread,
    Page,
    SavedPoint,
    Scope,
    Thread,
    ThreadChanges,
    Timeline,
    system_scope,
)
from threadline.core.turns import Surface, Turn
from threadline.core.values import ValueWrite
from threadline.ports import Clock, Store, Transaction
from threadline.threads.field_checks import admit_changes, admit_name, admit_thread
from threadline.threads.search_calls import LIST_LIMIT, ThreadSearch

TURN_LIMIT = 500
_PAGE = 500
_KEY_SURFACE: Surface = "api"


class Threads(ThreadSearch):
    def __init__(self, store: Store, sealer: Sealer, clock: Clock, scope: Scope) -> None:
        self.scope = scope
        self._store = store
        self._sealer = sealer.for_tenant(scope.tenant_id)
        self._clock = clock
        self.session: Transaction = store.scoped(scope)

    async def create(self, new: NewThread | None = None) -> Thread:
        self.scope.require("member")
        return await self.session.create_thread(admit_thread(self._sealer, new or NewThread()))

    async def get_or_create(self, state_key: str, new: NewThread) -> Thread:
        """The thread under the key; created from `new` if there is none."""
        found = await self.get_by_key(state_key)
        if found is not None:
            return found
        try:
            return await self.create(msgspec.structs.replace(new, state_key=state_key))
        except DuplicateId:
            # Another caller created it since the read, or the id in `new` is taken.
            found = await self.get_by_key(state_key)
            if found is None:
                raise
            return found

    async def get(self, thread_id: str, *, deleted: bool = False) -> Thread | None:
        return await self.session.thread(check_id("thread", thread_id), deleted=deleted)

    async def get_by_key(self, state_key: str) -> Thread | None:
        return await self.session.thread_by_key(check_thread_key(state_key))

    async def read(self, thread_id: str) -> Thread:
        """NotFound."""
        found = await self.get(thread_id)
        if found is None:
            raise NotFound("thread", thread_id)
        return found

    async def find(self, name: str) -> Thread:
        """By id or by state key. NotFound."""
        check_thread_key(name)
        if is_generated_id(name):
            found = await self.session.thread(name) or await self.session.thread_by_key(name)
        else:
            # Not like an id that was generated, so it is most likely a key: one read instead of two.
            found = await self.session.thread_by_key(name)
            if found is None and is_id(name):
                found = await self.session.thread(name)
        if found is None:
            raise NotFound("thread", name)
        return found

    async def page(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
        archived: bool | None = False,
        deleted: bool = False,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[Thread]:
        check_int("limit", limit, 1, LIST_LIMIT)
        check_int("offset", offset, 0)
        return await self.session.threads(
            limit=limit,
            cursor=cursor,
            offset=offset,
            archived=archived,
            deleted=deleted,
            matching=thread_filter(matching),
        )

    async def page_of_all(
        self,
        *,
        user: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        archived: bool | None = False,
        deleted: bool = False,
        **matching: Unpack[ThreadFilterFields],
    ) -> Page[Thread]:
        """Threads of one user, or of all users of the tenant. Administrators only; the first page is audited."""
        self.scope.require("admin")
        check_int("limit", limit, 1, LIST_LIMIT)
        wanted = thread_filter(matching)
        tenant_id = self.scope.tenant_id
        scope = system_scope(tenant_id) if user is None else Scope(tenant_id, check_user_id(user))
        session = self._store.scoped(scope)
        read = session.tenant_threads if user is None else session.threads
        page = await read(limit=limit, cursor=cursor, archived=archived, deleted=deleted, matching=wanted)
        if cursor is None:
            await self.session.record_act("threads.listed", "*" if user is None else user)
        return page

    async def surfaces(self, threads: Sequence[Thread]) -> dict[str, tuple[Surface, ...]]:
        """The surfaces that recent turns of each thread came from, by thread id."""
        return await self.session.surfaces([thread.id for thread in threads])

    async def turns(self, thread_id: str, *, limit: int = 100) -> list[Turn]:
        """Newest first. NotFound."""
        check_int("limit", limit, 1, TURN_LIMIT)
        await self.read(thread_id)
        return await self.session.turns(thread_id, limit=limit)

    async def active_turns(self, thread_id: str) -> list[Turn]:
        return await self.session.active_turns(check_id("thread", thread_id))

    async def update(self, thread_id: str, changes: ThreadChanges) -> Thread:
        self.scope.require("member")
        return await self.session.update_thread(check_id("thread", thread_id), admit_changes(self._sealer, changes))

    async def delete(self, thread_id: str) -> bool:
        self.scope.require("member")
        return await self.session.delete_thread(check_id("thread", thread_id))

    async def restore(self, thread_id: str) -> Thread:
        self.scope.require("member")
        return await self.session.restore_thread(check_id("thread", thread_id))

    async def prune(self, *, older_than: dt.timedelta = dt.timedelta(0)) -> int:
        """Removes threads that never held a message and saw no activity for so long. Returns how many."""
        self.scope.require("member")
        return await self.session.prune_threads(idle_since=self._clock.now() - older_than)

    async def purge(self, thread_id: str) -> bool:
        self.scope.require("member")
        return await self.session.purge_thread(check_id("thread", thread_id))

    async def append(
        self,
        thread_id: str,
        messages: Sequence[NewMessage],
        *,
        key: str | None = None,
        expected_count: int | None = None,
        expected_timeline: str | None = None,
        after: int | str | None = None,
        values: Sequence[ValueWrite] = (),
    ) -> Appended:
        """All of them or none, once, together with the values. `Transaction.append` says when a repeat is safe."""
        self.scope.require("member")
        check_id("thread", thread_id)
        if key is not None:
            check_id("key", key)
        sealed = self._seal(messages)
        options = _AppendOptions(
            **_expected_head(expected_count, expected_timeline),
            key=key,
            after=await self._seq(thread_id, after, name="after"),
            title=first_title(sealed),
        )
        if not values:
            return await self.session.append(thread_id, sealed, **options)

        async def work(tx: Transaction) -> Appended:
            appended = await tx.append(thread_id, sealed, **options)
            if appended.replayed:
                # The values were stored with the messages, and may have been changed since.
                return appended
            return msgspec.structs.replace(appended, value_versions=tuple(await tx.write_values(values)))

        return await self._store.transact(self.scope, work)

    async def messages(
        self,
        thread_id: str,
        *,
        first: int = 0,
        last: int | None = None,
        newest: int | None = None,
        around: int | str | None = None,
        within: int = 25,
        timeline_id: str | None = None,
    ) -> list[Message]:
        """Seqs `first` to `last`, or the `newest` n, or `within` before and after `around`. InvalidInput for two of
        these. NotFound."""
        check_id("thread", thread_id)
        check_int("first", first, 0)
        if last is not None:
            check_int("last", last, -1)
        if timeline_id is not None:
            check_id("timeline", timeline_id)
        if newest is not None:
            if first or last is not None:
                raise InvalidInput("`newest` cannot be combined with `first` or `last`")
            check_int("newest", newest, 1)
            count = await self._message_count(thread_id, timeline_id)
            # With `last` an append between the two reads does not make the answer longer than `newest`.
            first, last = max(0, count - newest), count - 1
        if around is not None:
            if first or last is not None:
                raise InvalidInput("`around` cannot be combined with `first`, `last` or `newest`")
            middle = await self._seq(thread_id, around, name="around")
            assert middle is not None
            check_int("around", middle, 0, LARGEST_INTEGER)
            check_int("within", within, 0, _PAGE)
            first, last = max(0, middle - within), middle + within
        return await self.session.messages(thread_id, first=first, last=last, timeline_id=timeline_id)

    async def _message_count(self, thread_id: str, timeline_id: str | None) -> int:
        if timeline_id is None:
            return (await self.read(thread_id)).message_count
        for timeline in await self.session.timelines(thread_id):
            if timeline.id == timeline_id:
                return timeline.message_count
        raise NotFound("timeline", timeline_id)

    async def stream(self, thread_id: str) -> AsyncIterator[Message]:
        """The whole history as it was when reading began, one page of messages in memory at a time."""
        thread = await self.read(thread_id)
        for first in range(0, thread.message_count, _PAGE):
            last = min(first + _PAGE, thread.message_count) - 1
            for message in await self.session.messages(
                thread_id, first=first, last=last, timeline_id=thread.timeline_id
            ):
                yield message

    async def message(self, thread_id: str, message_id: str) -> Message | None:
        return await self.session.message(check_id("thread", thread_id), check_id("message", message_id))

    async def last_turns(self, thread_id: str, turns: int) -> list[Message]:
        check_int("turns", turns, 1)
        return await self.session.last_turns(check_id("thread", thread_id), turns)

    async def branch(self, thread_id: str, new: NewThread | None = None, *, at: int | str | None = None) -> Thread:
        """`at` is a seq or a message id; the new thread begins with everything up to and with it."""
        self.scope.require("member")
        seq = await self._seq(thread_id, at)
        return await self.session.branch(
            check_id("thread", thread_id), admit_thread(self._sealer, new or NewThread()), at=seq
        )

    async def rewind(
        self, thread_id: str, at: int | str, *, before: bool = False, **expected: Unpack[ExpectedHead]
    ) -> Thread:
        """The thread continues from `at` (or from just before it) on a new timeline."""
        self.scope.require("member")
        seq = await self._seq(thread_id, at)
        if seq is None:
            raise InvalidInput("`at` must be a seq or a message id, got None")
        where = seq - 1 if before else seq
        return await self.session.move(check_id("thread", thread_id), where, **_expected_head(**expected))

    async def undo(self, thread_id: str, *, key: str | None = None, **expected: Unpack[ExpectedHead]) -> Thread:
        """With a key it happens once, however often it is requested."""
        self.scope.require("member")
        check_id("thread", thread_id)
        head = _expected_head(**expected)
        if key is None:
            return await self.session.undo(thread_id, **head)
        return await self._move_once(thread_id, key, "undo", lambda tx: tx.undo(thread_id, **head))

    async def switch(self, thread_id: str, timeline_id: str, **expected: Unpack[ExpectedHead]) -> Thread:
        self.scope.require("member")
        check_id("timeline", timeline_id)
        return await self.session.switch(check_id("thread", thread_id), timeline_id, **_expected_head(**expected))

    async def timelines(self, thread_id: str) -> list[Timeline]:
        return await self.session.timelines(check_id("thread", thread_id))

    async def save(self, thread_id: str, name: str, *, at: int | str | None = None) -> SavedPoint:
        self.scope.require("member")
        seq = await self._seq(thread_id, at)
        return await self.session.save(check_id("thread", thread_id), self.saved_name(name), at=seq)

    def saved_name(self, name: str) -> str:
        """The normalised spelling under which a saved point is stored."""
        return admit_name(self._sealer, "saved point", check_str("name", name))

    async def load(
        self, thread_id: str, name: str, *, key: str | None = None, **expected: Unpack[ExpectedHead]
    ) -> Thread:
        """With a key it happens once, however often it is requested."""
        self.scope.require("member")
        check_id("thread", thread_id)
        saved, head = self.saved_name(name), _expected_head(**expected)
        if key is None:
            return await self.session.load(thread_id, saved, **head)
        return await self._move_once(thread_id, key, f"load {saved}", lambda tx: tx.load(thread_id, saved, **head))

    async def saved_points(self) -> list[SavedPoint]:
        return await self.session.saved_points()

    async def forget_saved_point(self, name: str) -> bool:
        self.scope.require("member")
        return await self.session.forget_saved_point(self.saved_name(name))

    async def _move_once(
        self, thread_id: str, key: str, what: str, move: Callable[[Transaction], Awaitable[Thread]]
    ) -> Thread:
        """Moves the thread, or gives it as it is now if that was done under this key. The key is claimed in the
        transaction that moves, so either both happened or neither did. KeyReused if the key was used for another thread
        or for something else than `what`. NotFound."""
        request = hashlib.sha256(msgspec.json.encode([thread_id, what])).hexdigest()
        # Keys are claimed in the whole tenant, and two users may choose the same one.
        claim = f"{hashlib.sha256(self.scope.user_id.encode()).hexdigest()[:32]}:{check_id('key', key)}"

        async def work(tx: Transaction) -> Thread:
            if await tx.claim_inbox(_KEY_SURFACE, claim, fingerprint=request) is not None:
                await tx.settle_inbox(_KEY_SURFACE, claim, status="done")
                return await move(tx)
            earlier, found = await tx.inbox_row(_KEY_SURFACE, claim), await tx.thread(thread_id)
            if earlier is None or earlier.fingerprint != request:
                raise KeyReused(key)
            if found is None:
                raise NotFound("thread", thread_id)
            return found

        return await self._store.transact(self.scope, work)

    async def _seq(self, thread_id: str, at: int | str | None, name: str = "at") -> int | None:
        if not isinstance(at, str):
            check_point(at, name)
            return at
        message = await self.message(thread_id, at)
        if message is None:
            raise NotFound("message", at)
        return message.seq

    def _seal(self, messages: Sequence[NewMessage]) -> list[Sealed]:
        most = self._sealer.limits.messages_per_append
        if len(messages) > most:
            raise LimitExceeded("messages per append", most, len(messages))
        return [self._sealer.message(message) for message in messages]


class _AppendOptions(ExpectedHead, total=False):
    key: str | None
    after: int | None
    title: CleanText | None


def _expected_head(expected_count: int | None = None, expected_timeline: str | None = None) -> ExpectedHead:
    """InvalidInput, InvalidName."""
    if expected_count is not None:
        check_int("expected_count", expected_count, 0)
    if expected_timeline is not None:
        check_id("timeline", expected_timeline)
    return ExpectedHead(expected_count=expected_count, expected_timeline=expected_timeline)


def first_title(sealed: Sequence[Sealed]) -> CleanText | None:
    """The title that the first user message among these gives, if it has words."""
    text = next((message.text for message in sealed if message.role == "user"), "")
    return CleanText(title_from(text)) if text.strip() else None
