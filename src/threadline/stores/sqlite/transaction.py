"""Every verb of `threadline.ports.Transaction`, over one engine; and driving a piece of work that uses them."""

from __future__ import annotations

from typing import TypeVar

from threadline.ports import TransactionBody
from threadline.stores.arguments import check_arguments
from threadline.stores.sqlite.access import AccessOperations
from threadline.stores.sqlite.credentials import CredentialOperations
from threadline.stores.sqlite.engine import InTransaction
from threadline.stores.sqlite.messages import MessageOperations
from threadline.stores.sqlite.people import PeopleOperations
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
    PeopleOperations,
    QueueOperations,
    CredentialOperations,
    TurnOperations,
    TurnCommitOperations,
    TurnOutputOperations,
    AccessOperations,
    PurgeOperations,
    TableCopyOperations,
):
    """The verbs, in one scope."""


def drive(work: TransactionBody[T], session: ScopedSession) -> T:
    """Runs the work to its end, here and now, inside the transaction that is open.

    The verbs never really wait, so the coroutine needs no event loop: one step brings it to its end.
    """
    engine = InTransaction(session)
    steps = work(SqliteTransaction(engine)).__await__()
    try:
        next(steps)
    except StopIteration as done:
        engine.require_sound()
        result: T = done.value
        return result
    else:
        steps.close()
        raise RuntimeError("a transaction awaits only its own verbs: do everything else before or after it")
    finally:
        engine.end()
