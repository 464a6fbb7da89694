"""Every operation of `threadline.ports.Transaction`, over one session."""

from __future__ import annotations

from threadline.core.threads import Scope
from threadline.stores.arguments import check_arguments
from threadline.stores.postgres.access import AccessOperations
from threadline.stores.postgres.channels import CredentialOperations, QueueOperations
from threadline.stores.postgres.maintenance import PurgeOperations, TableCopyOperations
from threadline.stores.postgres.messages import MessageOperations
from threadline.stores.postgres.people import PeopleOperations
from threadline.stores.postgres.places import PlaceOperations
from threadline.stores.postgres.search import SearchOperations
from threadline.stores.postgres.threads import ThreadOperations, TimelineOperations
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
    @property
    def scope(self) -> Scope:
        return self.session.scope
