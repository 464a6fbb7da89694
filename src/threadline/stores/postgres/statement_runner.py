"""Runs statements and transactions on pooled connections, and repeats what failed for a passing reason.

Passing reasons are serialization failures, deadlocks, keys that another transaction inserted at the same moment, and a
lost connection, as long as nothing can have been committed. If a connection breaks during a commit, the outcome is
unknown and nothing is repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from threadline.core.errors import StoreFailed
from threadline.stores.postgres.errors import (
    DRIVER_ERRORS,
    as_store_error,
    is_lost,
    may_repeat,
    outcome_unknown,
    translated,
)
from threadline.stores.postgres.pool import Pool, ReadCoalescer
from threadline.stores.postgres.replica import PRIMARY_POSITION, Position, Replica

T = TypeVar("T")
_MAX_ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.002


class StatementRunner:
    def __init__(self, pool: Pool, urgent_pool: Pool) -> None:
        """`urgent_pool` is for what must not wait while all connections of `pool` are in use."""
        self._pool = pool
        self._urgent_pool = urgent_pool
        self._read_coalescer = ReadCoalescer(pool, self._run_on)
        self.replica: Replica | None = None

    async def run(
        self, statement: str, values: tuple[Any, ...], is_read: bool, *, is_urgent: bool = False
    ) -> list[asyncpg.Record]:
        """One statement in a transaction of its own: one round trip. `is_read` says that it writes nothing, so that it
        may be repeated even if its outcome is unknown."""
        if is_urgent:
            return await _with_retries(lambda: self._run_urgent(statement, values, is_read))
        return await _with_retries(lambda: self.run_once(statement, values, is_read))

    async def _run_urgent(self, statement: str, values: tuple[Any, ...], is_read: bool) -> list[asyncpg.Record]:
        # With a connection free nothing is urgent, and the reserved one need not even be opened.
        pool = self._urgent_pool if self._pool.is_busy else self._pool
        return await self._run_on(await pool.acquire(), statement, values, is_read, pool)

    async def run_once(self, statement: str, values: tuple[Any, ...], is_read: bool) -> list[asyncpg.Record]:
        if is_read and self._pool.is_busy:
            return await self._read_coalescer.read(statement, values)
        return await self._run_on(await self._pool.acquire(), statement, values, is_read)

    async def _run_on(
        self,
        connection: asyncpg.Connection,
        statement: str,
        values: tuple[Any, ...],
        is_read: bool = True,
        pool: Pool | None = None,
    ) -> list[asyncpg.Record]:
        try:
            return await _fetch(connection, statement, values, is_read)
        except DRIVER_ERRORS as error:
            raise as_store_error(error) from error
        finally:
            (pool or self._pool).release(connection)

    async def read_on_replica(self, statement: str, values: tuple[Any, ...]) -> list[asyncpg.Record]:
        """A read that may keep a server busy: on the replica, if there is one that can be used."""

        async def read(connection: asyncpg.Connection) -> list[asyncpg.Record]:
            with translated():
                return await _fetch(connection, statement, values, True)

        found = None if self.replica is None else await self.replica.read(read)
        return await self.run(statement, values, True) if found is None else found

    async def transact_on_replica(self, begin: str, body: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """The same for several reads in one transaction."""

        async def read(connection: asyncpg.Connection) -> tuple[T]:
            return (await _transact_on(connection, begin, body),)

        found = None if self.replica is None else await self.replica.read(read)
        return await self.transact(begin, body) if found is None else found[0]

    async def read_position(self) -> Position:
        (row,) = await self.run(PRIMARY_POSITION, (), True)
        return Position(row["lsn"], row["cluster"])

    async def transact(self, begin: str, body: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Commits what `body` did; `begin` opens the transaction. The body runs again after a passing fault."""
        return await _with_retries(lambda: self._transact_once(begin, body))

    async def _transact_once(self, begin: str, body: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        async with self._pool.borrow() as connection:
            return await _transact_on(connection, begin, body)


async def _transact_on(
    connection: asyncpg.Connection, begin: str, body: Callable[[asyncpg.Connection], Awaitable[T]]
) -> T:
    try:
        with translated():
            # It may wait for the user's lock, and fail inside the transaction that it has begun.
            await connection.execute(begin)
        result = await body(connection)
    except BaseException as error:
        _close_if_silent(connection, error.__cause__)
        await _roll_back(connection)
        raise
    with translated():
        await _commit(connection)
    return result


async def _with_retries(run: Callable[[], Awaitable[T]]) -> T:
    # Deadlocks and lost connections pass; a bound keeps a server that always fails from holding the caller.
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        try:
            return await run()
        except StoreFailed as error:
            if attempt == _MAX_ATTEMPTS or not may_repeat(error):
                raise
        # Exponential and random, so that transactions that collided do not collide again.
        await asyncio.sleep(_FIRST_PAUSE_SECONDS * 2**attempt * (0.5 + random.random()))  # noqa: S311 - no secret
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _fetch(
    connection: asyncpg.Connection, statement: str, values: tuple[Any, ...], is_read: bool
) -> list[asyncpg.Record]:
    try:
        return await connection.fetch(statement, *values)
    except DRIVER_ERRORS as error:
        _close_if_silent(connection, error)
        # asyncpg raises an InterfaceError before it sends anything, so then nothing can have been committed.
        if not is_read and is_lost(error) and not isinstance(error, asyncpg.InterfaceError):
            raise outcome_unknown(error) from error
        raise


def _close_if_silent(connection: asyncpg.Connection, error: BaseException | None) -> None:
    # The server did not answer. The statement may still run, and a rollback would wait behind it.
    if isinstance(error, TimeoutError):
        connection.terminate()


async def _commit(connection: asyncpg.Connection) -> None:
    try:
        await connection.execute("COMMIT")
    except DRIVER_ERRORS as error:
        _close_if_silent(connection, error)
        if is_lost(error):
            raise outcome_unknown(error) from error
        raise


async def _roll_back(connection: asyncpg.Connection) -> None:
    try:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
    except DRIVER_ERRORS:
        # Closing the connection rolls back as well, and the caller needs the first error, not this one.
        connection.terminate()
