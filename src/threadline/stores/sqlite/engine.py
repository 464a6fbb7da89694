"""Where a verb runs: each in a transaction of its own, or inside one that is open.

Every verb is written once, as a function of a reach. On its own, a small read runs at once, in the event loop's
thread, on a connection of its own (2 µs, where a thread would take 35); a big one goes to a reader's thread. A small
write runs at once as well where nobody else is writing, and otherwise goes to the writer's thread, as big ones do.
Inside `transact` all of them run at once on the writer's connection, so such a coroutine never really waits, and the
writer's thread drives it to its end by itself.
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

    async def read_much(
        self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    async def write(
        self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    async def write_much(
        self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...


class Operations:
    """What each group of verbs begins with."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def scope(self) -> Scope:
        return self._engine.scope


class Gate:
    """Whether the store may be used at all: not after `close`, and not in a process forked from the one it is of."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.refusal: str | None = None

    def check(self) -> None:
        if self.refusal is not None:
            raise StoreUnavailable(f"{self.shown} {self.refusal}")


class OnItsOwn:
    """Each verb a transaction of its own. Without a writer the store is read-only."""

    def __init__(
        self,
        reader: ScopedSession,
        write_session: ScopedSession | None,
        writer: Writer | None,
        library: Library,
        gate: Gate,
    ) -> None:
        self._reader = reader
        self._write_session = write_session
        self._writer = writer
        self._library = library
        self._gate = gate

    @property
    def scope(self) -> Scope:
        return self._reader.scope

    async def read(self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._gate.check()
        try:
            return fn(self._reader, *args, **kwargs)
        except DRIVER_ERRORS as exc:
            raise translate(exc, self._gate.shown) from exc

    async def read_much(
        self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._gate.check()
        return await self._library.read(fn, self._reader, *args, **kwargs)

    async def write(self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        writer, session = self._writing()
        return await writer.do(partial(_translated, fn, session, *args, **kwargs))

    async def write_much(
        self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        writer, session = self._writing()
        return await writer.submit(partial(_translated, fn, session, *args, **kwargs))

    def _writing(self) -> tuple[Writer, ScopedSession]:
        self._gate.check()
        if self._writer is None or self._write_session is None:
            raise StoreReadOnly(f"{self._gate.shown} was opened read-only")
        return self._writer, self._write_session


def _translated(
    fn: Callable[Concatenate[ScopedSession, P], T], session: ScopedSession, *args: P.args, **kwargs: P.kwargs
) -> T:
    try:
        return fn(session, *args, **kwargs)
    except DRIVER_ERRORS as exc:
        raise translate(exc, session.database.location.shown) from exc


class InTransaction:
    """All verbs of one piece of work, on the writer's connection, in the writer's thread."""

    def __init__(self, session: ScopedSession) -> None:
        self._session = session
        self._open = True
        self._failed: ThreadlineError | None = None

    @property
    def scope(self) -> Scope:
        return self._session.scope

    async def read(self, fn: Callable[Concatenate[ScopedSession, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._open:
            raise RuntimeError("this transaction is over: use its verbs only inside the work it was made for")
        try:
            return fn(self._session, *args, **kwargs)
        except DRIVER_ERRORS as exc:
            self._failed = translate(exc, self._session.database.location.shown)
            raise self._failed from exc

    read_much = read
    write = read
    write_much = read

    def require_sound(self) -> None:
        """A failure of the database fails the whole, even if the work caught it."""
        if self._failed is not None:
            raise self._failed

    def end(self) -> None:
        """Nothing runs on it any more."""
        self._open = False


class Library:
    """A thread that reads what is too big to be read in the event loop's, on a connection of its own."""

    def __init__(self, open_database: Callable[[], Database]) -> None:
        self._open_database = open_database
        self._database: Database | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="threadline-reader")

    async def read(
        self, fn: Callable[Concatenate[ScopedSession, P], T], like: ScopedSession, /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs `fn` on a reach like the given one, in the thread."""
        return await self.run(lambda database: fn(like.on(database), *args, **kwargs))

    async def run(self, fn: Callable[[Database], T]) -> T:
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
        """Waits for what is being read."""
        self._thread.shutdown()
        if self._database is not None:
            self._database.connection.close()
