"""A `Store` hands out `Transaction`s: every verb, in one scope.

The verbs stand beside this file, by what they are about. `Store` itself knows no scope: it runs works, watches turns
and threads, and tells an operator how it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from threadline.core.threads import Scope
from threadline.ports.administration import AccessVerbs, CopyVerbs, PurgeVerbs
from threadline.ports.conversations import MessageVerbs, ThreadVerbs, TimelineVerbs
from threadline.ports.places import CredentialVerbs, PlaceVerbs, QueueVerbs
from threadline.ports.turns import TurnVerbs

T = TypeVar("T")


class Transaction(
    ThreadVerbs,
    MessageVerbs,
    TimelineVerbs,
    PlaceVerbs,
    QueueVerbs,
    CredentialVerbs,
    TurnVerbs,
    AccessVerbs,
    PurgeVerbs,
    CopyVerbs,
    Protocol,
):
    """Every verb, in one scope. A verb that stores something makes the tenant and the owner of it known, if they are
    not yet."""

    @property
    def scope(self) -> Scope: ...


TransactionBody: TypeAlias = Callable[[Transaction], Awaitable[T]]


class Finding(NamedTuple):
    """Something `check` found: what is wrong and what to do about it."""

    level: Literal["error", "warning"]
    what: str
    remedy: str


class Watch(Protocol):
    async def wait(self, seconds: float) -> None:
        """Returns when something about the watched subject may have changed, or after so long. A hint: read again."""
        ...


class Load(NamedTuple):
    """What a store is busy with at this moment: connections that are open, those in use, and who waits for one."""

    open: int
    in_use: int
    waiting: int


class Store(Protocol):
    def scoped(self, scope: Scope) -> Transaction:
        """Verbs of which each call is a transaction of its own, done when it returns."""
        ...

    async def transact(self, scope: Scope, work: TransactionBody[T]) -> T:
        """Runs `work` in one write transaction: all of it is stored, or, if it raises, none. Works of one user run one
        after the other, so that what a work looked up still holds when it writes; those of the system scope need not.
        `work` awaits nothing but the verbs of the Transaction it gets, and may be run again from the start after a
        passing fault. The Transaction is over with its work: verbs called later raise RuntimeError."""
        ...

    def watch(self, scope: Scope, subject: str) -> AbstractAsyncContextManager[Watch]:
        """Watches a turn by its id, or a thread by its id or its state key, whether it is there yet or not. A turn's id
        rings with what the turn shows, its tools, a wish to stop it and its end. A thread's id rings with an append, a
        move, a turn that is accepted, one that ends, a change, a deletion, a return and a purge; its state key, when a
        thread comes to stand under it. What this process commits rings at once; what others commit, soon."""
        ...

    async def tenants(self) -> list[str]:
        """Every tenant's id. For sweeps of the house; never reachable from a request."""
        ...

    async def statistics(self) -> dict[str, int]:
        """Rows by table, bytes on disk, schema version: for the operator."""
        ...

    def load(self) -> Load:
        """How busy it is now. Costs nothing."""
        ...

    async def index_pending(self) -> int:
        """Brings the search index up to date; how many messages it took. Searches do this for what they need."""
        ...

    async def check(self) -> list[Finding]:
        """What a doctor would look at: integrity, schema, row security. Empty means healthy."""
        ...

    async def close(self) -> None:
        """Waits for what was accepted. Safe to call twice."""
        ...
