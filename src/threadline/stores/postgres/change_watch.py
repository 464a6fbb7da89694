"""Watching: one connection listens for all watches of a store, and whoever waits looks again now and then.

NOTIFY does not session everywhere (a pgbouncer in transaction mode, a Citus worker), and a listening connection may be
lost, so a watch never relies on it: without a listener it wakes every `POLL_SECONDS`. A watch is a hint anyway.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg

from threadline.stores.postgres.errors import DRIVER_ERRORS
from threadline.stores.postgres.pool import Address

CHANNEL = "threadline"
POLL_SECONDS = 0.25
_log = logging.getLogger(__name__)


class SubjectWatch:
    """Remembers what happened while nobody waited."""

    def __init__(self, listener: ChangeListener) -> None:
        self._listener = listener
        self.changed = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        most = seconds if await self._listener.listening() else min(seconds, POLL_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(most):
                await self.changed.wait()
        self.changed.clear()


class ChangeListener:
    def __init__(self, address: Address | None) -> None:
        """`address` is a direct one; without it, watches only poll."""
        self._address = address
        self._connection: asyncpg.Connection | None = None
        self._connecting = asyncio.Lock()
        self._watches: dict[str, set[SubjectWatch]] = {}
        self._missed = False
        self.name = secrets.token_hex(4)
        """Under which this process tells others what has rung here already."""

    @asynccontextmanager
    async def watch(self, tenant_id: str, subject: str) -> AsyncIterator[SubjectWatch]:
        watch, watched = SubjectWatch(self), f"{tenant_id} {subject}"
        self._watches.setdefault(watched, set()).add(watch)
        try:
            await self.listening()
            yield watch
        finally:
            watching = self._watches[watched]
            watching.discard(watch)
            if not watching:
                del self._watches[watched]

    async def listening(self) -> bool:
        """Whether notifications arrive; connects again if the connection was lost."""
        if self._address is None:
            return False
        if self._connection is not None and not self._connection.is_closed():
            return True
        async with self._connecting:
            return await self._listen(self._address)

    async def _listen(self, address: Address) -> bool:
        if self._connection is not None and not self._connection.is_closed():
            return True
        try:
            self._connection = await self._subscribed(await address.connect())
        except DRIVER_ERRORS:
            _log.warning("cannot listen for changes; watches look every %s s", POLL_SECONDS)
            return False
        if self._missed:
            # What was told between the connections nobody heard, so everybody looks once.
            self._missed = False
            self._wake_all()
        return True

    async def _subscribed(self, connection: asyncpg.Connection) -> asyncpg.Connection:
        try:
            connection.add_termination_listener(self._lost)
            await connection.add_listener(CHANNEL, self._notified)
        except BaseException:
            # Whoever watched may have been cancelled meanwhile: nobody else knows of this connection.
            connection.remove_termination_listener(self._lost)
            connection.terminate()
            raise
        return connection

    def _notified(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        watched, _, teller = str(payload).partition("@")
        if teller != self.name:
            self.ring(watched)

    def ring(self, watched: str) -> None:
        for watch in self._watches.get(watched, ()):
            watch.changed.set()

    def _lost(self, _connection: object) -> None:
        self._missed = True
        self._wake_all()

    def _wake_all(self) -> None:
        for watches in self._watches.values():
            for watch in watches:
                watch.changed.set()

    async def close(self) -> None:
        connection, self._connection, self._address = self._connection, None, None
        if connection is not None and not connection.is_closed():
            connection.remove_termination_listener(self._lost)
            await connection.close()
        self._wake_all()
