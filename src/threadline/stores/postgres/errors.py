"""Translates asyncpg's errors into Threadline's, here and nowhere else.

A translated error has asyncpg's error as its cause, which decides whether the same work may be repeated (`may_repeat`).
An error that no rule knows becomes a StoreFailed with PostgreSQL's own text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from threadline.core.errors import (
    OutcomeUnknown,
    SchemaMismatch,
    StoreBusy,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)

# By SQLSTATE: the first matching prefix.
_BY_STATE: dict[str, type[StoreFailed]] = {
    "55P03": StoreBusy,
    "57014": StoreBusy,
    "53100": StoreFull,
    "25006": StoreReadOnly,
    "08": StoreUnavailable,
    "53": StoreUnavailable,
    "57": StoreUnavailable,
    "28": StoreUnavailable,
    "3D": StoreUnavailable,
    "3F": SchemaMismatch,
    "42501": SchemaMismatch,
    "42704": SchemaMismatch,
    "42P01": SchemaMismatch,
    "42703": SchemaMismatch,
    "42883": SchemaMismatch,
    "XX001": StoreCorrupt,
    "XX002": StoreCorrupt,
}
_REFUSED = "TL001"
_NO_SUCH_STATEMENT = ("26000", "42P05")
"""A prepared statement that does not exist, or exists already: the server is another one than at the last call."""
_NODE_LOST = "could not commit transaction for shard"
_REMEDY: dict[type[StoreFailed], str] = {
    StoreFull: "the server's disk is full: make room, then repeat with the same key",
    StoreReadOnly: "the server is read-only (a standby, or by its settings): connect to the primary",
    StoreBusy: "PostgreSQL is busy, and nothing was stored: repeat the call, or raise a limit of [timeouts]",
    StoreUnavailable: "PostgreSQL is not available: check that it runs and that this login may connect",
    SchemaMismatch: "a part of the schema or a right is missing: run `threadline migrate`, then `threadline doctor`",
    StoreCorrupt: "PostgreSQL found damaged data: restore from a backup",
}


def as_store_error(error: BaseException) -> StoreFailed:
    kind: type[StoreFailed] = StoreUnavailable
    if isinstance(error, TimeoutError):
        return StoreUnavailable("PostgreSQL did not answer in time: check the server and the network")
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state in _NO_SUCH_STATEMENT:
            return StoreUnavailable(
                "the database address leads to a pgbouncer in transaction mode: add ?pgbouncer=true to it, "
                f"which turns prepared statements off ({error})"
            )
        kind = next((kind for prefix, kind in _BY_STATE.items() if state.startswith(prefix)), StoreFailed)
    return kind(f"{_REMEDY.get(kind, 'PostgreSQL reported an error')} ({str(error) or type(error).__name__})")


def may_repeat(error: StoreFailed) -> bool:
    """Whether nothing was written and the same work may succeed if it is repeated."""
    cause = error.__cause__
    # After a timeout the caller has waited long enough.
    if cause is None or isinstance(error, OutcomeUnknown) or isinstance(cause, TimeoutError):
        return False
    return _is_transient(cause) or is_lost(cause)


def _is_transient(error: BaseException) -> bool:
    # A key or row that another transaction wrote or removed at the same moment is visible to the next attempt, which
    # then reports the conflict or succeeds.
    conflicts = (asyncpg.TransactionRollbackError, asyncpg.UniqueViolationError, asyncpg.ForeignKeyViolationError)
    return isinstance(error, conflicts)


def refusal_reason(error: StoreFailed) -> str | None:
    """The reason with which an SQL function undid what it had written; None if this is another error."""
    cause = error.__cause__
    return str(cause) if getattr(cause, "sqlstate", None) == _REFUSED else None


def is_lost(error: BaseException) -> bool:
    """Whether connecting failed, or the connection broke during the statement."""
    if isinstance(error, asyncpg.PostgresError):
        # The second: a node of a Citus cluster went away during the commit. There is no state of its own for that.
        return (error.sqlstate or "").startswith(("08", "57P")) or str(error).startswith(_NODE_LOST)
    return isinstance(error, (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError))


def outcome_unknown(error: BaseException) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the connection broke during the commit ({str(error) or type(error).__name__}), so the outcome is unknown: "
        "repeat with the same key, or read what is stored"
    )


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except DRIVER_ERRORS as error:
        raise as_store_error(error) from error
