"""Every verb of `threadline.ports.Transaction`, over one session."""

from __future__ import annotations

from threadline.core.threads import Scope
from threadline.stores.arguments import check_arguments
from threadline.stores.postgres.access import AccessOperations
from threadline.stores.postgres.credentials import CredentialOperations
from threadline.stores.postgres.messages import MessageOperations
from threadline.stores.postgres.people import PeopleOperations
from threadline.stores.postgres.places import PlaceOperations
from threadline.stores.postgres.purge import PurgeOperations
from threadline.stores.postgres.queues import QueueOperations
from threadline.stores.postgres.search import SearchOperations
from threadline.stores.postgres.session import ScopedSession
from threadline.stores.postgres.table_copy import TableCopyOperations
from threadline.stores.postgres.threads import ThreadOperations
from threadline.stores.postgres.timelines import TimelineOperations
from threadline.stores.postgres.turn_commits import TurnCommitOperations
from threadline.stores.postgres.turn_output import TurnOutputOperations
from threadline.stores.postgres.turns import TurnOperations


@check_arguments
class PostgresTransaction(
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

    def __init__(self, session: ScopedSession) -> None:
        self.session = session

    @property
    def scope(self) -> Scope:
        return self.session.scope
