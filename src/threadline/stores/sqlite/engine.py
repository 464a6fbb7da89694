"""Engines: on which thread and connection an operation runs.

Every operation is written once, as a synchronous function of a `ScopedSession`. With `AutocommitEngine` a small read
runs directly on the event-loop thread, on a connection of its own (2 µs; handing it to a thread takes 35), and a large
one in the reader thread; writes go to the `Writer`. With `TransactionEngine`, inside `transact`, everything runs
directly on the writer's connection, so the coroutine never suspends and the writer thread can run it without an event
loop.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from threadline.core.errors import StoreReadOnly, StoreUnavailable, ThreadlineError
from threadline.core.threads import Scope
from threadline.stores.sqlite.connection import DRIVER_ERRORS, translate
from threadline.stores.sqlite.session import Database, ScopedSession
from threadline.stores.sqlite.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")


class Engine(Protocol):
    @property
    def scope(self) -> Scope: ...

    async def read(self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def read_large(
        self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    async def write(
        self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    async def write_large(
        self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...


class Operations:
    """Base class of the operation groups."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def scope(self) -> Scope:
        return self._engine.scope


class Availability:
    """Whether the store may be used: not after `close`, and not in a forked child process."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.refusal: str | None = None

    def check(self) -> None:
        if self.refusal is not None:
            raise StoreUnavailable(f"{self.shown} {self.refusal}")


class AutocommitEngine:
    """Each operation is its own transaction. Without a writer the store is read-only."""

    def __init__(
        self,
        reader: ScopedSession,
        write_session: ScopedSession | None,
        writer: Writer | None,
        reader_thread: ReaderThread,
        availability: Availability,
    ) -> None:
        self._reader = reader
        self._write_session = write_session
        self._writer = writer
        self._reader_thread = reader_thread
        self._availability = availability

    @property
    def scope(self) -> Scope:
        return self._reader.scope

    async def read(self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._availability.check()
        try:
            return fn(self._reader, *args, **kwargs)
        except DRIVER_ERRORS as exc:
            raise translate(exc, self._availability.shown) from exc

    async def read_large(
        self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._availability.check()
        return await self._reader_thread.read(fn, self._reader, *args, **kwargs)

    async def write(self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        writer, session = self._writing()
        return await writer.write(partial(_translated, fn, session, *args, **kwargs))

    async def write_large(
        self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        writer, session = self._writing()
        return await writer.submit(partial(_translated, fn, session, *args, **kwargs))

    def _writing(self) -> tuple[Writer, ScopedSession]:
        self._availability.check()
        if self._writer is None or self._write_session is None:
            raise StoreReadOnly(f"{self._availability.shown} was opened read-only")
        return self._writer, self._write_session


def _translated(
    fn: Callable[Concatenate[ScopedSession, P], T], session: ScopedSession, *args: P.args, **kwargs: P.kwargs
) -> T:
    try:
        return fn(session, *args, **kwargs)
    except DRIVER_ERRORS as exc:
        raise translate(exc, session.database.location.shown) from exc


class TransactionEngine:
    """All operations of one transaction, on the writer's connection, in the writer thread."""

    def __init__(self, session: ScopedSession) -> None:
        self._session = session
        self._open = True
        self._failed: ThreadlineError | None = None

    @property
    def scope(self) -> Scope:
        return self._session.scope

    async def read(self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._open:
            raise RuntimeError("this transaction has ended: use it only inside the function that `transact` called")
        # The error may have ended the transaction: what followed would be committed piece by piece.
        self.require_no_failure()
        try:
            return fn(self._session, *args, **kwargs)
        except DRIVER_ERRORS as exc:
            self._failed = translate(exc, self._session.database.location.shown)
            raise self._failed from exc

    read_large = read
    write = read
    write_large = read

    def require_no_failure(self) -> None:
        """Raises a failure of the database again, also if the work caught it: the transaction cannot be trusted."""
        if self._failed is not None:
            raise self._failed

    def end(self) -> None:
        """Later calls raise RuntimeError."""
        self._open = False


class ReaderThread:
    """One thread with its own connection, for reads that would block the event loop for too long."""

    def __init__(self, open_database: Callable[[], Database]) -> None:
        self._open_database = open_database
        self._database: Database | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="threadline-reader")

    async def read(
        self, fn: Callable[Concatenate[ScopedSession, P], T], like: ScopedSession, /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs `fn` in the thread, on its connection, in the scope of the given session."""
        return await self.run(lambda database: fn(like.on(database), *args, **kwargs))

    async def run(self, fn: Callable[[Database], T]) -> T:
        # The context goes along, so that log records and traces of the thread belong to the caller's request.
        job = partial(contextvars.copy_context().run, self._run, fn)
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    def _run(self, fn: Callable[[Database], T]) -> T:
        if self._database is None:
            self._database = self._open_database()
        try:
            return fn(self._database)
        except DRIVER_ERRORS as exc:
            raise translate(exc, self._database.location.shown) from exc

    def close(self) -> None:
        """Waits for the current read."""
        self._thread.shutdown()
        if self._database is not None:
            self._database.connection.close()
