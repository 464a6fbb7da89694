"""Appends that come while others are on their way go together: one round trip, one transaction, one sync.

A caller who finds nobody before them goes at once, so nobody waits for company. Only appends of one tenant share a
transaction, each in its own scope; those to a thread that is being written to wait for that to end. Where one of them
spoils it for the rest, each is made again alone.
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
AT_ONCE = 2
"""How many may be on their way: while one waits for the disk, the next is worked on."""
MOST = 32
PATIENCE_SECONDS = 0.05


class AppendArgs(NamedTuple):
    """One append as the schema's function takes it; a value for each message stands in a list."""

    tenant_id: str
    owner_id: str
    role: str
    now_us: int
    thread_id: str
    ids: list[str]
    roles: str
    parts: list[bytes]
    metadata: list[bytes | None] | None
    created: list[int | None] | None
    key: str | None
    fingerprint: bytes | None
    expected_count: int | None
    most: int
    turn_id: str | None
    tokens: int
    title: str | None


class _Waiting(NamedTuple):
    given: AppendArgs
    placed: asyncio.Future[str | None]

    @property
    def thread(self) -> tuple[str, str]:
        return self.given.tenant_id, self.given.thread_id


class AppendBatcher:
    def __init__(self, alone: Statement, once: Statement) -> None:
        """Both run one statement in a transaction of its own; `alone` repeats it where that may help."""
        self._alone = alone
        self._once = once
        self._trips: dict[int, float] = {}
        """Who is under way, and since when."""
        self._numbers = itertools.count()
        self._alarm: asyncio.TimerHandle | None = None
        self._written: set[tuple[str, str]] = set()
        """Threads that somebody under way appends to."""
        self._waiting: deque[_Waiting] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def append(self, given: AppendArgs) -> str | None:
        thread = (given.tenant_id, given.thread_id)
        if len(self._trips) >= AT_ONCE or thread in self._written:
            placed: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            self._waiting.append(_Waiting(given, placed))
            self._watch()
            return await placed
        self._written.add(thread)
        trip = self._set_out()
        try:
            return await self._append_alone(given)
        finally:
            self._written.discard(thread)
            self._come_back(trip)

    async def _append_alone(self, given: AppendArgs) -> str | None:
        ((placed,),) = await self._alone(_SQL["append"], given, False)
        place: str | None = placed
        return place

    def _set_out(self) -> int:
        trip = next(self._numbers)
        self._trips[trip] = asyncio.get_running_loop().time()
        return trip

    def _come_back(self, trip: int) -> None:
        self._trips.pop(trip, None)
        if self._waiting:
            self._send_next()

    def _watch(self) -> None:
        """While somebody waits: those who are long under way, at a thread that is locked for instance, do not count."""
        if self._alarm is None and self._waiting and self._trips:
            due = min(self._trips.values()) + PATIENCE_SECONDS
            self._alarm = asyncio.get_running_loop().call_at(due, self._leave_behind)

    def _leave_behind(self) -> None:
        self._alarm = None
        overdue = asyncio.get_running_loop().time() - PATIENCE_SECONDS
        self._trips = {trip: since for trip, since in self._trips.items() if since > overdue}
        self._send_next()

    def _send_next(self) -> None:
        while len(self._trips) < AT_ONCE and (company := self._next_company()):
            self._written.update(waiting.thread for waiting in company)
            task = asyncio.create_task(self._send(company, self._set_out()), name="threadline appends")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._watch()

    def _next_company(self) -> list[_Waiting]:
        """Those of one tenant who still wait, in an order of threads that every process keeps to."""
        company: list[_Waiting] = []
        others: list[_Waiting] = []
        while self._waiting and len(company) < MOST:
            waiting = self._waiting.popleft()
            if waiting.placed.done():
                continue
            strange = company and waiting.given.tenant_id != company[0].given.tenant_id
            (others if strange or waiting.thread in self._written else company).append(waiting)
        self._waiting.extendleft(reversed(others))
        company.sort(key=lambda waiting: waiting.given.thread_id)
        return company

    async def _send(self, company: list[_Waiting], trip: int) -> None:
        try:
            if len(company) == 1:
                await self._send_alone(company[0])
            else:
                await self._send_together(company)
        except asyncio.CancelledError:
            for waiting in company:
                waiting.placed.cancel()
            raise
        finally:
            self._written.difference_update(waiting.thread for waiting in company)
            self._come_back(trip)

    async def _send_together(self, company: list[_Waiting]) -> None:
        try:
            ((placed,),) = await self._once(_SQL["append_together"], _joined(company), False)
        except OutcomeUnknown as error:
            for waiting in company:
                _fail(waiting, error)
        except StoreFailed:
            await asyncio.gather(*(self._send_alone(waiting) for waiting in company))
        else:
            for waiting, place in zip(company, placed, strict=True):
                _answer(waiting, place)

    async def _send_alone(self, waiting: _Waiting) -> None:
        try:
            _answer(waiting, await self._append_alone(waiting.given))
        except Exception as error:  # noqa: BLE001 whatever it is, it is the caller's to see
            _fail(waiting, error)
        self._written.discard(waiting.thread)
        self._send_next()

    async def close(self) -> None:
        """Waits for those who wait."""
        while self._waiting or self._tasks:
            pending: list[asyncio.Future[Any]] = [*self._tasks, *(waiting.placed for waiting in self._waiting)]
            await asyncio.wait(pending)


def _joined(company: list[_Waiting]) -> tuple[Any, ...]:
    given = [waiting.given for waiting in company]
    first = given[0]
    return (
        first.tenant_id,
        [one.owner_id for one in given],
        [one.role for one in given],
        [one.now_us for one in given],
        [one.thread_id for one in given],
        [len(one.ids) for one in given],
        [id for one in given for id in one.ids],
        "".join([one.roles for one in given]),
        [parts for one in given for parts in one.parts],
        _flat([(one.metadata, len(one.ids)) for one in given]),
        _flat([(one.created, len(one.ids)) for one in given]),
        [one.key for one in given],
        [one.fingerprint for one in given],
        [one.expected_count for one in given],
        first.most,
        [one.turn_id for one in given],
        [one.tokens for one in given],
        [one.title for one in given],
    )


def _flat(given: list[tuple[list[Any] | None, int]]) -> list[Any] | None:
    if all(values is None for values, _ in given):
        return None
    return [value for values, count in given for value in values or [None] * count]


def _answer(waiting: _Waiting, place: str | None) -> None:
    if not waiting.placed.done():
        waiting.placed.set_result(place)


def _fail(waiting: _Waiting, error: BaseException) -> None:
    if not waiting.placed.done():
        waiting.placed.set_exception(error)
