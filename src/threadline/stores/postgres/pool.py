"""The connection pool, and the sharing of reads that wait for a connection.

asyncpg's own pool resets a connection when it is released, which costs a round trip. That is not needed here: every
setting is local to a transaction. A connection that was lost, that was left inside a transaction, or whose borrower was
cancelled, is closed instead of being reused. The most recently used idle connection is taken first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from threadline.core.errors import SettingsInvalid, StoreBusy, StoreUnavailable
from threadline.core.timeouts import Timeouts
from threadline.ports import PoolStats
from threadline.stores.postgres.errors import DRIVER_ERRORS, translated

_PREPARED_STATEMENTS = 200
"""More than the program has, so that none is prepared twice on a connection."""
_ANSWER_SECONDS = 5.0
"""The server ends a statement at its limit; if it has not said so after this time, it is gone or cannot be reached."""
_UNREADABLE = (
    "the database address cannot be parsed: expected postgresql://USER:PASSWORD@HOST:PORT/NAME, with `@` in a password "
    "written as %40, `/` as %2F and `[` as %5B"
)


class Address(NamedTuple):
    """A server's address. With `?pgbouncer=true` neither prepared statements nor LISTEN are used there."""

    dsn: str
    pgbouncer: bool = False

    @classmethod
    def parse(cls, url: str) -> Address:
        try:
            parts = urlsplit(url)
        except ValueError as exc:
            raise SettingsInvalid(_UNREADABLE) from exc
        if parts.scheme not in ("postgresql", "postgres"):
            raise SettingsInvalid(f"the database address must begin with postgresql://, got {parts.scheme}://")
        options = parse_qsl(parts.query, keep_blank_values=True)
        chosen = [value for name, value in options if name == "pgbouncer"]
        if any(value not in ("true", "false") for value in chosen):
            raise SettingsInvalid("`pgbouncer` in the database address must be true or false")
        kept = urlencode([(name, value) for name, value in options if name != "pgbouncer"], safe="/")
        return cls(urlunsplit(parts._replace(query=kept)), chosen[-1:] == ["true"])

    async def connect(self, timeouts: Timeouts, *, unbounded: bool = False) -> asyncpg.Connection:
        """`unbounded` limits only the connecting, not what is done afterwards."""
        cached = 0 if self.pgbouncer else _PREPARED_STATEMENTS
        command_seconds = None if unbounded else timeouts.statement_seconds + _ANSWER_SECONDS
        try:
            connection = await asyncpg.connect(
                self.dsn,
                timeout=timeouts.connect_seconds,
                command_timeout=command_seconds,
                statement_cache_size=cached,
            )
        except asyncpg.InterfaceError:
            # Some are ValueErrors as well, but their text names the fault better than ours.
            raise
        except (ValueError, OverflowError) as exc:
            raise SettingsInvalid(_UNREADABLE) from exc
        if not unbounded and not self.pgbouncer:
            await _set_limits(connection, timeouts)
        return connection


async def _set_limits(connection: asyncpg.Connection, timeouts: Timeouts) -> None:
    """For the session. Not as parameters of the connection: a pooler in session mode refuses those. Behind a pgbouncer
    in transaction mode a session belongs to many clients, so there each transaction sets them, and a single statement
    is only bounded by the client's own timeout."""
    try:
        await connection.execute(limit_statement(timeouts, "SESSION"))
    except BaseException:
        connection.terminate()
        raise


def limit_statement(timeouts: Timeouts, extent: Literal["SESSION", "LOCAL"]) -> str:
    lock, statement = round(timeouts.lock_seconds * 1000), round(timeouts.statement_seconds * 1000)
    # Not below 1: PostgreSQL takes 0 for no limit.
    return f"SET {extent} lock_timeout = {max(1, lock)}; SET {extent} statement_timeout = {max(1, statement)}"


class Pool:
    """At most `max_size` connections. Borrowers wait in order of arrival when all are in use."""

    def __init__(self, address: Address, *, max_size: int, timeouts: Timeouts | None = None) -> None:
        self.address = address
        self.timeouts = timeouts or Timeouts()
        self._max_size = max_size
        self._idle: list[asyncpg.Connection] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._borrowed = 0
        self._closed = False
        self._all_released = asyncio.Event()
        self._all_released.set()

    async def open(self, *, min_size: int) -> None:
        self._idle = [await self.address.connect(self.timeouts) for _ in range(max(1, min_size))]

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await self.acquire()
        try:
            yield connection
        except asyncio.CancelledError:
            # The server may still be executing the last statement. If that is a BEGIN, the next borrower would write
            # into a transaction that is never committed.
            connection.terminate()
            raise
        finally:
            self.release(connection)

    async def acquire(self) -> asyncpg.Connection:
        """For a single statement; the caller releases it. A context manager took a fifth of the client's time."""
        await self._wait_for_slot()
        try:
            connection = self._newest_idle()
            if connection is None:
                with translated():
                    connection = await self.address.connect(self.timeouts)
        except BaseException:
            self.release(None)
            raise
        return connection

    async def _wait_for_slot(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._borrowed += 1
        self._all_released.clear()
        if self._borrowed <= self._max_size:
            return
        slot = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        try:
            # All connections may be waiting for one lock: callers get an answer nevertheless.
            async with asyncio.timeout(self.timeouts.pool_seconds):
                await slot
        except TimeoutError:
            self._leave_queue(slot)
            raise StoreBusy(
                f"no connection to PostgreSQL was free for {self.timeouts.pool_seconds:g} seconds, and nothing was "
                "stored: repeat the call"
            ) from None
        except BaseException:
            self._leave_queue(slot)
            raise

    def _leave_queue(self, slot: asyncio.Future[None]) -> None:
        # If a slot was granted at the last moment, it passes to the next waiter. A future that was cancelled while
        # waiting is skipped by _grant_slot.
        if not slot.cancelled():
            self._grant_slot()
        self._count_down()

    def _newest_idle(self) -> asyncpg.Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def release(self, connection: asyncpg.Connection | None) -> None:
        if connection is not None and not connection.is_closed():
            if connection.is_in_transaction():
                connection.terminate()
            else:
                self._idle.append(connection)
        self._grant_slot()
        self._count_down()

    def _grant_slot(self) -> None:
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                return

    def _count_down(self) -> None:
        self._borrowed -= 1
        if self._borrowed == 0:
            self._all_released.set()

    @property
    def is_busy(self) -> bool:
        """Whether the next borrower has to wait."""
        return self._borrowed >= self._max_size

    def stats(self) -> PoolStats:
        in_use = min(self._borrowed, self._max_size)
        return PoolStats(open=in_use + len(self._idle), in_use=in_use, waiting=self._borrowed - in_use)

    async def close(self) -> None:
        """Waits for every borrower, including those that wait for a connection or borrow again."""
        while self._borrowed:
            await self._all_released.wait()
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            try:
                # A server that does not answer must not keep the process from exiting.
                await connection.close(timeout=self.timeouts.connect_seconds)
            except DRIVER_ERRORS:
                connection.terminate()


Read: TypeAlias = tuple[str, tuple[Any, ...]]
"""A statement and its values, which include the scope."""
ReadOn: TypeAlias = Callable[[asyncpg.Connection, str, tuple[Any, ...]], Awaitable[list[asyncpg.Record]]]
"""Runs a read on a connection and releases that."""


class ReadCoalescer:
    """Single-flight for reads that wait for a connection: equal reads share one result.

    A read sees what was committed before it began, and a waiting one has not begun, so its result is never older than
    the question of any caller. For use while the pool is busy: a hundred webhooks at once then look up the credentials
    of their platform a few times instead of a hundred.
    """

    def __init__(self, pool: Pool, read_on: ReadOn) -> None:
        self._pool = pool
        self._read_on = read_on
        self._waiting: dict[Read, asyncio.Task[list[asyncpg.Record]]] = {}
        self._tasks: set[asyncio.Task[list[asyncpg.Record]]] = set()

    async def read(self, statement: str, values: tuple[Any, ...]) -> list[asyncpg.Record]:
        key = (statement, values)
        task = self._waiting.get(key)
        if task is None:
            task = self._waiting[key] = asyncio.create_task(self._run(key), name="threadline read")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        # A cancelled caller must not cancel the read of the others.
        return await asyncio.shield(task)

    async def _run(self, key: Read) -> list[asyncpg.Record]:
        try:
            connection = await self._pool.acquire()
        finally:
            # From here on the read may miss a later commit, so later callers begin a new one.
            del self._waiting[key]
        return await self._read_on(connection, *key)
