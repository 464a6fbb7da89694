"""Change notification: a watch wakes when its subject changed in this process or in another one.

`ChangeNotifier` wakes the watches of this process immediately after a commit, and sends NOTIFY for the other processes
in batches; `ChangeListener` receives those of others on one connection for all watches of a store. A watch is a hint to
read again, and never relies on a notification: NOTIFY does not pass a pgbouncer in transaction mode or a Citus worker,
and a listening connection may be lost. Without a listener a watch wakes every `POLL_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress

import asyncpg

from threadline.core.errors import StoreFailed
from threadline.core.timeouts import Timeouts
from threadline.stores.postgres.errors import DRIVER_ERRORS
from threadline.stores.postgres.pool import Address
from threadline.stores.postgres.statement_runner import StatementRunner
from threadline.stores.sql import load_queries

CHANNEL = "threadline"
POLL_SECONDS = 0.25
WORK_POLL_SECONDS = 0.05
_WORK = ""
"""In the place of a subject, for all tenants at once. No turn, thread or state key has this id."""
BATCH_SECONDS = 0.05
_CLOSE_SECONDS = 10.0
_SQL = load_queries(__package__, "queries/change_watch.sql")
_log = logging.getLogger(__name__)


class SubjectWatch:
    """Keeps a change that happened between two waits, so that the next wait returns immediately."""

    def __init__(self, listener: ChangeListener) -> None:
        self._listener = listener
        self.changed = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        longest = seconds if await self._listener.ensure_listening() else min(seconds, POLL_SECONDS)
        with suppress(TimeoutError):
            # Without a listening connection no notice arrives, so the caller reads the rows again after POLL_SECONDS.
            async with asyncio.timeout(longest):
                await self.changed.wait()
        self.changed.clear()


class WorkWatch:
    """Collects the tenants in which work was announced since the last wait."""

    def __init__(self, listener: ChangeListener) -> None:
        self._listener = listener
        self._announced = asyncio.Event()
        self._tenants: set[str] | None = set()
        """None after notifications may have been missed."""

    def announce(self, tenant_id: str | None) -> None:
        if tenant_id is None:
            self._tenants = None
        elif self._tenants is not None:
            self._tenants.add(tenant_id)
        self._announced.set()

    async def wait(self, seconds: float) -> Collection[str] | None:
        is_listening = await self._listener.ensure_listening()
        with suppress(TimeoutError):
            # Without a listening connection no announcement arrives, so the caller looks for work by itself.
            async with asyncio.timeout(seconds if is_listening else min(seconds, WORK_POLL_SECONDS)):
                await self._announced.wait()
        self._announced.clear()
        tenants, self._tenants = self._tenants, set()
        return tenants if is_listening else None


class ChangeListener:
    def __init__(self, address: Address | None, timeouts: Timeouts | None = None) -> None:
        """`address` bypasses any pgbouncer; without an address, watches only poll."""
        self._address = address
        self._timeouts = timeouts or Timeouts()
        self._connection: asyncpg.Connection | None = None
        # Watches that find the connection lost at the same time must open one new connection, not one each.
        self._connecting = asyncio.Lock()
        self._watches: dict[str, set[SubjectWatch]] = {}
        self._work_watches: set[WorkWatch] = set()
        self._missed = False
        self.name = secrets.token_hex(4)
        """Marks notifications of this process, whose watches were woken already."""

    @asynccontextmanager
    async def watch(self, tenant_id: str, subject: str) -> AsyncIterator[SubjectWatch]:
        watch, key = SubjectWatch(self), _key(tenant_id, subject)
        self._watches.setdefault(key, set()).add(watch)
        try:
            await self.ensure_listening()
            yield watch
        finally:
            watching = self._watches[key]
            watching.discard(watch)
            if not watching:
                del self._watches[key]

    @asynccontextmanager
    async def watch_work(self) -> AsyncIterator[WorkWatch]:
        watch = WorkWatch(self)
        self._work_watches.add(watch)
        try:
            await self.ensure_listening()
            yield watch
        finally:
            self._work_watches.discard(watch)

    async def ensure_listening(self) -> bool:
        """Connects again if the connection was lost. False if notifications do not arrive."""
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
            self._connection = await self._subscribed(await address.connect(self._timeouts))
        except DRIVER_ERRORS:
            _log.warning("cannot listen for changes; watches poll every %s s", POLL_SECONDS)
            return False
        if self._missed:
            # Notifications between the two connections were missed, so every watch wakes once.
            self._missed = False
            self._wake_all()
        return True

    async def _subscribed(self, connection: asyncpg.Connection) -> asyncpg.Connection:
        try:
            connection.add_termination_listener(self._lost)
            await connection.add_listener(CHANNEL, self._notified)
        except BaseException:
            # The watch may have been cancelled; no other code has this connection and could close it.
            connection.remove_termination_listener(self._lost)
            connection.terminate()
            raise
        return connection

    def _notified(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        key, _, sender = str(payload).partition("@")
        if sender != self.name:
            self.wake(key)

    def wake(self, key: str) -> None:
        for watch in self._watches.get(key, ()):
            watch.changed.set()
        tenant_id, _, subject = key.partition(" ")
        if subject == _WORK:
            for work_watch in self._work_watches:
                work_watch.announce(tenant_id)

    def _lost(self, _connection: object) -> None:
        self._missed = True
        self._wake_all()

    def _wake_all(self) -> None:
        for watches in self._watches.values():
            for watch in watches:
                watch.changed.set()
        for work_watch in self._work_watches:
            work_watch.announce(None)

    async def close(self) -> None:
        connection, self._connection, self._address = self._connection, None, None
        if connection is not None and not connection.is_closed():
            connection.remove_termination_listener(self._lost)
            await connection.close()
        self._wake_all()


class ChangeNotifier:
    """Sends NOTIFY after the commit, not in the transaction.

    A NOTIFY inside the transaction would hold a lock that all notifying commits of the server share until the disk has
    synced. This way no append or move waits, and the changes of `BATCH_SECONDS` take one statement. If the process is
    killed within that time, watches in other processes learn of the change at their next read.
    """

    def __init__(self, listener: ChangeListener, runner: StatementRunner) -> None:
        self._listener = listener
        self._runner = runner
        self._unsent: set[str] = set()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def notify(self, tenant_id: str, subjects: Iterable[str]) -> None:
        for subject in subjects:
            key = _key(tenant_id, subject)
            self._listener.wake(key)
            self._unsent.add(key)
        if self._task is None:
            self._task = asyncio.create_task(self._send(), name="threadline change notifier")

    def announce_work(self, tenant_id: str) -> None:
        self.notify(tenant_id, [_WORK])

    async def _send(self) -> None:
        try:
            while self._unsent:
                with suppress(TimeoutError):
                    # Notices of this short time travel in one statement; closing the store ends the wait.
                    async with asyncio.timeout(BATCH_SECONDS):
                        await self._closing.wait()
                unsent, self._unsent = self._unsent, set()
                # If the server cannot be reached, other processes have lost it too; they wake when they reconnect.
                with suppress(StoreFailed):
                    payloads = [f"{key}@{self._listener.name}" for key in unsent]
                    await self._runner.run_once(_SQL["notify"], (payloads,), False)
        finally:
            self._task = None

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            # Bounded: a server that does not answer must not keep the process from exiting.
            _, late = await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()
                await asyncio.wait([task])


def _key(tenant_id: str, subject: str) -> str:
    return f"{tenant_id} {subject}"
