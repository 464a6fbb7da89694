"""asyncpg's errors as Threadline's: the one place where one becomes the other.

The error a caller gets keeps asyncpg's as its cause, and from that it can be told whether the same work, begun again,
may well succeed (`may_repeat`). What none of the rules below knows is a StoreFailed that shows PostgreSQL's own words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from threadline.core.errors import (
    OutcomeUnknown,
    SchemaMismatch,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)

# By SQLSTATE: the first prefix that fits.
_BY_STATE: dict[str, type[StoreFailed]] = {
    "53100": StoreFull,
    "25006": StoreReadOnly,
    "08": StoreUnavailable,
    "53": StoreUnavailable,
    "57": StoreUnavailable,
    "28": StoreUnavailable,
    "3D": StoreUnavailable,
    "3F": SchemaMismatch,
    "42501": SchemaMismatch,
    "42P01": SchemaMismatch,
    "42703": SchemaMismatch,
    "42883": SchemaMismatch,
    "XX001": StoreCorrupt,
    "XX002": StoreCorrupt,
}
_REFUSED = "TL001"
_REMEDY: dict[type[StoreFailed], str] = {
    StoreFull: "the server's disk is full: make room, then repeat with the same key",
    StoreReadOnly: "the server takes no writes (a standby, or read-only by setting): connect to the primary",
    StoreUnavailable: "PostgreSQL cannot be used now: see that it runs and that this login may connect",
    SchemaMismatch: "the schema or a right is not as this program needs it: run `threadline migrate`, then `doctor`",
    StoreCorrupt: "PostgreSQL found damaged data: restore from a backup",
}


def as_store_error(error: BaseException) -> StoreFailed:
    kind: type[StoreFailed] = StoreUnavailable
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        kind = next((kind for prefix, kind in _BY_STATE.items() if state.startswith(prefix)), StoreFailed)
    return kind(f"{_REMEDY.get(kind, 'PostgreSQL refused')} ({str(error) or type(error).__name__})")


def may_repeat(error: StoreFailed) -> bool:
    """Whether what raised this has written nothing, and may succeed if it is begun again."""
    cause = error.__cause__
    return not isinstance(error, OutcomeUnknown) and cause is not None and (_is_passing(cause) or is_lost(cause))


def _is_passing(error: BaseException) -> bool:
    # A key or a row that somebody else wrote or removed at the same moment is there to be seen the next time.
    clashes = (asyncpg.TransactionRollbackError, asyncpg.UniqueViolationError, asyncpg.ForeignKeyViolationError)
    return isinstance(error, clashes)


def refusal_reason(error: StoreFailed) -> str | None:
    """The reason with which an SQL function undid what it had written; None if this is another error."""
    cause = error.__cause__
    return str(cause) if getattr(cause, "sqlstate", None) == _REFUSED else None


def is_lost(error: BaseException) -> bool:
    """Whether the connection could not be had, or went away under the statement."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(("08", "57P"))
    return isinstance(error, (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError))


def outcome_unknown(error: BaseException) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the connection broke while PostgreSQL was to commit ({str(error) or type(error).__name__}): "
        "repeat with the same key, or look what is there"
    )


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except DRIVER_ERRORS as error:
        raise as_store_error(error) from error
