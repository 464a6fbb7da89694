"""A streaming replica for reads: lists, searches, pages of histories and sums, which would keep the primary busy.

A read on the replica is never older than one on the primary. It begins by asking the primary for the position in its
write-ahead log that every commit so far has reached, which costs the primary next to nothing, and waits until the
replica has replayed that far. So everybody reads what they wrote, whichever process wrote it. A replica that is away
or too far behind is not used for a while, and its reads go to the primary.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import asyncpg

from threadline.core.errors import StoreFailed
from threadline.stores.postgres.errors import is_lost, translated
from threadline.stores.postgres.pool import Pool
from threadline.stores.sql import load_queries

log = logging.getLogger("threadline.replica")
T = TypeVar("T")
_SQL = load_queries(__package__, "queries/replica.sql")
PRIMARY_POSITION = _SQL["primary_position"]
# A commit is replayed within a few milliseconds, unless the replica is busy or far away.
_WAIT_SECONDS = 0.1
_FIRST_PAUSE_SECONDS = 0.002
# For so long reads do not try a replica that is behind, or away: otherwise each of them would wait for it.
_BEHIND_SECONDS = 1.0
_AWAY_SECONDS = 5.0
# Shorter than for the primary: a read has somewhere else to go.
_ANSWER_SECONDS = 2.0


class Position(NamedTuple):
    """A place in the write-ahead log of a cluster."""

    lsn: str
    cluster: int


class Replica:
    """`position` asks the primary."""

    def __init__(self, pool: Pool, position: Callable[[], Awaitable[Position]]) -> None:
        self._pool = pool
        self._position = position
        self._skip_until = 0.0
        self._fault: str | None = None
        """Why reads go to the primary; None while the replica is used."""

    async def read(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T | None:
        """What `work` reads there; None if the replica cannot be used: then read on the primary."""
        now = asyncio.get_running_loop().time()
        if now < self._skip_until or self._pool.is_busy:
            return None
        if self._fault is not None:
            # One reader finds out whether the fault is over; the others do not wait for it.
            self._skip_until = now + _AWAY_SECONDS
        try:
            position = await self._position()
        except StoreFailed as error:
            # The read on the primary raises it.
            self._skip(f"away: the primary did not say its position: {error}", _AWAY_SECONDS)
            return None
        connection = await self._ready_connection(position)
        if connection is None:
            return None
        try:
            return await work(connection)
        except StoreFailed as error:
            if error.__cause__ is None or is_lost(error.__cause__):
                self._skip(f"away: {error}", _AWAY_SECONDS)
            # Otherwise it was this read alone: replaying may cancel a long one.
            return None
        except asyncio.CancelledError:
            # The server may still be executing the statement.
            connection.terminate()
            raise
        finally:
            self._pool.release(connection)

    async def _ready_connection(self, position: Position) -> asyncpg.Connection | None:
        """A connection to a replica that has replayed so far; None if there is none, and `_fault` says why."""
        connection = None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                connection = await self._pool.acquire()
                with translated():
                    fault = await _fault_of(connection, position)
        except (StoreFailed, TimeoutError) as error:
            fault = f"away: {str(error) or 'no answer'}"
            if connection is not None:
                connection.terminate()
        except BaseException:
            if connection is not None:
                connection.terminate()
                self._pool.release(connection)
            raise
        if fault is None:
            self._note_use()
            return connection
        if connection is not None:
            self._pool.release(connection)
        self._skip(fault, _AWAY_SECONDS if fault.startswith("away") else _BEHIND_SECONDS)
        return None

    def _skip(self, fault: str, seconds: float) -> None:
        self._skip_until = asyncio.get_running_loop().time() + seconds
        if self._fault is None:
            log.warning("replica not used, reads go to the primary: %s", fault)
        self._fault = fault

    def _note_use(self) -> None:
        self._skip_until = 0.0
        if self._fault is not None:
            log.info("replica used again")
        self._fault = None

    async def close(self) -> None:
        await self._pool.close()


async def _fault_of(connection: asyncpg.Connection, position: Position) -> str | None:
    """Waits for the position. On the connection that is read on: the address may be that of several replicas."""
    waited, pause = 0.0, _FIRST_PAUSE_SECONDS
    while True:
        found = await connection.fetchrow(_SQL["has_replayed"], *position)
        assert found is not None
        if not found["is_replica"]:
            return "away: the server of `database_replica` is no standby of this database's"
        if found["has_replayed"]:
            return None
        if waited >= _WAIT_SECONDS:
            return f"behind: {position.lsn} was not replayed within {_WAIT_SECONDS:g} seconds"
        await asyncio.sleep(pause)
        waited, pause = waited + pause, 2 * pause
