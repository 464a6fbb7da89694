"""All operations of `threadline.ports.StoreSession` in one class, and the execution of transaction bodies."""

from __future__ import annotations

from typing import TypeVar

from threadline.ports import TransactionBody
from threadline.stores.arguments import check_arguments
from threadline.stores.sqlite.access import AccessOperations, CredentialOperations
from threadline.stores.sqlite.engine import TransactionEngine
from threadline.stores.sqlite.messages import MessageOperations
from threadline.stores.sqlite.places import PlaceOperations
from threadline.stores.sqlite.purge import PurgeOperations
from threadline.stores.sqlite.queues import QueueOperations
from threadline.stores.sqlite.search import SearchOperations
from threadline.stores.sqlite.session import ScopedSession
from threadline.stores.sqlite.table_copy import TableCopyOperations
from threadline.stores.sqlite.threads import ThreadOperations
from threadline.stores.sqlite.timelines import TimelineOperations
from threadline.stores.sqlite.turn_commits import TurnCommitOperations
from threadline.stores.sqlite.turn_output import TurnOutputOperations
from threadline.stores.sqlite.turns import TurnOperations

T = TypeVar("T")


@check_arguments
class SqliteTransaction(
    ThreadOperations,
    MessageOperations,
    SearchOperations,
    TimelineOperations,
    PlaceOperations,
    QueueOperations,
    CredentialOperations,
    TurnOperations,
    TurnCommitOperations,
    TurnOutputOperations,
    AccessOperations,
    PurgeOperations,
    TableCopyOperations,
):
    """All operations, in one scope."""


def run_transaction_body(work: TransactionBody[T], session: ScopedSession) -> T:
    """Runs the work to its end inside the open transaction.

    Its operations never suspend, so the coroutine needs no event loop: the first step runs it to its end.
    """
    engine = TransactionEngine(session)
    steps = work(SqliteTransaction(engine)).__await__()
    try:
        next(steps)
    except StopIteration as done:
        engine.require_no_failure()
        result: T = done.value
        return result
    else:
        steps.close()
        raise RuntimeError("a transaction may await only its own operations: do everything else before or after it")
    finally:
        engine.end()
