"""One scope's access to the database, inside a transaction or outside of any.

`call` runs a function of the schema, which enters the scope itself: outside a transaction each call is one round trip
that commits. `rows`, `row` and `run` are for plain statements, which need a transaction that has entered the scope;
`@in_transaction` opens one for an operation that is called outside of any. The first value of every plain statement is
the tenant.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import asyncpg
import zstandard
from asyncpg.cursor import Cursor

from threadline.core.errors import StoreBusy
from threadline.core.messages import to_us
from threadline.core.sealing import Limits
from threadline.core.threads import Scope, system_scope
from threadline.ports import Clock
from threadline.stores.postgres.append_batcher import AppendArgs, AppendBatcher, AppendResult, ScopedAppend
from threadline.stores.postgres.change_watch import ChangeNotifier
from threadline.stores.postgres.errors import translated
from threadline.stores.postgres.search_indexer import SearchIndexer
from threadline.stores.postgres.statement_runner import StatementRunner
from threadline.stores.sql import load_queries

P = ParamSpec("P")
T = TypeVar("T")

_SQL = load_queries(__package__, "queries/messages.sql")
# The client's bound for statements that the server does not limit: a server that is gone must not hold them for ever.
MAINTENANCE_SECONDS = 86_400.0
APP, WORKER = "threadline_app", "threadline_worker"
_SET_APP, _SET_WORKER = "SET LOCAL ROLE threadline_app", "SET LOCAL ROLE threadline_worker"
NO_TENANT = system_scope("no-tenant")
"""For statements that concern no tenant, or one after the other."""
_MIN_COMPRESSED_BYTES = 1024
_ZSTD_FIRST_BYTE = 0x28


class UserLocks:
    """One lock per user for transactions of several steps. They are serialized by an advisory lock in the database
    anyway; waiting here first keeps those of this process from occupying connections while they wait."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, scope: Scope) -> AsyncIterator[None]:
        # Weak values: a lock lives as long as a caller holds or awaits it, so scopes that are not in use cost nothing.
        lock = self._locks.setdefault((scope.tenant_id, scope.user_id), asyncio.Lock())
        try:
            # As long as for a connection: the holder may be waiting for a lock in the database.
            async with asyncio.timeout(self._seconds):
                await lock.acquire()
        except TimeoutError:
            raise StoreBusy(
                f"other transactions of this user took over {self._seconds:g} seconds, and nothing was stored: "
                "repeat the call"
            ) from None
        try:
            yield
        finally:
            lock.release()


class Bodies:
    """Message bodies as they are stored: JSON, compressed with zstd if it is long.

    Compression halves the disk space and the write-ahead log of a turn, and costs less than PostgreSQL's own attempt to
    compress. No JSON text begins with the first byte of a zstd frame, so a body needs no flag. One per
    store, because neither object may be used by two threads at the same time.
    """

    def __init__(self) -> None:
        self._compress = zstandard.ZstdCompressor(level=1).compress
        self._decompress = zstandard.ZstdDecompressor().decompress

    def pack(self, body: bytes) -> bytes:
        return body if len(body) < _MIN_COMPRESSED_BYTES else self._compress(body)

    def unpack(self, stored: bytes) -> bytes:
        return self._decompress(stored) if stored[0] == _ZSTD_FIRST_BYTE else stored


class StoreInternals(NamedTuple):
    """What all sessions of one store share."""

    clock: Clock
    has_given_clock: bool
    """Whether the clock also decides about leases and due times, in the place of the server's: in tests."""
    limits: Limits
    bodies: Bodies
    runner: StatementRunner
    append_batcher: AppendBatcher
    search_indexer: SearchIndexer
    notifier: ChangeNotifier
    user_locks: UserLocks
    begin_limits: str
    """Statements that limit each transaction, where the session cannot."""
    lock_timeout_ms: int
    is_distributed: bool
    """Whether the tables are distributed over the nodes of a Citus cluster."""

    def begin_statement(self, scope: Scope, *, serialized: bool = False) -> str:
        return begin_statement(
            scope,
            serialized=serialized,
            limits=self.begin_limits,
            is_distributed=self.is_distributed,
            lock_timeout_ms=self.lock_timeout_ms,
        )


class ScopedSession:
    __slots__ = (
        "_changed", "_connection", "_has_appended", "_is_over", "_seconds",
        "internals", "owner_id", "role", "scope", "tenant_id",
    )  # fmt: skip

    def __init__(self, internals: StoreInternals, scope: Scope, connection: asyncpg.Connection | None = None) -> None:
        """`connection` is inside a transaction that has entered the scope."""
        self.internals = internals
        self.scope = scope
        self.tenant_id = scope.tenant_id
        self.owner_id = scope.user_id
        self.role = WORKER if scope.role == "system" else APP
        self._has_appended = False
        self._changed: set[str] = set()
        self._connection = connection
        self._is_over = False
        self._seconds: float | None = None
        """The client's timeout for statements; None for that of the connection."""

    @property
    def is_in_transaction(self) -> bool:
        self._refuse_if_over()
        return self._connection is not None

    def end(self) -> None:
        """After this, using the session is an error: its connection belongs to other callers."""
        self._is_over = True

    def _refuse_if_over(self) -> None:
        if self._is_over:
            raise RuntimeError("this transaction has ended: use it only inside the function that `transact` called")

    @property
    def owner_filter(self) -> str | None:
        """Whose rows a list shows; None for all. Row security enforces the same, but cannot use an index."""
        return None if self.scope.role == "system" else self.owner_id

    def now(self) -> dt.datetime:
        return self.internals.clock.now()

    def now_us(self) -> int:
        return to_us(self.internals.clock.now())

    def given_time(self) -> dt.datetime | None:
        """The time for what processes compare, leases and due times; None for the server's clock, which SQL reads."""
        return self.internals.clock.now() if self.internals.has_given_clock else None

    def given_us(self) -> int | None:
        return self.now_us() if self.internals.has_given_clock else None

    async def call(
        self, statement: str, *values: Any, reads: bool = False, is_urgent: bool = False, is_large: bool = False
    ) -> list[asyncpg.Record]:
        """Calls a function of the schema. `reads` says that it writes nothing, so that it may always be repeated. An
        urgent call does not wait for a connection behind others. A large read goes to a replica, if there is one."""
        if is_large and self._connection is None:
            self._refuse_if_over()
            return await self.internals.runner.read_on_replica(
                statement, (self.tenant_id, self.owner_id, self.role, *values)
            )
        return await self._call(self.owner_id, statement, values, reads, is_urgent=is_urgent)

    async def read_for_all(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        """A read whose result is the same for every user of the tenant. Without an owner among the values, the waiting
        reads of different users are equal and share one result."""
        return await self._call("" if self._connection is None else self.owner_id, statement, values, True)

    async def _call(
        self, owner_id: str, statement: str, values: tuple[Any, ...], is_read: bool, *, is_urgent: bool = False
    ) -> list[asyncpg.Record]:
        self._refuse_if_over()
        scoped = (self.tenant_id, owner_id, self.role, *values)
        if self._connection is None:
            return await self.internals.runner.run(statement, scoped, is_read, is_urgent=is_urgent)
        with translated():
            return await self._connection.fetch(statement, *scoped, timeout=self._seconds)

    async def call_serialized(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        """For a function that takes the user's advisory lock, as transactions of several steps do."""
        if self.is_in_transaction:
            return await self.call(statement, *values)
        async with self.internals.user_locks.hold(self.scope):
            return await self.call(statement, *values)

    async def append(self, now_us: int, args: AppendArgs) -> AppendResult | None:
        """None if the common case does not hold and nothing was written."""
        self._refuse_if_over()
        append = ScopedAppend(self.tenant_id, self.owner_id, self.role, now_us, args)
        if self._connection is None:
            return await self.internals.append_batcher.append(append)
        with translated():
            (row,) = await self._connection.fetch(_SQL["append"], *append)
        return AppendResult.from_row(row)

    async def rows(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        with translated():
            return await self._required_connection().fetch(statement, self.tenant_id, *values, timeout=self._seconds)

    async def rows_of_schema(self, statement: str) -> list[asyncpg.Record]:
        """For a statement that concerns no tenant."""
        with translated():
            return await self._required_connection().fetch(statement, timeout=self._seconds)

    async def allow_long_statements(self) -> None:
        """For maintenance: how long it takes depends on how much there is, and half of it helps no one."""
        self._seconds = MAINTENANCE_SECONDS
        await self.run_script("SET LOCAL statement_timeout = 0")

    async def open_cursor(self, statement: str, *values: Any) -> Cursor:
        """A cursor of the server, which exists until the transaction ends."""
        with translated():
            opened: Cursor = await self._required_connection().cursor(
                statement, self.tenant_id, *values, timeout=self._seconds
            )
        return opened

    async def run_script(self, statements: str) -> None:
        """Several statements without values, in one round trip."""
        with translated():
            await self._required_connection().execute(statements, timeout=self._seconds)

    async def row(self, statement: str, *values: Any) -> asyncpg.Record | None:
        found = await self.rows(statement, *values)
        return found[0] if found else None

    async def run(self, statement: str, *values: Any) -> int:
        """The number of rows it changed."""
        with translated():
            status = await self._required_connection().execute(
                statement, self.tenant_id, *values, timeout=self._seconds
            )
        return int(status.rpartition(" ")[2])

    async def run_many(self, statement: str, values: Sequence[tuple[Any, ...]]) -> None:
        with translated():
            await self._required_connection().executemany(
                statement, [(self.tenant_id, *each) for each in values], timeout=self._seconds
            )

    def note_append(self) -> None:
        """Has the search index updated: from now on, or in a transaction after its commit."""
        self._has_appended = True
        if self._connection is None:
            self.publish()

    def notify(self, *subjects: str) -> None:
        """Wakes the watches of these subjects: now, or in a transaction after its commit."""
        self._changed.update(subjects)
        if self._connection is None:
            self.publish()

    def publish(self) -> None:
        """Passes on what was noted; in a transaction, for use after its commit."""
        if self._has_appended:
            self._has_appended = False
            self.internals.search_indexer.note(self.scope)
        if self._changed:
            changed, self._changed = self._changed, set()
            self.internals.notifier.notify(self.tenant_id, changed)

    async def ensure_user(self, user_id: str) -> None:
        """Adds the tenant and the user if they are new, because rows refer to them."""
        await self.rows("SELECT threadline.ensure_user($1, $2, $3)", user_id, self.now_us())

    @asynccontextmanager
    async def as_worker(self) -> AsyncIterator[None]:
        """Lets an administrator's statements see all rows of the tenant, not only their own."""
        await self._enter(WORKER)
        yield
        await self._enter(self.role)

    async def _enter(self, role: str) -> None:
        if self.internals.is_distributed:
            await self.run_script(enter_statement(self.scope, role))
        else:
            await self.run_script(_SET_APP if role == APP else _SET_WORKER)

    def _required_connection(self) -> asyncpg.Connection:
        assert self._connection is not None, "a plain statement needs a transaction"
        return self._connection


async def transact(
    internals: StoreInternals,
    scope: Scope,
    body: Callable[[ScopedSession], Awaitable[T]],
    *,
    serialized: bool = False,
    is_large_read: bool = False,
) -> T:
    """Runs `body` in one transaction. `serialized` waits for the user's other serialized transactions. A large read
    runs on a replica, if there is one."""

    async def run(connection: asyncpg.Connection) -> tuple[T, ScopedSession]:
        session = ScopedSession(internals, scope, connection)
        try:
            return await body(session), session
        finally:
            session.end()

    begin = internals.begin_statement(scope, serialized=serialized)
    runner = internals.runner
    result, session = await (runner.transact_on_replica if is_large_read else runner.transact)(begin, run)
    session.publish()
    return result


class Operations:
    """The base of all groups of operations, over one session."""

    def __init__(self, session: ScopedSession) -> None:
        self.session = session


Self = TypeVar("Self", bound=Operations)
Operation = Callable[Concatenate[Self, P], Coroutine[Any, Any, T]]


def in_transaction(operation: Operation[Self, P, T]) -> Operation[Self, P, T]:
    """For an operation of plain statements: outside a transaction, it runs in one of its own."""

    @functools.wraps(operation)
    async def run(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.session.is_in_transaction:
            return await operation(self, *args, **kwargs)
        operations = type(self)

        async def body(session: ScopedSession) -> T:
            return await operation(operations(session), *args, **kwargs)

        return await transact(self.session.internals, self.session.scope, body)

    return run


def begin_statement(
    scope: Scope,
    *,
    serialized: bool = False,
    limits: str = "",
    is_distributed: bool = False,
    lock_timeout_ms: int = 0,
) -> str:
    """Opens a transaction and enters the scope, in one round trip: as one text, because SET takes no parameters."""
    tenant, owner = quote_literal(scope.tenant_id), quote_literal(scope.user_id)
    if is_distributed:
        # All statements have to use the connection that entered the scope: one per node.
        begin = f"BEGIN; {limits}SET LOCAL citus.max_adaptive_executor_pool_size = 1"
        if scope == NO_TENANT:
            return begin
        role = WORKER if scope.role == "system" else APP
        arguments = f"{tenant}, {owner}, '{role}', '{lock_timeout_ms}ms', {serialized}"
        return f"{begin}; SELECT threadline.begin_on_node({arguments})"
    role = _SET_WORKER if scope.role == "system" else _SET_APP
    begin = (
        f"BEGIN; {limits}{role}; SET LOCAL threadline.tenant = {tenant}; SET LOCAL threadline.owner = {owner}; "
        # A connection keeps its plans, also those of foreign keys. One made while a table was small must not scan it
        # when it has grown.
        "SET LOCAL enable_seqscan = off"
    )
    if not serialized:
        return begin
    # The advisory lock serializes the transactions of one user in all processes. 1 is the namespace of these locks.
    return f"{begin}; SELECT pg_advisory_xact_lock(hashtextextended({tenant} || '/' || {owner}, 1))"


def enter_statement(scope: Scope, role: str) -> str:
    return f"SELECT threadline.enter_scope({quote_literal(scope.tenant_id)}, {quote_literal(scope.user_id)}, '{role}')"


def quote_literal(text: str) -> str:
    """A string constant that is safe with standard_conforming_strings on and off."""
    if "\x00" in text:
        raise ValueError("PostgreSQL cannot store a NUL character")
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
