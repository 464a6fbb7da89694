"""The PostgreSQL store: many processes and many tenants on one server, each transaction bound to one scope.

Every transaction runs as `threadline_app` or `threadline_worker`, whatever else the login may do. These roles own
nothing, and row security shows them only the rows of the transaction's tenant and owner. Opening a store does not
migrate: a schema that is not the one this program needs is refused.

Every operation of `threadline.ports.Transaction`, over one session.
"""

from __future__ import annotations

import datetime as dt
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import asyncpg

from threadline.core.errors import SchemaMismatch
from threadline.core.sealing import Limits
from threadline.core.threads import Scope, system_scope
from threadline.core.timeouts import Timeouts
from threadline.ports import (
    Clock,
    DatabaseTransaction,
    Finding,
    PoolStats,
    StoreSession,
    TransactionBody,
    Watch,
    WorkWatch,
)
from threadline.stores.arguments import check_arguments
from threadline.stores.postgres import maintenance
from threadline.stores.postgres.access import AccessOperations
from threadline.stores.postgres.append_batcher import AppendBatcher
from threadline.stores.postgres.change_watch import ChangeListener, ChangeNotifier
from threadline.stores.postgres.channels import CredentialOperations, QueueOperations
from threadline.stores.postgres.errors import translated
from threadline.stores.postgres.hidden_parts import HiddenPartOperations
from threadline.stores.postgres.history import HistoryOperations
from threadline.stores.postgres.maintenance import PurgeOperations, TableCopyOperations
from threadline.stores.postgres.messages import MessageOperations
from threadline.stores.postgres.migrate import MIGRATIONS, find_distribution, find_pending
from threadline.stores.postgres.places import PeopleOperations, PlaceOperations
from threadline.stores.postgres.pool import Address, Pool, limit_statement
from threadline.stores.postgres.replica import Replica
from threadline.stores.postgres.retention import RetentionOperations
from threadline.stores.postgres.search import SearchOperations
from threadline.stores.postgres.search_indexer import SearchIndexer
from threadline.stores.postgres.session import (
    NO_TENANT,
    Bodies,
    ScopedSession,
    StoreInternals,
    UserLocks,
    transact,
)
from threadline.stores.postgres.sign_ins import SignInOperations
from threadline.stores.postgres.statement_runner import StatementRunner
from threadline.stores.postgres.threads import ThreadOperations, TimelineOperations
from threadline.stores.postgres.turn_commits import TurnCommitOperations
from threadline.stores.postgres.turns import TurnOperations, TurnOutputOperations
from threadline.stores.postgres.usage import UsageOperations
from threadline.stores.postgres.values import ValueOperations
from threadline.stores.sql import load_queries

T = TypeVar("T")
_SQL = load_queries(__package__, "queries/store.sql")
# One is used at a time; the other is for when the first waits for a lock.
_URGENT_CONNECTIONS = 2


class _SystemClock:
    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)


class PostgresStore:
    def __init__(
        self,
        pool: Pool,
        listener: ChangeListener,
        clock: Clock | None,
        limits: Limits,
        *,
        is_distributed: bool,
        replica: Pool | None = None,
    ) -> None:
        """Use `open`."""
        self._pool = pool
        timeouts = pool.timeouts
        self._listener = listener
        # Leases of running turns are renewed here while every other connection is in use: a lease that expires because
        # its renewal waits for a connection costs a turn that is well.
        self._urgent_pool = Pool(pool.address, max_size=_URGENT_CONNECTIONS, timeouts=timeouts)
        runner = StatementRunner(pool, self._urgent_pool)
        self._replica = None
        if replica is not None:
            self._replica = runner.replica = Replica(replica, runner.read_position)
        self._internals = StoreInternals(
            clock=clock or _SystemClock(),
            has_given_clock=clock is not None,
            limits=limits,
            bodies=Bodies(),
            runner=runner,
            append_batcher=AppendBatcher(runner.run, runner.run_once),
            search_indexer=SearchIndexer(self._index_some),
            notifier=ChangeNotifier(listener, runner),
            user_locks=UserLocks(timeouts.pool_seconds),
            begin_limits=f"{limit_statement(timeouts, 'LOCAL')}; " if pool.address.pgbouncer else "",
            lock_timeout_ms=max(1, round(timeouts.lock_seconds * 1000)),
            is_distributed=is_distributed,
        )

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        min_size: int = 1,
        max_size: int = 10,
        listen_dsn: str | None = None,
        replica_dsn: str | None = None,
    ) -> PostgresStore:
        """Connects with at most `max_size` connections, and one more that listens. Without a clock, leases and due
        times are by the server's clock, which all processes share, and other times by the system's.

        `?pgbouncer=true` in the address means a pgbouncer in transaction mode; `listen_dsn` is then the server's own
        address. Lists, searches, pages of histories and sums of usage are read at `replica_dsn`, a streaming replica,
        while it keeps up. SchemaMismatch if `threadline migrate` has to run first or a right is missing. Calls that
        wait longer than `timeouts` allow raise StoreBusy."""
        address = Address.parse(dsn)
        direct = Address.parse(listen_dsn) if listen_dsn else None if address.pgbouncer else address
        pool = Pool(address, max_size=max_size, timeouts=timeouts)
        try:
            with translated():
                await pool.open(min_size=min_size)
                async with pool.borrow() as connection:
                    is_distributed = await _check_fitness(connection)
        except BaseException:
            await pool.close()
            raise
        replica = (
            None if replica_dsn is None else Pool(Address.parse(replica_dsn), max_size=max_size, timeouts=timeouts)
        )
        # Functions run on the nodes, whose NOTIFY does not reach the coordinator: on a cluster watches poll.
        listener = ChangeListener(None if is_distributed else direct, pool.timeouts)
        return cls(pool, listener, clock, limits or Limits(), is_distributed=is_distributed, replica=replica)

    def scoped(self, scope: Scope) -> StoreSession:
        return PostgresTransaction(ScopedSession(self._internals, scope))

    async def transact(self, scope: Scope, work: TransactionBody[T]) -> T:
        async def body(session: ScopedSession) -> T:
            return await work(PostgresTransaction(session))

        if scope.role == "system":
            return await transact(self._internals, scope, body)
        async with self._internals.user_locks.hold(scope):
            return await transact(self._internals, scope, body, serialized=True)

    def watch(self, scope: Scope, subject: str) -> AbstractAsyncContextManager[Watch]:
        return self._listener.watch(scope.tenant_id, subject)

    def watch_work(self) -> AbstractAsyncContextManager[WorkWatch]:
        return self._listener.watch_work()

    def announce_work(self, tenant_id: str) -> None:
        self._internals.notifier.announce_work(tenant_id)

    async def tenants(self) -> list[str]:
        rows = await self._read_schema(_SQL["list_tenants"])
        return [row["tenant_id"] for row in rows]

    async def busy_tenants(self) -> list[str]:
        rows = await self._read_schema(_SQL["list_busy_tenants"])
        return [row["tenant_id"] for row in rows]

    def snapshot(self) -> AbstractAsyncContextManager[DatabaseTransaction]:
        return maintenance.open_transaction(self._internals, self._pool, writes=False)

    def load(self) -> AbstractAsyncContextManager[DatabaseTransaction]:
        return maintenance.open_transaction(self._internals, self._pool, writes=True)

    async def _read_schema(self, statement: str) -> list[asyncpg.Record]:
        return await transact(self._internals, NO_TENANT, lambda session: session.rows_of_schema(statement))

    async def check_writable(self) -> None:
        await transact(self._internals, NO_TENANT, lambda session: session.run_script(_SQL["lock_for_writing"]))

    def pool_stats(self) -> PoolStats:
        return self._pool.stats()

    async def statistics(self) -> dict[str, int]:
        counts = [await self.scoped(NO_TENANT).row_counts()]
        counts += [await self.scoped(system_scope(tenant_id)).row_counts() for tenant_id in await self.tenants()]
        rows = {table: sum(found[table] for found in counts) for table in counts[0]}
        ((size,),) = await self._read_schema(_SQL["bytes_on_disk"])
        return rows | {"bytes": int(size), "schema_version": len(MIGRATIONS)}

    async def index_pending(self) -> int:
        indexed = 0
        for tenant_id in await self.tenants():
            while some := await self._index_some(system_scope(tenant_id)):
                indexed += some
        return indexed

    async def _index_some(self, scope: Scope) -> int:
        return await PostgresTransaction(ScopedSession(self._internals, scope)).index_some()

    async def check(self) -> list[Finding]:
        found = await transact(self._internals, NO_TENANT, maintenance.check_schema)
        for tenant_id in await self.tenants():
            found += await transact(self._internals, system_scope(tenant_id), maintenance.check_tenant)
        return found

    async def close(self) -> None:
        # In this order: queued appends still need the indexer, the notifier and connections.
        await self._internals.append_batcher.close()
        await self._internals.search_indexer.close()
        await self._internals.notifier.close()
        await self._listener.close()
        if self._replica is not None:
            await self._replica.close()
        await self._pool.close()
        await self._urgent_pool.close()


async def _check_fitness(connection: asyncpg.Connection) -> bool:
    """Refuses what this program cannot use. Whether the database is distributed over a cluster."""
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
            f"the login {login['login']} is not a member of threadline_app; run this as an administrator: "
            f"GRANT threadline_app, threadline_worker TO {login['login']};"
        )
    return login["has_citus"] and await find_distribution(connection)


@check_arguments
class PostgresTransaction(
    ThreadOperations,
    MessageOperations,
    SearchOperations,
    TimelineOperations,
    HistoryOperations,
    HiddenPartOperations,
    PlaceOperations,
    PeopleOperations,
    QueueOperations,
    CredentialOperations,
    TurnOperations,
    TurnCommitOperations,
    TurnOutputOperations,
    UsageOperations,
    ValueOperations,
    AccessOperations,
    PurgeOperations,
    RetentionOperations,
    SignInOperations,
    TableCopyOperations,
):
    @property
    def scope(self) -> Scope:
        return self.session.scope
