"""The PostgreSQL store: many processes and many tenants on one server, each transaction bound to one scope.

Whatever the login may do, every transaction does it as `threadline_app` or `threadline_worker`, which own nothing and
see, by row security, only what the transaction's tenant and owner have. Opening does not migrate: a schema that is not
the one this program knows is refused.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import asyncpg

from threadline.core.errors import SchemaMismatch, StoreFailed
from threadline.core.sealing import Limits
from threadline.core.threads import Scope, system_scope
from threadline.ports import Clock, Finding, PoolStats, StoreSession, Transaction, TransactionBody, Watch
from threadline.stores.postgres import check
from threadline.stores.postgres.append_batcher import AppendBatcher
from threadline.stores.postgres.bodies import Bodies
from threadline.stores.postgres.change_watch import ChangeListener
from threadline.stores.postgres.errors import (
    DRIVER_ERRORS,
    as_store_error,
    is_lost,
    may_repeat,
    outcome_unknown,
    translated,
)
from threadline.stores.postgres.migrate import MIGRATIONS, find_pending
from threadline.stores.postgres.notices import ChangeNotifier
from threadline.stores.postgres.pool import Address, Pool
from threadline.stores.postgres.read_coalescer import ReadCoalescer
from threadline.stores.postgres.search_indexer import SearchIndexer
from threadline.stores.postgres.session import ScopedSession, StoreInternals, entering
from threadline.stores.postgres.transaction import PostgresTransaction
from threadline.stores.sql import load_queries

T = TypeVar("T")
_SQL = load_queries(__package__, "queries/store.sql")
_TRIES = 8
_SHORTEST_PAUSE = 0.002
_NOBODY = system_scope("nobody")
"""For what belongs to no tenant."""


class _SystemClock:
    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)


class PostgresStore:
    def __init__(self, pool: Pool, listener: ChangeListener, clock: Clock, limits: Limits) -> None:
        """Use `open`."""
        self._pool = pool
        self._listener = listener
        self._search_indexer = SearchIndexer(self._index_some)
        self._lines: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._read_coalescer = ReadCoalescer(pool, self._on)
        self._append_batcher = AppendBatcher(self._alone, self._once)
        self._notifier = ChangeNotifier(listener, self._once)
        self._internals = StoreInternals(
            clock,
            limits,
            Bodies(),
            self._transact,
            self._alone,
            self._append_batcher.append,
            self._search_indexer.note,
            self._line,
            self._notifier.tell,
        )

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        min_size: int = 1,
        max_size: int = 10,
        listen_dsn: str | None = None,
    ) -> PostgresStore:
        """The store at this address, with at most `max_size` connections and one that listens.

        An address with `?pgbouncer=true` is a pgbouncer in transaction mode; `listen_dsn` is then the server's own.
        SchemaMismatch if `threadline migrate` has to run first, or a right is missing; the error says which."""
        address = Address.parse(dsn)
        direct = Address.parse(listen_dsn) if listen_dsn else None if address.pgbouncer else address
        pool = Pool(address, max_size=max_size)
        try:
            with translated():
                await pool.open(min_size=min_size)
                async with pool.borrow() as connection:
                    await _refuse_unfit(connection)
        except BaseException:
            await pool.close()
            raise
        return cls(pool, ChangeListener(direct), clock or _SystemClock(), limits or Limits())

    def scoped(self, scope: Scope) -> StoreSession:
        return PostgresTransaction(ScopedSession(self._internals, scope))

    async def transact(self, scope: Scope, work: TransactionBody[T]) -> T:
        if scope.role == "system":
            return await self._transact(scope, work)
        # Those of this process wait here, where they keep no connection from others.
        async with self._line(scope):
            return await self._transact(scope, work, in_line=True)

    def _line(self, scope: Scope) -> asyncio.Lock:
        return self._lines.setdefault((scope.tenant_id, scope.user_id), asyncio.Lock())

    async def _transact(self, scope: Scope, work: TransactionBody[T], *, in_line: bool = False) -> T:
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._attempt(scope, work, in_line)
            except StoreFailed as error:
                if attempt == _TRIES or not may_repeat(error):
                    raise
            await _pause(attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _attempt(self, scope: Scope, work: TransactionBody[T], in_line: bool) -> T:
        async with self._pool.borrow() as connection:
            with translated():
                await connection.execute(entering(scope, in_line=in_line))
            session = ScopedSession(self._internals, scope, connection)
            try:
                result = await work(PostgresTransaction(session))
            except BaseException:
                await _roll_back(connection)
                raise
            finally:
                session.end()
            with translated():
                await _commit(connection)
        if session.has_appended:
            self._search_indexer.note(scope)
        if session.touched:
            self._notifier.tell(session.tenant_id, session.touched)
        return result

    async def _alone(self, function: str, values: tuple[Any, ...], reads: bool) -> list[asyncpg.Record]:
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._once(function, values, reads)
            except StoreFailed as error:
                if attempt == _TRIES or not may_repeat(error):
                    raise
            await _pause(attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _once(self, function: str, values: tuple[Any, ...], reads: bool) -> list[asyncpg.Record]:
        """One statement is one transaction and one round trip."""
        if reads and self._pool.is_busy:
            return await self._read_coalescer.ask(function, values)
        return await self._on(await self._pool.take(), function, values, reads)

    async def _on(
        self, connection: asyncpg.Connection, function: str, values: tuple[Any, ...], reads: bool = True
    ) -> list[asyncpg.Record]:
        try:
            return await _fetch(connection, function, values, reads)
        except DRIVER_ERRORS as error:
            raise as_store_error(error) from error
        finally:
            self._pool.give_back(connection)

    def watch(self, scope: Scope, subject: str) -> AbstractAsyncContextManager[Watch]:
        return self._listener.watch(scope.tenant_id, subject)

    async def tenants(self) -> list[str]:
        async def work(tx: Transaction) -> list[str]:
            return [row[0] for row in await _session_of(tx).plain_rows(_SQL["list_tenants"])]

        return await self._transact(_NOBODY, work)

    def pool_stats(self) -> PoolStats:
        return self._pool.stats()

    async def statistics(self) -> dict[str, int]:
        async def size(tx: Transaction) -> int:
            ((found,),) = await _session_of(tx).plain_rows(_SQL["bytes_on_disk"])
            return int(found)

        counts = [await self.scoped(_NOBODY).row_counts()]
        counts += [await self.scoped(system_scope(tenant_id)).row_counts() for tenant_id in await self.tenants()]
        rows = {table: sum(found[table] for found in counts) for table in counts[0]}
        return rows | {"bytes": await self._transact(_NOBODY, size), "schema_version": len(MIGRATIONS)}

    async def index_pending(self) -> int:
        taken = 0
        for tenant_id in await self.tenants():
            while some := await self._index_some(system_scope(tenant_id)):
                taken += some
        return taken

    async def _index_some(self, scope: Scope) -> int:
        return await PostgresTransaction(ScopedSession(self._internals, scope)).index_some()

    async def check(self) -> list[Finding]:
        async def of_schema(tx: Transaction) -> list[Finding]:
            return await check.schema_findings(_session_of(tx))

        async def of_tenant(tx: Transaction) -> list[Finding]:
            return await check.tenant_findings(_session_of(tx))

        found = await self._transact(_NOBODY, of_schema)
        for tenant_id in await self.tenants():
            found += await self._transact(system_scope(tenant_id), of_tenant)
        return found

    async def close(self) -> None:
        await self._append_batcher.close()
        await self._search_indexer.close()
        await self._notifier.close()
        await self._listener.close()
        await self._pool.close()


def _session_of(tx: Transaction) -> ScopedSession:
    assert isinstance(tx, PostgresTransaction)
    return tx.session


async def _fetch(
    connection: asyncpg.Connection, function: str, values: tuple[Any, ...], reads: bool
) -> list[asyncpg.Record]:
    try:
        return await connection.fetch(function, *values)
    except DRIVER_ERRORS as error:
        # An InterfaceError comes before anything is sent.
        if not reads and is_lost(error) and not isinstance(error, asyncpg.InterfaceError):
            raise outcome_unknown(error) from error
        raise


async def _commit(connection: asyncpg.Connection) -> None:
    try:
        await connection.execute("COMMIT")
    except DRIVER_ERRORS as error:
        if is_lost(error):
            raise outcome_unknown(error) from error
        raise


async def _roll_back(connection: asyncpg.Connection) -> None:
    try:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
    except DRIVER_ERRORS:
        # Closing it does the same, and what went wrong first is what the caller has to know.
        connection.terminate()


async def _pause(attempt: int) -> None:
    await asyncio.sleep(_SHORTEST_PAUSE * 2**attempt * (0.5 + random.random()))  # noqa: S311 - no secret


async def _refuse_unfit(connection: asyncpg.Connection) -> None:
    todo = await find_pending(connection)
    if todo.steps:
        raise SchemaMismatch(
            f"the database has schema version {todo.current}, this program needs {todo.target}: "
            "run `threadline migrate`"
        )
    if todo.functions:
        raise SchemaMismatch(
            f"the database has other SQL functions than this program needs ({', '.join(todo.functions)}): "
            "run `threadline migrate`"
        )
    login = await connection.fetchrow(_SQL["find_login"])
    assert login is not None
    if not login["is_app"]:
        raise SchemaMismatch(
            f"the login {login['login']} may not act for the application; run this as an administrator: "
            f"GRANT threadline_app, threadline_worker TO {login['login']};"
        )
