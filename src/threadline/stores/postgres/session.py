"""One scope's way to the database, inside a transaction or alone.

`call` runs a function of the schema, which enters the scope itself: outside a transaction each call is one round trip.
`rows`, `row` and `run` are for plain statements, which need a transaction that has entered the scope; `@in_transaction`
opens one for a verb that is called outside of any. Every plain statement's first value is the tenant.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import asyncpg

from threadline.core.messages import to_us
from threadline.core.sealing import Limits
from threadline.core.threads import Scope
from threadline.ports import Clock
from threadline.stores.postgres.append_batcher import AppendArgs, AppendResult, ScopedAppend
from threadline.stores.postgres.bodies import Bodies
from threadline.stores.postgres.errors import translated
from threadline.stores.sql import load_queries

P = ParamSpec("P")
T = TypeVar("T")

_SQL = load_queries(__package__, "queries/messages.sql")
APP, WORKER = "threadline_app", "threadline_worker"
_BE_APP, _BE_WORKER = "SET LOCAL ROLE threadline_app", "SET LOCAL ROLE threadline_worker"


class StoreInternals(NamedTuple):
    """What all sessions of one store share."""

    clock: Clock
    limits: Limits
    bodies: Bodies
    transact: Callable[[Scope, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]
    """For a single verb, which need not stand in line with its user's other works."""
    alone: Callable[[str, tuple[Any, ...], bool], Awaitable[list[asyncpg.Record]]]
    append: Callable[[ScopedAppend], Awaitable[AppendResult | None]]
    appended: Callable[[Scope], None]
    line: Callable[[Scope], AbstractAsyncContextManager[None]]
    """Where one user's works wait for each other."""
    tell: Callable[[str, Iterable[str]], None]
    """Wakes whoever watches one of these subjects of the tenant."""


class ScopedSession:
    __slots__ = (
        "_connection", "_is_over", "has_appended", "internals", "owner_id", "role", "scope", "tenant_id", "touched",
    )  # fmt: skip

    def __init__(self, internals: StoreInternals, scope: Scope, connection: asyncpg.Connection | None = None) -> None:
        self.internals = internals
        self.scope = scope
        self.tenant_id = scope.tenant_id
        self.owner_id = scope.user_id
        self.role = WORKER if scope.role == "system" else APP
        self.has_appended = False
        self.touched: set[str] = set()
        self._connection = connection
        self._is_over = False

    @property
    def is_open(self) -> bool:
        self._refuse_if_over()
        return self._connection is not None

    def end(self) -> None:
        """The transaction is over: whoever kept it can do nothing with it."""
        self._is_over = True

    def _refuse_if_over(self) -> None:
        if self._is_over:
            raise RuntimeError("this transaction is over: use its verbs only inside the work it was given to")

    @property
    def owner_filter(self) -> str | None:
        """Whose rows a list shows; None for everybody's. Row security says the same, but helps no index find them."""
        return None if self.scope.role == "system" else self.owner_id

    def now(self) -> dt.datetime:
        return self.internals.clock.now()

    def now_us(self) -> int:
        return to_us(self.internals.clock.now())

    async def call(self, function: str, *values: Any, reads: bool = False) -> list[asyncpg.Record]:
        """`reads` says that it writes nothing, so that it may be repeated whatever became of it."""
        self._refuse_if_over()
        given = (self.tenant_id, self.owner_id, self.role, *values)
        if self._connection is None:
            return await self.internals.alone(function, given, reads)
        with translated():
            return await self._connection.fetch(function, *given)

    async def read_for_all(self, function: str, *values: Any) -> list[asyncpg.Record]:
        """A read of what all of the tenant's owners see alike: it names none of them, so that they may share it."""
        self._refuse_if_over()
        if self._connection is None:
            return await self.internals.alone(function, (self.tenant_id, "", self.role, *values), True)
        return await self.call(function, *values)

    async def call_in_line(self, function: str, *values: Any) -> list[asyncpg.Record]:
        """The same for one that stands in line with the user's other works, as it does by itself in the database: those
        of this process wait here, where they keep no connection from others."""
        if self.is_open:
            return await self.call(function, *values)
        async with self.internals.line(self.scope):
            return await self.call(function, *values)

    async def append(self, now_us: int, args: AppendArgs) -> AppendResult | None:
        """None if the common case does not hold and nothing was written."""
        self._refuse_if_over()
        append = ScopedAppend(self.tenant_id, self.owner_id, self.role, now_us, args)
        if self._connection is None:
            return await self.internals.append(append)
        with translated():
            (row,) = await self._connection.fetch(_SQL["append"], *append)
        return AppendResult.from_row(row)

    async def rows(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        with translated():
            return await self._open().fetch(statement, self.tenant_id, *values)

    async def plain_rows(self, statement: str) -> list[asyncpg.Record]:
        """For what belongs to no tenant."""
        with translated():
            return await self._open().fetch(statement)

    async def row(self, statement: str, *values: Any) -> asyncpg.Record | None:
        found = await self.rows(statement, *values)
        return found[0] if found else None

    async def run(self, statement: str, *values: Any) -> int:
        """How many rows it changed."""
        with translated():
            done = await self._open().execute(statement, self.tenant_id, *values)
        return int(done.rpartition(" ")[2])

    async def run_many(self, statement: str, values: Sequence[tuple[Any, ...]]) -> None:
        with translated():
            await self._open().executemany(statement, [(self.tenant_id, *each) for each in values])

    def note_append(self) -> None:
        """There are new words for search: alone they are there now, in a transaction after its commit."""
        self.has_appended = True
        if self._connection is None:
            self.internals.appended(self.scope)

    def touch(self, *subjects: str) -> None:
        """Something about them changed: alone whoever watches one wakes now, in a transaction after its commit."""
        if self._connection is None:
            self.internals.tell(self.tenant_id, subjects)
        else:
            self.touched.update(subjects)

    async def introduce(self, owner_id: str) -> None:
        """Makes the tenant and the owner known, so that rows can refer to them."""
        await self.rows("SELECT threadline.introduce($1, $2, $3)", owner_id, self.now_us())

    @asynccontextmanager
    async def as_worker(self) -> AsyncIterator[None]:
        """For what concerns the whole tenant: its other owners' rows are in sight meanwhile."""
        with translated():
            await self._open().execute(_BE_WORKER)
            yield
            await self._open().execute(_BE_APP if self.role == APP else _BE_WORKER)

    def _open(self) -> asyncpg.Connection:
        assert self._connection is not None, "a plain statement needs a transaction"
        return self._connection


class HasSession(Protocol):
    session: ScopedSession


Self = TypeVar("Self", bound=HasSession)
Verb = Callable[Concatenate[Self, P], Coroutine[Any, Any, T]]


def in_transaction(verb: Verb[Self, P, T]) -> Verb[Self, P, T]:
    """A verb of plain statements: one that is called alone gets a transaction of its own."""

    @functools.wraps(verb)
    async def run(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.session.is_open:
            return await verb(self, *args, **kwargs)
        done: T = await self.session.internals.transact(self.session.scope, lambda tx: verb(tx, *args, **kwargs))
        return done

    return run


def entering(scope: Scope, *, in_line: bool = False) -> str:
    """Begins a transaction that speaks for the scope: one round trip, because SET takes no parameters. `in_line` waits
    until no other transaction of the user's that stands in line is open, in whichever process."""
    role = _BE_WORKER if scope.role == "system" else _BE_APP
    tenant, owner = literal(scope.tenant_id), literal(scope.user_id)
    begin = (
        f"BEGIN; {role}; SET LOCAL threadline.tenant = {tenant}; SET LOCAL threadline.owner = {owner}; "
        # A connection keeps plans, also those of foreign keys: none may rest on a table's being small at first.
        "SET LOCAL enable_seqscan = off"
    )
    if not in_line:
        return begin
    return f"{begin}; SELECT pg_advisory_xact_lock(hashtextextended({tenant} || '/' || {owner}, 1))"


def literal(text: str) -> str:
    """A string constant that means the same whatever standard_conforming_strings says."""
    if "\x00" in text:
        raise ValueError("PostgreSQL keeps no NUL")
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
