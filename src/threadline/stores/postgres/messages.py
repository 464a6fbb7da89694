"""Messages: append and read.

An append tries the common case first. If that does not hold, `append_locked` returns the problem, which becomes an
error here. The content of messages whose ids exist already is compared here and not in the database, because equal
bodies may be compressed differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import asyncpg

from threadline.core.errors import (
    DuplicateId,
    HeadMoved,
    KeyReused,
    LimitExceeded,
    NotFound,
    no_such_seq,
    nothing_to_append,
)
from threadline.core.hidden_parts import newest_of, without_hidden
from threadline.core.ids import new_id
from threadline.core.messages import Message, Role, from_us
from threadline.core.sealing import CleanText, Sealed
from threadline.core.threads import Appended, ThreadState
from threadline.stores.postgres.append_batcher import AppendArgs
from threadline.stores.postgres.session import Operations
from threadline.stores.rows import fingerprint
from threadline.stores.sql import load_queries

T = TypeVar("T")
_SQL = load_queries(__package__, "queries/messages.sql")
_THREAD_SQL = load_queries(__package__, "queries/threads.sql")
ROLES: dict[bytes, Role] = {b"u": "user", b"a": "assistant", b"s": "system"}
_LAST_SEQ = 2**31 - 1
"""The largest value of the column's type."""
_MAX_TURNS_IN_WINDOW = 500
# A few messages are read sooner than a replica is asked.
_LARGE_PAGE = 20


class MessageOperations(Operations):
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
        self._check_messages(messages)
        session, pack = self.session, self.session.internals.bodies.pack
        args = AppendArgs(
            thread_id=thread_id,
            ids=[message.id for message in messages],
            roles="".join([message.role[0] for message in messages]),
            parts=[pack(message.parts_json) for message in messages],
            metadata=_unless_empty([message.metadata_json for message in messages]),
            created_us=_unless_empty([message.created_us for message in messages]),
            key=key,
            fingerprint=None if key is None else fingerprint(messages),
            expected_count=expected_count,
            max_count=session.internals.limits.messages_per_thread,
            turn_id=turn_id,
            tokens=tokens,
            title=title,
        )
        now_us = session.now_us()
        if after is not None or expected_timeline is not None:
            return await self._append_after(messages, args, after, expected_timeline)
        done = await session.append(now_us, args)
        if done is None:
            (row,) = await session.call(_SQL["append_locked"], session.now_us(), args)
            return await self._appended(messages, args, row)
        session.note_append()
        session.notify(thread_id)
        count = done.first_seq + len(messages)
        state = ThreadState(done.timeline_id, count, done.token_count, done.title, from_us(now_us))
        return Appended(thread_id, done.timeline_id, done.first_seq, tuple(args.ids), count, state)

    async def _append_after(
        self, messages: Sequence[Sealed], args: AppendArgs, after: int | None, expected_timeline: str | None
    ) -> Appended:
        session = self.session
        (row,) = await session.call(_SQL["append_after"], session.now_us(), args, after, new_id(), expected_timeline)
        if row["problem"] == "timeline":
            raise HeadMoved(row["first_seq"])
        if row["problem"] == "seq":
            assert after is not None
            raise no_such_seq(args.thread_id, after)
        return await self._appended(messages, args, row)

    async def _appended(self, messages: Sequence[Sealed], args: AppendArgs, row: asyncpg.Record) -> Appended:
        """The result of an append for which the common case did not hold: another append came first, this one is a
        repeat, or it is an error."""
        problem, thread_id, first_seq = row["problem"], args.thread_id, row["first_seq"]
        match problem:
            case None | "repeat" | "present":
                if problem is None:
                    self.session.note_append()
                    self.session.notify(thread_id)
                if problem == "present":
                    await self._refuse_other_content(thread_id, messages, first_seq)
                ids = tuple(args.ids if problem is None else row["message_ids"])
                return Appended(
                    thread_id,
                    row["timeline_id"],
                    first_seq,
                    ids,
                    first_seq + len(ids),
                    _state_from(row),
                    replayed=problem is not None,
                )
            case "thread":
                raise NotFound("thread", thread_id)
            case "key":
                raise KeyReused(str(args.key))
            case "message":
                raise DuplicateId("message", row["message_ids"][0])
            case "count":
                raise HeadMoved(first_seq, args.expected_count or 0)
            case _:
                raise LimitExceeded("messages per thread", args.max_count, first_seq + len(args.ids))

    def _check_messages(self, messages: Sequence[Sealed]) -> None:
        if not messages:
            raise nothing_to_append()
        most = self.session.internals.limits.messages_per_append
        if len(messages) > most:
            raise LimitExceeded("messages per append", most, len(messages))
        seen: set[str] = set()
        for message in messages:
            if message.id in seen:
                raise DuplicateId("message", message.id)
            seen.add(message.id)

    async def _refuse_other_content(self, thread_id: str, messages: Sequence[Sealed], first: int) -> None:
        stored = await self._read(thread_id, first, None, len(messages), None)
        unpack = self.session.internals.bodies.unpack
        for given, found in zip(messages, stored, strict=True):
            if (given.role, given.parts_json) != (ROLES[found["role"]], unpack(found["parts"])):
                raise DuplicateId("message", given.id)

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
        return self._messages_from(await self._read(thread_id, first, last, limit, timeline_id, deleted=deleted))

    async def _read(
        self,
        thread_id: str,
        first: int,
        last: int | None,
        limit: int | None,
        timeline_id: str | None,
        *,
        deleted: bool = False,
    ) -> Sequence[asyncpg.Record]:
        """The rows, also of hidden messages."""
        count = _LAST_SEQ if last is None else last - first + 1
        is_page = min(count, _LAST_SEQ if limit is None else limit) >= _LARGE_PAGE
        found = await self.session.call(
            _SQL["read_messages"], thread_id, timeline_id, max(first, 0), _LAST_SEQ if last is None else last, limit,
            None, deleted, reads=True, is_large=is_page,
        )  # fmt: skip
        if found and found[0]["id"] is None:
            # The function does not say which of the two is missing: the error is rare, so a second query finds out.
            if timeline_id is not None and await self._is_known(thread_id):
                raise NotFound("timeline", timeline_id)
            raise NotFound("thread", thread_id)
        return found

    async def last_turns(self, thread_id: str, turns: int, *, before: int | None = None) -> list[Message]:
        if turns == 0:
            if not await self._is_known(thread_id):
                raise NotFound("thread", thread_id)
            return []
        wanted = turns
        while True:
            found = await self._newest(thread_id, wanted, _LAST_SEQ if before is None else before - 1)
            made = self._messages_from(found)
            if len(made) == len(found):
                return made
            made, is_enough = newest_of(made, turns)
            if is_enough or found[0]["seq"] == 0:
                return made
            # Some of the questions are hidden, and a turn without its question is none.
            wanted *= 2

    async def _newest(self, thread_id: str, turns: int, last: int) -> Sequence[asyncpg.Record]:
        if turns <= _MAX_TURNS_IN_WINDOW:
            # Most turns are one question and one answer, so this one statement mostly finds them all.
            newest = await self.session.call(_SQL["read_newest"], thread_id, last, 2 * turns, reads=True)
            if newest and newest[0]["id"] is None:
                raise NotFound("thread", thread_id)
            window = _window(newest, turns)
            if window is not None:
                return window
        found = await self.session.call(_SQL["read_messages"], thread_id, None, 0, last, None, turns, False, reads=True)
        if found and found[0]["id"] is None:
            raise NotFound("thread", thread_id)
        return found

    async def message(self, thread_id: str, message_id: str) -> Message | None:
        found = await self.session.call(_SQL["find_message"], thread_id, message_id, reads=True)
        return next(iter(self._messages_from(found)), None)

    async def _is_known(self, thread_id: str) -> bool:
        return bool(await self.session.call(_THREAD_SQL["find_thread"], thread_id, None, False, reads=True))

    def _messages_from(self, found: Sequence[asyncpg.Record]) -> list[Message]:
        unpack = self.session.internals.bodies.unpack
        made = [
            Message(id, ROLES[role], timeline_id, seq, unpack(parts), metadata, turn_id, created_us)
            # By position, not by name: a history has thousands of rows. The order is that of the queries' columns.
            for id, role, timeline_id, seq, parts, metadata, turn_id, created_us, _ in found
        ]
        marks = {(row[2], row[3]): row[8] for row in found if row[8] is not None}
        return without_hidden(made, marks) if marks else made


def _state_from(row: asyncpg.Record) -> ThreadState:
    return ThreadState(
        row["thread_timeline_id"], row["message_count"], row["token_count"], row["title"], row["updated_at"]
    )


def _window(newest: Sequence[asyncpg.Record], turns: int) -> list[asyncpg.Record] | None:
    """The messages from the `turns`-th last user message on, or from the first message, oldest first. None if `newest`
    does not reach back that far."""
    for place, row in enumerate(newest):
        if row["role"] == b"u":
            turns -= 1
        if turns == 0 or row["seq"] == 0:
            return list(newest[place::-1])
    return None


def _unless_empty(values: list[T | None]) -> list[T | None] | None:
    # Sending an array of nulls costs as much as sending one of values.
    return None if all(value is None for value in values) else values
