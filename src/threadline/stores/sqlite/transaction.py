"""Every verb of `threadline.ports.Transaction`, over one engine; and driving a piece of work that uses them."""

from __future__ import annotations

from typing import TypeVar

from threadline.ports import TransactionBody
from threadline.stores.sqlite.access import AccessVerbs
from threadline.stores.sqlite.arrivals import ArrivalVerbs
from threadline.stores.sqlite.credentials import CredentialVerbs
from threadline.stores.sqlite.engine import InTransaction
from threadline.stores.sqlite.messages import MessageVerbs
from threadline.stores.sqlite.people import PeopleVerbs
from threadline.stores.sqlite.places import PlaceVerbs
from threadline.stores.sqlite.purge import PurgeVerbs
from threadline.stores.sqlite.queues import QueueVerbs
from threadline.stores.sqlite.search import SearchVerbs
from threadline.stores.sqlite.session import Reach
from threadline.stores.sqlite.table_copy import CopyVerbs
from threadline.stores.sqlite.threads import ThreadVerbs
from threadline.stores.sqlite.timelines import TimelineVerbs
from threadline.stores.sqlite.turn_fast_path import AtOnceVerbs
from threadline.stores.sqlite.turn_output import RunningVerbs
from threadline.stores.sqlite.turns import TurnVerbs

T = TypeVar("T")


class SqliteTransaction(
    ThreadVerbs,
    MessageVerbs,
    SearchVerbs,
    TimelineVerbs,
    PlaceVerbs,
    PeopleVerbs,
    QueueVerbs,
    ArrivalVerbs,
    CredentialVerbs,
    TurnVerbs,
    AtOnceVerbs,
    RunningVerbs,
    AccessVerbs,
    PurgeVerbs,
    CopyVerbs,
):
    """The verbs, in one scope."""


def drive(work: TransactionBody[T], reach: Reach) -> T:
    """Runs the work to its end, here and now, inside the transaction that is open.

    The verbs never really wait, so the coroutine needs no event loop: one step brings it to its end.
    """
    engine = InTransaction(reach)
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
