"""Batches appends: those that arrive while others are in flight share one round trip, one transaction and one sync.

With fewer than `MAX_IN_FLIGHT` requests in flight an append is sent immediately, so none waits to be batched. A batch
holds appends of one tenant, each in its own scope. Appends to a thread that a request in flight writes to wait for its
end. If a batch fails, its appends are retried one by one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

import asyncpg

from threadline.core.errors import OutcomeUnknown, StoreFailed
from threadline.stores.sql import load_queries

Statement: TypeAlias = Callable[[str, tuple[Any, ...], bool], Awaitable[list[asyncpg.Record]]]
"""A statement, its values, and whether it only reads."""
_SQL = load_queries(__package__, "queries/messages.sql")
MAX_IN_FLIGHT = 2
"""While one batch waits for the server's disk, the next one is executed."""
MAX_BATCH = 32
OVERDUE_SECONDS = 0.05


class AppendArgs(NamedTuple):
    """The composite type `threadline.append_args`: the same fields, in the same order."""

    thread_id: str
    ids: list[str]
    roles: str
    parts: list[bytes]
    metadata: list[bytes | None] | None
    created_us: list[int | None] | None
    key: str | None
    fingerprint: bytes | None
    expected_count: int | None
    max_count: int
    turn_id: str | None
    tokens: int
    title: str | None


class ScopedAppend(NamedTuple):
    """The arguments of the SQL function `threadline.append`."""

    tenant_id: str
    owner_id: str
    role: str
    now_us: int
    args: AppendArgs

    @property
    def thread(self) -> tuple[str, str]:
        return self.tenant_id, self.args.thread_id


class AppendResult(NamedTuple):
    """The composite type `threadline.append_result`."""

    timeline_id: str
    first_seq: int
    token_count: int
    title: str | None

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> AppendResult | None:
        """None if the function wrote nothing."""
        return None if row["timeline_id"] is None else cls(*row)


class _Queued(NamedTuple):
    append: ScopedAppend
    result: asyncio.Future[AppendResult | None]


class AppendBatcher:
    def __init__(self, run_with_retries: Statement, run_once: Statement) -> None:
        """Both run one statement in a transaction of its own."""
        self._run_with_retries = run_with_retries
        self._run_once = run_once
        self._in_flight: dict[int, float] = {}
        """Each flight's number, and when it began."""
        self._flight_numbers = itertools.count()
        self._overdue_timer: asyncio.TimerHandle | None = None
        self._busy_threads: set[tuple[str, str]] = set()
        self._queue: deque[_Queued] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def append(self, append: ScopedAppend) -> AppendResult | None:
        """None if the common case does not hold and nothing was written."""
        if len(self._in_flight) >= MAX_IN_FLIGHT or append.thread in self._busy_threads:
            result: asyncio.Future[AppendResult | None] = asyncio.get_running_loop().create_future()
            self._queue.append(_Queued(append, result))
            self._start_overdue_timer()
            return await result
        self._busy_threads.add(append.thread)
        flight = self._start_flight()
        try:
            return await self._append_alone(append)
        finally:
            self._busy_threads.discard(append.thread)
            self._finish_flight(flight)

    async def _append_alone(self, append: ScopedAppend) -> AppendResult | None:
        (row,) = await self._run_with_retries(_SQL["append"], append, False)
        return AppendResult.from_row(row)

    def _start_flight(self) -> int:
        flight = next(self._flight_numbers)
        self._in_flight[flight] = asyncio.get_running_loop().time()
        return flight

    def _finish_flight(self, flight: int) -> None:
        # A flight that was released as overdue is no longer listed.
        self._in_flight.pop(flight, None)
        if self._queue:
            self._dispatch()

    def _start_overdue_timer(self) -> None:
        if self._overdue_timer is None and self._queue and self._in_flight:
            due = min(self._in_flight.values()) + OVERDUE_SECONDS
            # One timer for the oldest flight: a timer per append would cost more than the append.
            self._overdue_timer = asyncio.get_running_loop().call_at(due, self._release_overdue)

    def _release_overdue(self) -> None:
        # A flight that waits for a row lock must not stop later appends: after 50 ms it no longer counts against
        # MAX_IN_FLIGHT. Its threads stay busy until it ends.
        self._overdue_timer = None
        cutoff = asyncio.get_running_loop().time() - OVERDUE_SECONDS
        self._in_flight = {flight: began for flight, began in self._in_flight.items() if began > cutoff}
        self._dispatch()

    def _dispatch(self) -> None:
        while len(self._in_flight) < MAX_IN_FLIGHT and (batch := self._next_batch()):
            self._busy_threads.update(queued.append.thread for queued in batch)
            task = asyncio.create_task(self._send(batch, self._start_flight()), name="threadline append batch")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._start_overdue_timer()

    def _next_batch(self) -> list[_Queued]:
        """The first queued appends of one tenant to threads that are not busy, without those that were cancelled."""
        batch: list[_Queued] = []
        kept: list[_Queued] = []
        while self._queue and len(batch) < MAX_BATCH:
            queued = self._queue.popleft()
            if queued.result.done():
                continue
            is_other_tenant = batch and queued.append.tenant_id != batch[0].append.tenant_id
            must_wait = is_other_tenant or queued.append.thread in self._busy_threads
            (kept if must_wait else batch).append(queued)
        self._queue.extendleft(reversed(kept))
        # Every process locks the rows of threads in this order, so that two batches cannot deadlock.
        batch.sort(key=lambda queued: queued.append.args.thread_id)
        return batch

    async def _send(self, batch: list[_Queued], flight: int) -> None:
        try:
            if len(batch) == 1:
                await self._send_one(batch[0])
            else:
                await self._send_batch(batch)
        except asyncio.CancelledError:
            for queued in batch:
                queued.result.cancel()
            raise
        finally:
            self._busy_threads.difference_update(queued.append.thread for queued in batch)
            self._finish_flight(flight)

    async def _send_batch(self, batch: list[_Queued]) -> None:
        appends = [queued.append for queued in batch]
        values = (
            appends[0].tenant_id,
            [append.owner_id for append in appends],
            [append.role for append in appends],
            [append.now_us for append in appends],
            [append.args for append in appends],
        )
        try:
            rows = await self._run_once(_SQL["append_batch"], values, False)
        except OutcomeUnknown as error:
            # The batch may have been committed: retrying could write its messages twice.
            for queued in batch:
                _fail(queued, error)
        except StoreFailed:
            await asyncio.gather(*(self._send_one(queued) for queued in batch))
        else:
            for queued, row in zip(batch, rows, strict=True):
                _resolve(queued, AppendResult.from_row(row))

    async def _send_one(self, queued: _Queued) -> None:
        try:
            _resolve(queued, await self._append_alone(queued.append))
        except Exception as error:  # noqa: BLE001 - every error belongs to the caller of this append
            _fail(queued, error)
        self._busy_threads.discard(queued.append.thread)
        self._dispatch()

    async def close(self) -> None:
        """Waits until every queued append has been sent and answered."""
        while self._queue or self._tasks:
            pending: list[asyncio.Future[Any]] = [*self._tasks, *(queued.result for queued in self._queue)]
            await asyncio.wait(pending)


# A caller that was cancelled has cancelled its future, which takes no result any more.
def _resolve(queued: _Queued, result: AppendResult | None) -> None:
    if not queued.result.done():
        queued.result.set_result(result)


def _fail(queued: _Queued, error: BaseException) -> None:
    if not queued.result.done():
        queued.result.set_exception(error)
