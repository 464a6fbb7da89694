"""Every verb of `threadline.ports.Transaction`, over one session."""

from __future__ import annotations

from threadline.core.threads import Scope
from threadline.stores.postgres.access import AccessVerbs
from threadline.stores.postgres.credentials import CredentialVerbs
from threadline.stores.postgres.messages import MessageVerbs
from threadline.stores.postgres.people import PeopleVerbs
from threadline.stores.postgres.places import PlaceVerbs
from threadline.stores.postgres.purge import PurgeVerbs
from threadline.stores.postgres.queues import QueueVerbs
from threadline.stores.postgres.search import SearchVerbs
from threadline.stores.postgres.session import ScopedSession
from threadline.stores.postgres.table_copy import CopyVerbs
from threadline.stores.postgres.threads import ThreadVerbs
from threadline.stores.postgres.timelines import TimelineVerbs
from threadline.stores.postgres.turn_fast_path import AtOnceVerbs
from threadline.stores.postgres.turn_output import RunningVerbs
from threadline.stores.postgres.turns import TurnVerbs


class PostgresTransaction(
    ThreadVerbs,
    MessageVerbs,
    SearchVerbs,
    TimelineVerbs,
    PlaceVerbs,
    PeopleVerbs,
    QueueVerbs,
    CredentialVerbs,
    TurnVerbs,
    AtOnceVerbs,
    RunningVerbs,
    AccessVerbs,
    PurgeVerbs,
    CopyVerbs,
):
    """The verbs, in one scope."""

    def __init__(self, session: ScopedSession) -> None:
        self.session = session

    @property
    def scope(self) -> Scope:
        return self.session.scope
