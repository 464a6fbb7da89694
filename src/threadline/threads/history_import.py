"""Stores threads that come from elsewhere, with everything: timelines, times, turns, summaries, saved points.

`HistoryImporter.store` is the one way in for every format: our own export, and the importers of other programs'. One
call stores one thread in one transaction, or nothing. It adds what is missing and changes nothing that is there, so an
import can be repeated, also after it was killed:

- a thread is known by its id, or by its origin;
- a message is known by its id and its place: what follows what. Where the source says something else than the thread
  does, its messages go to a timeline that branches off there.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from threadline.core.checks import check_time
from threadline.core.errors import DuplicateId, InvalidInput
from threadline.core.history import (
    MAIN,
    HiddenRecord,
    History,
    HistoryItem,
    ImportedThread,
    MessageRecord,
    PastTurn,
    SavedPointRecord,
    SummaryRecord,
    ThreadDates,
    ThreadRecord,
    TimelineRecord,
    check_message,
    check_thread,
    id_of_origin,
)
from threadline.core.ids import check_id, check_thread_key, new_id, new_state_key
from threadline.core.messages import NewMessage, from_us
from threadline.core.sealing import CleanText, Sealer
from threadline.core.threads import NewThread, Scope, Thread
from threadline.core.turns import ACTIVE
from threadline.ports import Clock, Store, Transaction
from threadline.threads.field_checks import admit_name, admit_thread
from threadline.threads.history_tree import HistoryTree
from threadline.threads.user_threads import first_title

_TURNS = 500


class CheckedRecord(NamedTuple):
    """A thread that may be stored: when it began, and when it was last used. A source cannot put it into the future."""

    record: ThreadRecord
    created_at: dt.datetime
    updated_at: dt.datetime
    now: dt.datetime


class HistoryImporter:
    """Imports under one scope. `keep_system` imports system texts as such, for operators who vouch for the source."""

    def __init__(self, store: Store, sealer: Sealer, clock: Clock, scope: Scope, *, keep_system: bool = False) -> None:
        scope.require("member")
        self._store = store
        self._clock = clock
        self._sealer = sealer.for_tenant(scope.tenant_id)
        self._scope = scope
        self._keep_system = keep_system

    def check(self, record: ThreadRecord, items: Iterable[HistoryItem]) -> CheckedRecord:
        """Refuses what must not be stored, before a transaction begins, which would make others wait. The order of
        items and the points they name are checked while they are stored."""
        record = check_thread(record, keep_system=self._keep_system)
        self._new_thread(record, "checked", "checked")
        now = self._clock.now()
        for name in ("created_at", "updated_at", "archived_at", "deleted_at"):
            if (given := getattr(record, name)) is not None:
                check_time(name, given)
        found: list[int] = []
        for item in items:
            item = self._checked(item)
            if isinstance(item, MessageRecord) and (at := self._sealer.message(item.message).created_us) is not None:
                found = [min([at, *found]), max([at, *found])]
            elif isinstance(item, SavedPointRecord):
                admit_name(self._sealer, "saved point", item.name)
            elif isinstance(item, SummaryRecord):
                self._sealer.text(item.text, "summary")
        first, last = (from_us(found[0]), from_us(found[1])) if found else (now, now)
        return CheckedRecord(record, record.created_at or min(first, now), min(record.updated_at or last, now), now)

    async def store(self, history: History, checked: CheckedRecord | None = None) -> ImportedThread:
        """Stores one thread, or what of it is new. With an `origin` (such as `chatgpt:` and the conversation's id) its
        own id is derived from that and the user, so that every later import of the same origin finds it; otherwise the
        record's id is the origin, and is kept if it is free. A thread that was deleted here stays deleted.

        InvalidInput and its subclasses for a record that may not be stored: nothing of this thread is. An import cannot
        instruct or run anything: see `core.history.check_message`."""
        checked = checked or self.check(history.thread, history.items)
        record = checked.record
        if history.origin is None and record.id is not None:
            try:
                return await self._store_as(record.id, checked, history.items)
            except DuplicateId as taken:
                if taken.kind != "thread":
                    raise
        # Another user of this tenant has a thread of this id, or the source has ids of its own.
        origin = history.origin or record.id or new_id()
        return await self._store_as(id_of_origin(self._scope.user_id, origin), checked, history.items)

    async def _store_as(self, thread_id: str, checked: CheckedRecord, items: Iterable[HistoryItem]) -> ImportedThread:
        check_id("thread", thread_id)

        async def work(tx: Transaction) -> ImportedThread:
            known = await tx.thread(thread_id, deleted=True)
            if known is not None and known.deleted_at is not None:
                return ImportedThread(known, "deleted", 0)
            thread = known or await self._create(tx, thread_id, checked)
            tree = HistoryTree(tx, thread, is_new=known is None)
            await tree.read()
            merge = _Merge(tx, self._sealer, tree, checked)
            for item in items:
                await merge.add(self._checked(item))
            return await merge.finish(checked.record, known)

        return await self._store.transact(self._scope, work)

    def _checked(self, item: HistoryItem) -> HistoryItem:
        if isinstance(item, PastTurn) and item.status in ACTIVE:
            # Whatever ran when the source was written does not run any more.
            return msgspec.structs.replace(item, status="interrupted")
        if not isinstance(item, MessageRecord):
            return item
        return MessageRecord(check_message(item.message, keep_system=self._keep_system), item.turn_id)

    async def _create(self, tx: Transaction, thread_id: str, checked: CheckedRecord) -> Thread:
        record = checked.record
        key = record.state_key
        if key is None or await tx.thread_by_key(check_thread_key(key)) is not None:
            key = new_state_key()
        return await tx.create_thread(self._new_thread(record, thread_id, key), created_at=checked.created_at)

    def _new_thread(self, record: ThreadRecord, thread_id: str, key: str) -> NewThread:
        fields = {
            name: getattr(record, name)
            for name in ("title", "agent_id", "model", "system_prompt", "working_dir", "metadata")
        }
        checked = admit_thread(self._sealer, NewThread(id=thread_id, state_key=key, **fields))
        return msgspec.structs.replace(checked, title_by_person=record.title_by_person)


class _Merge:
    """The items of one thread, as they are stored."""

    def __init__(self, tx: Transaction, sealer: Sealer, tree: HistoryTree, times: CheckedRecord) -> None:
        self._times = times
        self._tx = tx
        self._sealer = sealer
        self._tree = tree
        self._turns: list[PastTurn] = []
        self._new_turn_ids: dict[str, str] = {}
        self._title: CleanText | None = None
        self._last_line: str | None = None
        self._added = False

    async def add(self, item: HistoryItem) -> None:
        if isinstance(item, PastTurn):
            self._turns.append(item)
            if len(self._turns) >= _TURNS:
                await self._store_turns()
            return
        await self._store_turns()
        match item:
            case TimelineRecord():
                await self._tree.begin(item.key, item.parent, item.created_at)
            case MessageRecord():
                await self._place(item)
            case HiddenRecord():
                await self._hide(item.count)
            case SavedPointRecord():
                await self._save(item)
            case SummaryRecord():
                await self._summarise(item)

    async def _place(self, item: MessageRecord) -> None:
        if self._tree.line is None:
            await self._tree.begin(MAIN, None, None)
        sealed = self._sealer.message(item.message)
        if item.message.id is None:
            raise InvalidInput("a message of an import must have an id, got none")
        turn_id = None if item.turn_id is None else self._new_turn_ids.get(item.turn_id, item.turn_id)
        await self._tree.place(sealed, turn_id)
        self._last_line = self._tree.line
        if self._title is None:
            self._title = first_title([sealed])

    async def _hide(self, count: int) -> None:
        if self._tree.line is None:
            await self._tree.begin(MAIN, None, None)
        for _ in range(count):
            await self._tree.place(self._sealer.message(NewMessage("assistant", ())), None, is_hidden=True)
        self._last_line = self._tree.line

    async def _store_turns(self) -> None:
        """A turn whose id another thread has gets an id that is derived from it: the same in every import."""
        if not self._turns:
            return
        waiting, self._turns = self._turns, []
        thread_id = self._tree.thread_id
        taken = set(await self._tx.add_turns(thread_id, waiting))
        if not taken:
            return
        renamed = {turn_id: id_of_origin(thread_id, turn_id) for turn_id in taken}
        self._new_turn_ids.update(renamed)
        again = [msgspec.structs.replace(turn, id=renamed[turn.id]) for turn in waiting if turn.id in taken]
        if still := await self._tx.add_turns(thread_id, again):
            raise DuplicateId("turn", still[0])

    async def _save(self, item: SavedPointRecord) -> None:
        await self._tree.flush()
        at = self._tree.point(item.point)
        name = admit_name(self._sealer, "saved point", item.name)
        saved_at = item.created_at or self._times.now
        self._added |= await self._tx.add_saved_point(
            self._tree.thread_id, name, at.seq, timeline_id=at.timeline_id, created_at=saved_at
        )

    async def _summarise(self, item: SummaryRecord) -> None:
        await self._tree.flush()
        at = self._tree.point(item.point)
        self._added |= await self._tx.add_summary(
            self._tree.thread_id,
            at.seq,
            self._sealer.text(item.text, "summary"),
            timeline_id=at.timeline_id,
            created_at=item.created_at,
            source=item.source,
            model=item.model,
        )

    async def finish(self, record: ThreadRecord, known: Thread | None) -> ImportedThread:
        await self._store_turns()
        await self._tree.flush()
        if known is None:
            await self._settle_new(record)
        elif self._tree.has_changed:
            await self._settle_known(record, known)
        stored = await self._tx.thread(self._tree.thread_id, deleted=True)
        assert stored is not None
        if known is None:
            return ImportedThread(stored, "created", self._tree.added)
        extended = self._added or self._tree.has_changed
        return ImportedThread(stored, "extended" if extended else "unchanged", self._tree.added)

    async def _settle_new(self, record: ThreadRecord) -> None:
        thread_id = self._tree.thread_id
        await self._tree.show(record.timeline or self._last_line)
        if record.title is None and record.is_title_suggested and self._title is not None:
            await self._tx.suggest_title(thread_id, self._title)
        dates = ThreadDates(self._times.updated_at, record.archived_at, record.deleted_at, record.token_count)
        await self._tx.date_thread(thread_id, dates)

    async def _settle_known(self, record: ThreadRecord, known: Thread) -> None:
        """The thread goes to where the source ends if that was used later than the thread here."""
        updated_at = self._times.updated_at
        is_newer = updated_at > known.updated_at
        if is_newer:
            await self._tree.show(record.timeline or self._last_line)
            if record.title is not None:
                title = admit_name(self._sealer, "thread", record.title)
                await self._tx.suggest_title(known.id, CleanText(title))
        else:
            await self._tx.switch(known.id, known.timeline_id)
        tokens = max(known.token_count, record.token_count) if is_newer else known.token_count
        dates = ThreadDates(max(updated_at, known.updated_at), known.archived_at, None, tokens)
        await self._tx.date_thread(known.id, dates)
