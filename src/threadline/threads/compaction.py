"""Compaction: a summary that takes the place of the older part of a thread in prompts. It adds rows, deletes nothing.

Older messages are summarised in pieces that fit the model's window, each together with the summary of what came before.
Every piece is stored when it is written, so a crash costs one piece. One process at a time summarises a thread: it
claims the thread in the store. A summary is stored only if the thread has not moved and the summary has not been edited
since it was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from threadline.core.arguments import check_int, check_str
from threadline.core.context import Overflow, plan_compaction
from threadline.core.errors import Conflict, LimitExceeded, NotFound
from threadline.core.ids import check_id, check_text
from threadline.core.messages import Message
from threadline.core.sealing import Sealer
from threadline.core.summaries import (
    DEFAULT_WINDOW_TOKENS,
    SUMMARY_LENGTH,
    SummaryLimits,
    extract,
    transcript_entry,
)
from threadline.core.threads import Scope, Thread
from threadline.core.turns import Summary, Surface
from threadline.core.windows import refused_turns
from threadline.ports import Store, StoreSession, Summariser, SummaryTask

# Longer than a model may take for one piece, two attempts included; after a crash another process waits so long.
_CLAIM_SECONDS = 180.0
_FIRST_READ = 200
_GROWTH = 4
_PAGE = 200
_MAX_PIECES = 50
"""Of one call: a thread that needs more gets the rest with the next one."""
_BEING_SUMMARISED = "the thread is being summarised by another process: try again in a minute"


class Caller(NamedTuple):
    """Whose thread is summarised, and which agent answers in it."""

    scope: Scope
    agent_id: str | None = None
    surface: Surface = "api"


class Compaction:
    """`window_tokens` is the window in which people read long threads; None if it has no limit of tokens."""

    def __init__(self, store: Store, sealer: Sealer, window_tokens: int | None, summariser: Summariser) -> None:
        self._store = store
        self._sealer = sealer
        self._limits = SummaryLimits.of_window(window_tokens)
        self._budget = (window_tokens or DEFAULT_WINDOW_TOKENS) // 4
        self._summariser = summariser
        self._running: dict[tuple[str, str], asyncio.Lock] = {}

    async def summary(self, scope: Scope, thread_id: str) -> Summary | None:
        """The summary of the present history. NotFound."""
        return await self._store.scoped(scope).summary(check_id("thread", thread_id))

    async def set_summary(self, scope: Scope, thread_id: str, text: str) -> Summary:
        """See `GatewayThread.set_summary`. Conflict if it was replaced at the same moment."""
        scope.require("member")
        check_text("summary", check_str("text", text))
        if len(text) > SUMMARY_LENGTH:
            raise LimitExceeded("summary length", SUMMARY_LENGTH, len(text))
        session = self._store.scoped(scope)
        current = await self.summary(scope, thread_id)
        if current is None:
            raise Conflict("the thread has no summary to edit: compact it first")
        return await session.put_summary(
            thread_id,
            current.point.seq,
            self._sealer.for_tenant(scope.tenant_id).text(text, "summary"),
            source="person",
            timeline_id=current.point.timeline_id,
            earlier=current,
        )

    async def compact(self, scope: Scope, thread_id: str, *, budget: int | None = None) -> Summary | None:
        """See `GatewayThread.compact`."""
        scope.require("member")
        if budget is not None:
            check_int("budget", budget, 1)
        wanted = Overflow(self._budget if budget is None else budget)
        return await self._compact(Caller(scope), check_id("thread", thread_id), wanted, is_automatic=False)

    async def make_room(self, caller: Caller, thread_id: str, overflow: Overflow) -> Summary | None:
        """Summarises what a prompt had no room for, or soon will not have. Without a model, only what is no longer
        shown: an extract must not take the place of messages that fit. None if there was nothing to do."""
        try:
            return await self._compact(caller, thread_id, overflow, is_automatic=True)
        except Conflict:
            # Another process does it, or the thread has moved: the next turn looks again.
            return None

    async def _compact(
        self, caller: Caller, thread_id: str, overflow: Overflow, *, is_automatic: bool
    ) -> Summary | None:
        key = (caller.scope.tenant_id, thread_id)
        # In this process the second caller waits for the first, and then finds less to do.
        lock = self._running.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                return await self._summarise(caller, thread_id, overflow, is_automatic=is_automatic)
        finally:
            if not lock.locked():
                self._running.pop(key, None)

    async def _summarise(
        self, caller: Caller, thread_id: str, overflow: Overflow, *, is_automatic: bool
    ) -> Summary | None:
        session = self._store.scoped(caller.scope)
        thread = await session.thread(thread_id)
        if thread is None:
            raise NotFound("thread", thread_id)
        current = await session.summary(thread_id)
        upto = await _plan(session, thread, 0 if current is None else current.point.seq + 1, overflow)
        if upto is None:
            return None
        made: Summary | None = None
        for _ in range(_MAX_PIECES):
            if not await session.claim_compaction(thread_id, seconds=_CLAIM_SECONDS):
                raise Conflict(_BEING_SUMMARISED)
            try:
                piece = await self._next_piece(session, thread, current, upto)
                stored = await self._write(caller, thread, current, piece, overflow, is_automatic=is_automatic)
            finally:
                await session.release_compaction(thread_id)
            if stored is None:
                break
            made = current = stored
            if stored.point.seq >= upto:
                break
        return made

    async def _write(
        self,
        caller: Caller,
        thread: Thread,
        current: Summary | None,
        piece: _Piece,
        overflow: Overflow,
        *,
        is_automatic: bool,
    ) -> Summary | None:
        earlier = None if current is None else current.text
        scope, agent_id, surface = caller
        task = SummaryTask(scope, thread, agent_id, surface, earlier, "\n".join(piece.entries), self._limits)
        written = await self._summariser.summarise(task) if piece.entries else None
        covered = piece.messages
        if written is None and is_automatic:
            covered = [message for message in covered if message.seq <= overflow.left_out]
        if not covered:
            return None
        text = extract(earlier, covered, piece.refused, self._limits) if written is None else written.text
        return await self._store.scoped(scope).put_summary(
            thread.id,
            covered[-1].seq,
            self._sealer.for_tenant(scope.tenant_id).text(text, "summary"),
            source="extract" if written is None else "model",
            model=None if written is None else written.model,
            timeline_id=covered[-1].timeline_id,
            earlier=current,
        )

    async def _next_piece(self, session: StoreSession, thread: Thread, current: Summary | None, upto: int) -> _Piece:
        """Messages after the current summary, as many as a model can be given at a time."""
        piece = _Piece([], [], set())
        first, room = 0 if current is None else current.point.seq + 1, self._limits.transcript
        while first <= upto:
            last = min(first + _PAGE - 1, upto)
            page = await session.messages(thread.id, first=first, last=last, timeline_id=thread.timeline_id)
            piece.refused.update(refused_turns(page))
            for message in page:
                entry = transcript_entry(message, piece.refused, self._limits.message)
                room -= len(entry) + 1
                if room < 0 and piece.messages:
                    return piece
                piece.messages.append(message)
                piece.entries.extend([entry] if entry else [])
            first = last + 1
        return piece


class _Piece(NamedTuple):
    messages: list[Message]
    entries: list[str]
    refused: set[str]


async def _plan(session: StoreSession, thread: Thread, first: int, overflow: Overflow) -> int | None:
    """The last seq that the summary should cover. Reads backwards until enough is known, because most of a long thread
    may be without a summary."""
    wanted = _FIRST_READ
    while True:
        start = max(first, thread.message_count - wanted)
        newest: Sequence[Message] = await session.messages(
            thread.id, first=start, last=thread.message_count - 1, timeline_id=thread.timeline_id
        )
        upto = plan_compaction(newest, overflow.budget, turns=overflow.turns)
        if upto is not None or start == first:
            return upto
        wanted *= _GROWTH
