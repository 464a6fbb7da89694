"""Simulated processes: each with its own store, services, tasks and wall clock, on one database file.

A process ends in order, as the service does at SIGTERM, or it crashes: none of its callbacks runs any more, and its
connections are closed, so that SQLite rolls an open transaction back as it would for a killed process. Python code of a
process that crashes inside a statement runs on to its next suspension, but every statement and every effect on the
world fails from then on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol, TypeVar

import apsw

from tests.simulation.event_loop import OWNER, SimulatedLoop
from tests.simulation.faults import Faults
from tests.simulation.machine import WallClock
from threadline.bootstrap import Threadline
from threadline.service.app import lifespan
from threadline.service.context import Shutdown
from threadline.settings import Settings
from threadline.stores.sqlite.group_commit import Job
from threadline.stores.sqlite.store import SqliteStore
from threadline.stores.sqlite.writer import Control, WriterLoop

T = TypeVar("T")


class ProcessGone(Exception):
    """The process ended before it responded."""


class Surroundings(Protocol):
    """What a process needs of the world."""

    loop: SimulatedLoop
    faults: Faults
    has_own_clocks: bool
    processes: list[SimulatedProcess]

    def note(self, what: str) -> None: ...

    def inject(self, kind: str, what: str) -> None:
        """Counts a fault."""
        ...

    def agents(self, process: SimulatedProcess) -> dict[str, Any]: ...


class SimulatedLocks:
    """Which processes run, as lock files tell it on one machine. Processes with clocks of their own are on several
    machines, and know nothing of each other."""

    def __init__(self, world: Surroundings, worker: str) -> None:
        self.worker = worker
        self._world = world

    def is_running(self, worker: str) -> bool | None:
        if self._world.has_own_clocks:
            return None
        return any(process.name == worker and process.is_alive for process in self._world.processes)

    def has_new_crash(self) -> bool:
        """Looked for by the sweeps alone, which find the same."""
        return False

    def close(self) -> None:
        return None


class SimulatedProcess:
    """`is_service`: with the sweeps and workers of `threadline serve`; otherwise a program that uses the library.
    Without `runs_turns`, it has the role web."""

    def __init__(
        self,
        world: Surroundings,
        name: str,
        settings: Settings,
        clock_offset: float,
        *,
        is_service: bool,
        runs_turns: bool = True,
    ) -> None:
        self.name = name
        self.is_alive = True
        self.paused_until = 0.0
        self.clock_offset = clock_offset
        self.clock = WallClock(world.loop, self)
        self.connections: list[apsw.Connection] = []
        self.threadline: Threadline | None = None
        self.ended: asyncio.Future[None] = world.loop.create_future()
        """Resolved when the process has ended, in order or not."""
        self._world = world
        self._settings = settings
        self._is_service = is_service
        self._runs_turns = runs_turns
        self._shutdown: Shutdown | None = None
        self._must_stop = False
        self._calls: dict[asyncio.Future[Any], None] = {}
        self._kept: list[object] = [self._start(self._serve(), self._leave)]
        """What a crashed process referred to. Freeing a suspended coroutine would run its `finally` blocks."""

    @property
    def is_ready(self) -> bool:
        """Whether it accepts calls."""
        return self.is_alive and self.threadline is not None and self._shutdown is not None

    async def call(self, work: Callable[[Threadline], Awaitable[T]]) -> T:
        """Runs work inside the process, as a request of the world. ProcessGone if the process crashes."""
        if not self.is_ready:
            raise ProcessGone
        assert self.threadline is not None
        answered: asyncio.Future[T] = self._world.loop.create_future()
        self._calls[answered] = None
        self._start(_awaited(work, self.threadline), partial(_copy_outcome, answered))
        try:
            return await answered
        finally:
            self._calls.pop(answered, None)

    def stop(self) -> None:
        """SIGTERM. A process that is about to start stops afterwards."""
        self._must_stop = True
        if self._shutdown is not None:
            self._world.note(f"{self.name} is told to stop")
            shutdown, self._shutdown = self._shutdown, None
            shutdown.start(self._settings.service.grace_seconds)

    def crash(self, where: str) -> None:
        """`reap` must follow when no code of the process is on the stack any more."""
        if self.is_alive:
            self._world.note(f"{self.name} crashes {where}")
            self.is_alive = False

    def reap(self) -> None:
        """What the operating system does for a killed process."""
        for connection in self.connections:
            connection.close(True)
        self.connections.clear()
        for answered in self._calls:
            if not answered.done():
                answered.set_exception(ProcessGone())
        if not self.ended.done():
            self.ended.set_result(None)

    def _start(self, work: Any, done: Callable[[asyncio.Task[Any]], None]) -> asyncio.Task[Any]:
        context = copy_context()
        context.run(OWNER.set, self)
        task = self._world.loop.create_task(work, name=f"{self.name} main", context=context)
        # In the context of the world, which survives the process.
        task.add_done_callback(done)
        return task

    def _leave(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._world.note(f"{self.name} ends: {error!r}")
        else:
            self._world.note(f"{self.name} has stopped")
        self.is_alive = False
        self._world.loop.drop(self)
        self.reap()

    async def _serve(self) -> None:
        """As `threadline serve` does, without a socket; or as a program that opens the library does."""
        limits = self._settings.limits
        store = await SqliteStore.open(self._settings.database, clock=self.clock, limits=limits)
        agents = self._world.agents(self)
        locks = SimulatedLocks(self._world, self.name)
        async with Threadline(
            store, self._settings, self.clock, agents=agents, processes=locks, runs_turns=self._runs_turns
        ) as threadline:
            shutdown = Shutdown()
            async with lifespan(threadline, self._settings.service, shutdown) if self._is_service else nullcontext():
                self.threadline, self._shutdown = threadline, shutdown
                self._world.note(f"{self.name} serves")
                if self._must_stop:
                    self.stop()
                await shutdown.started.wait()


async def _awaited(work: Callable[[Threadline], Awaitable[T]], threadline: Threadline) -> T:
    return await work(threadline)


def _copy_outcome(answered: asyncio.Future[T], task: asyncio.Task[T]) -> None:
    if answered.done():
        return
    if task.cancelled():
        answered.set_exception(ProcessGone())
    elif (error := task.exception()) is not None:
        answered.set_exception(error)
    else:
        answered.set_result(task.result())


class StatementFaults:
    """Hooks into each connection that a simulated process opens."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world

    def attach(self, connection: apsw.Connection) -> None:
        process = OWNER.get()
        if isinstance(process, SimulatedProcess):
            process.connections.append(connection)
            connection.set_exec_trace(partial(self._before_statement, process, connection))

    def _before_statement(
        self, process: SimulatedProcess, connection: apsw.Connection, cursor: object, sql: str, values: object
    ) -> bool:
        if not process.is_alive:
            raise apsw.IOError("IOError: the process is gone (simulated)")
        faults = self._world.faults
        if sql == "COMMIT" and faults.occurs(faults.rates.slow_per_commit):
            self._world.loop.advance(faults.pause_seconds() / 100)
        if faults.occurs(faults.rates.crash_per_statement):
            self._crash_at(process, connection, sql)
        if sql == "COMMIT" and connection.in_transaction and faults.occurs(faults.rates.unknown_per_commit):
            self._execute(connection, "COMMIT")
            self._world.inject("store errors", f"{process.name} commits and gets an error")
            raise apsw.IOError("IOError: disk I/O error after the commit (simulated)")
        writes = connection.txn_state() == apsw.SQLITE_TXN_WRITE
        if (error := faults.statement_error(sql, writes=writes)) is not None:
            self._world.inject("store errors", f"{process.name} gets {error} at {sql.split()[:3]}")
            if writes and self._world.loop.chance.random() < 0.5:
                # SQLite may roll the whole transaction back with such an error, or leave that to its caller.
                self._execute(connection, "ROLLBACK")
            raise error
        return True

    def _crash_at(self, process: SimulatedProcess, connection: apsw.Connection, sql: str) -> None:
        if sql == "COMMIT" and self._world.loop.chance.random() < 0.5:
            self._execute(connection, "COMMIT")
            process.crash("after its commit")
        else:
            process.crash(f"at {sql.split()[:3]}")
        raise apsw.IOError("IOError: the process is gone (simulated)")

    def _execute(self, connection: apsw.Connection, sql: str) -> None:
        """Without a fault."""
        trace = connection.get_exec_trace()
        connection.set_exec_trace(None)
        try:
            connection.execute(sql)
        finally:
            connection.set_exec_trace(trace)


class SimulatedWriterThread:
    """Runs the loop of SQLite's writer on the event loop, each item after the time that a thread might need."""

    def __init__(self, loop: WriterLoop) -> None:
        running = asyncio.get_running_loop()
        assert isinstance(running, SimulatedLoop)
        self._loop = running
        self._writer_loop = loop
        self._items: deque[Job | Control] = deque()
        self._context = copy_context()
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False
        self._wait(next(loop))

    def put(self, item: Job | Control) -> None:
        self._items.append(item)
        if len(self._items) == 1:
            self._wait(self._loop.job_seconds())

    def take(self) -> Job | Control:
        return self._items.popleft()

    def waiting(self) -> int:
        return len(self._items)

    def join(self, seconds: float | None = None) -> None:
        process = self._context.get(OWNER)
        while not self._has_ended and process is not None and process.is_alive:
            self._run()

    def _wait(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._run, context=self._context)

    def _run(self) -> None:
        if self._has_ended:
            return
        try:
            timeout = self._writer_loop.send(self._items.popleft() if self._items else None)
        except StopIteration:
            self._has_ended = True
        else:
            self._wait(self._loop.job_seconds() if self._items else timeout)
