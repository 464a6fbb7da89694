"""Connections: where the server is, and which of its connections are idle.

A connection carries nothing from one borrower to the next, because every setting is local to a transaction; so giving
one back costs no round trip, which asyncpg's own pool would spend on a reset. A connection that was lost, that was left
inside a transaction, or whose borrower was cancelled, is closed instead of lent again. The youngest idle one is lent
first, so the others may rest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from threadline.core.errors import SettingsInvalid, StoreUnavailable
from threadline.ports import PoolStats
from threadline.stores.postgres.errors import DRIVER_ERRORS, translated

CONNECT_SECONDS = 10.0
_PREPARED_STATEMENTS = 200
_UNREADABLE = (
    "the address of the database cannot be read: it is postgresql://USER:PASSWORD@HOST:PORT/NAME, and in a password "
    "`@` is written as %40, `/` as %2F, `[` as %5B"
)


class Address(NamedTuple):
    """A server's address. `?pgbouncer=true` says that prepared statements and LISTEN will not work there."""

    dsn: str
    pgbouncer: bool = False

    @classmethod
    def parse(cls, url: str) -> Address:
        try:
            parts = urlsplit(url)
        except ValueError as exc:
            raise SettingsInvalid(_UNREADABLE) from exc
        if parts.scheme not in ("postgresql", "postgres"):
            raise SettingsInvalid(f"{parts.scheme}:// is no PostgreSQL address: it begins with postgresql://")
        options = parse_qsl(parts.query, keep_blank_values=True)
        chosen = [value for name, value in options if name == "pgbouncer"]
        if any(value not in ("true", "false") for value in chosen):
            raise SettingsInvalid("pgbouncer= in a database address is true or false")
        kept = urlencode([(name, value) for name, value in options if name != "pgbouncer"], safe="/")
        return cls(urlunsplit(parts._replace(query=kept)), chosen[-1:] == ["true"])

    async def connect(self) -> asyncpg.Connection:
        cached = 0 if self.pgbouncer else _PREPARED_STATEMENTS
        try:
            return await asyncpg.connect(self.dsn, timeout=CONNECT_SECONDS, statement_cache_size=cached)
        except asyncpg.InterfaceError:  # it says what is wrong, and some are ValueErrors as well
            raise
        except (ValueError, OverflowError) as exc:
            raise SettingsInvalid(_UNREADABLE) from exc


class Pool:
    """At most `max_size` connections; whoever finds none idle waits in line."""

    def __init__(self, address: Address, *, max_size: int) -> None:
        self.address = address
        self._max_size = max_size
        self._idle: list[asyncpg.Connection] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._lent = 0
        self._closed = False
        self._all_back = asyncio.Event()
        self._all_back.set()

    async def open(self, *, min_size: int) -> None:
        self._idle = [await self.address.connect() for _ in range(max(1, min_size))]

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await self.take()
        try:
            yield connection
        except asyncio.CancelledError:
            # What it was told last is still under way. Were that a BEGIN, whoever borrowed it next would write into a
            # transaction that nobody commits.
            connection.terminate()
            raise
        finally:
            self.give_back(connection)

    async def take(self) -> asyncpg.Connection:
        """For a single statement: context managers took a fifth of the client's time. Who takes one gives it back."""
        await self._wait_for_turn()
        try:
            connection = self._youngest()
            if connection is None:
                with translated():
                    connection = await self.address.connect()
        except BaseException:
            self.give_back(None)
            raise
        return connection

    async def _wait_for_turn(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._lent += 1
        self._all_back.clear()
        if self._lent <= self._max_size:
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            # A cancelled one is passed over by whoever gives turns, if that has not happened already.
            if not turn.cancelled():
                self._give_turn()
            self._count_down()
            raise

    def _youngest(self) -> asyncpg.Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def give_back(self, connection: asyncpg.Connection | None) -> None:
        if connection is not None and not connection.is_closed():
            if connection.is_in_transaction():
                connection.terminate()
            else:
                self._idle.append(connection)
        self._give_turn()
        self._count_down()

    def _give_turn(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _count_down(self) -> None:
        self._lent -= 1
        if self._lent == 0:
            self._all_back.set()

    @property
    def is_busy(self) -> bool:
        """Whether the next borrower has to wait."""
        return self._lent >= self._max_size

    def stats(self) -> PoolStats:
        in_use = min(self._lent, self._max_size)
        return PoolStats(open=in_use + len(self._idle), in_use=in_use, waiting=self._lent - in_use)

    async def close(self) -> None:
        """Waits for every borrower, those in line included, and for what they borrow next."""
        while self._lent:
            await self._all_back.wait()
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            try:
                await connection.close(timeout=CONNECT_SECONDS)
            except DRIVER_ERRORS:
                connection.terminate()
