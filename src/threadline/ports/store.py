"""`Store`, and the sessions and transactions through which all data is read and written.

The operations of a session are declared in the other modules of this package, grouped by subject. `Store` itself has no
scope: it opens sessions, runs transactions, watches for changes and reports its health to an operator.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from threadline.core.threads import Scope
from threadline.ports.administration import AccessOperations, PurgeOperations, TableCopyOperations
from threadline.ports.conversations import MessageOperations, ThreadOperations, TimelineOperations
from threadline.ports.hidden_parts import HiddenPartOperations
from threadline.ports.history import HistoryOperations
from threadline.ports.places import CredentialOperations, PlaceOperations, QueueOperations
from threadline.ports.retention import RetentionOperations
from threadline.ports.sign_ins import SignInOperations
from threadline.ports.turns import TurnOperations
from threadline.ports.usage import UsageOperations
from threadline.ports.values import ValueOperations

T = TypeVar("T")


class StoreSession(
    ThreadOperations,
    MessageOperations,
    TimelineOperations,
    HistoryOperations,
    HiddenPartOperations,
    PlaceOperations,
    QueueOperations,
    CredentialOperations,
    TurnOperations,
    UsageOperations,
    ValueOperations,
    AccessOperations,
    PurgeOperations,
    RetentionOperations,
    SignInOperations,
    TableCopyOperations,
    Protocol,
):
    """Every operation, bound to one scope. An operation that stores a row also creates the rows of its tenant and owner
    if they do not exist. An argument of the wrong type, an integer outside its range, and text with a NUL character or
    a lone surrogate raise InvalidInput."""

    @property
    def scope(self) -> Scope: ...


class Transaction(StoreSession, Protocol):
    """A session whose operations are stored together: see `Store.transact`."""


TransactionBody: TypeAlias = Callable[[Transaction], Awaitable[T]]


class Finding(NamedTuple):
    """Something `check` found: what is wrong and what to do about it."""

    level: Literal["error", "warning"]
    what: str
    remedy: str


class Watch(Protocol):
    async def wait(self, seconds: float) -> None:
        """Returns when the watched subject may have changed, or after `seconds`. A hint: read again."""
        ...


class WorkWatch(Protocol):
    async def wait(self, seconds: float) -> Collection[str] | None:
        """Returns when work may have been announced, or after `seconds`: the ids of the tenants in which it was, None
        if it may be any tenant. A hint: claim again."""
        ...


class PoolStats(NamedTuple):
    """Open connections, connections in use, and callers that wait for one."""

    open: int
    in_use: int
    waiting: int


class DatabaseTransaction(Protocol):
    """One transaction over every tenant, for backups and restores."""

    async def tenants(self) -> list[str]: ...

    async def enter(self, tenant_id: str) -> TableCopyOperations:
        """The tables of one tenant. Ends the use of the tenant that was entered before."""
        ...


class Store(Protocol):
    def scoped(self, scope: Scope) -> StoreSession:
        """A session in which each operation is its own transaction, committed when the call returns."""
        ...

    async def transact(self, scope: Scope, work: TransactionBody[T]) -> T:
        """Runs `work` in one write transaction: if it raises, nothing is stored. Transactions of one user run one after
        the other, so what `work` has read is still true when it writes; those of the system scope may overlap. `work`
        may await only the operations of its Transaction, and is run again from the start after a temporary failure.
        The Transaction ends with `work`: later calls raise RuntimeError."""
        ...

    def watch(self, scope: Scope, subject: str) -> AbstractAsyncContextManager[Watch]:
        """Watches a turn by its id, or a thread by its id or state key, whether or not it exists yet. A turn's id wakes
        on: output stored, stop requested, turn ended. A thread's id wakes on: append, move, turn accepted or ended,
        update, delete, restore, purge. A state key wakes when a thread is created or restored under it. Commits of this
        process wake immediately; commits of other processes, shortly after."""
        ...

    def announce_work(self, tenant_id: str) -> None:
        """After the commit of a turn that was handed over, or of a delivery that another process sends: wakes the
        processes that watch for work. An announcement may be lost, so those sweep as well."""
        ...

    def watch_work(self) -> AbstractAsyncContextManager[WorkWatch]:
        """Watches for work in all tenants."""
        ...

    async def tenants(self) -> list[str]:
        """Every tenant's id. For periodic sweeps; never reachable from a request."""
        ...

    async def busy_tenants(self) -> list[str]:
        """The tenants with a turn that has not ended, a platform's message whose turn may need an answer, or a delivery
        that is not settled; others, too, where finding out would take longer than looking. For sweeps that run all the
        time: what they cost must not depend on how many tenants there are."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[DatabaseTransaction]:
        """One consistent state of all tenants, to read while others write; on a cluster, of each tenant. Nothing can be
        written."""
        ...

    def load(self) -> AbstractAsyncContextManager[DatabaseTransaction]:
        """Stores what is written inside the block when it ends: everything or, after an exception, nothing."""
        ...

    async def statistics(self) -> dict[str, int]:
        """Rows per table, bytes on disk and schema version."""
        ...

    async def check_writable(self) -> None:
        """Returns if a write could begin now: the database answers, and no other transaction locks what a turn needs.
        Stores nothing. StoreBusy or another StoreFailed otherwise, after a bounded wait."""
        ...

    def pool_stats(self) -> PoolStats:
        """The current use of the connection pool. Reads no database."""
        ...

    async def index_pending(self) -> int:
        """Brings the search index up to date; returns how many messages it indexed. A search does this as needed."""
        ...

    async def check(self) -> list[Finding]:
        """Checks integrity, schema and row security. Empty means healthy."""
        ...

    async def close(self) -> None:
        """Waits for accepted work to finish. Safe to call twice."""
        ...
