"""What a platform delivers for the agent: the claim, the message and its turn in one commit.

The common case and nothing else. Everything is checked before anything is written, so that a refusal leaves no trace.
"""

from __future__ import annotations

from threadline.core.channels import NewArrival
from threadline.core.errors import Conflict, LimitExceeded, NotFound
from threadline.core.pending import METADATA_KEY
from threadline.core.sealing import CleanText, Sealed
from threadline.core.turns import NewTurn, Turn
from threadline.stores.sqlite.engine import Verbs
from threadline.stores.sqlite.messages import append
from threadline.stores.sqlite.places import find_binding
from threadline.stores.sqlite.queues import add_inbox, is_claimed, settle_inbox
from threadline.stores.sqlite.reach import Reach
from threadline.stores.sqlite.turns import create_turn, find_turn_by_key


class ArrivalVerbs(Verbs):
    async def take_arrival(self, arrived: NewArrival, message: Sealed, *, title: CleanText | None) -> Turn | None:
        return await self._engine.write(take_arrival, arrived, message, title)


def take_arrival(reach: Reach, arrived: NewArrival, message: Sealed, title: CleanText | None) -> Turn | None:
    binding = find_binding(reach, arrived.platform, arrived.place)
    if binding is None or binding.owner_id != reach.user_id or METADATA_KEY in binding.metadata:
        return None
    if is_claimed(reach, arrived.platform, arrived.key):
        return None
    if find_turn_by_key(reach, arrived.turn_key) is not None:
        return None
    try:
        appended = append(reach, binding.thread_id, [message], None, None, arrived.turn_id, 0, title)
    except (NotFound, Conflict, LimitExceeded):
        return None
    if appended.replayed:
        return None
    what = (arrived.fingerprint, arrived.correlation_id, arrived.reply_to)
    add_inbox(reach, arrived.platform, arrived.key, what, reach.user_id)
    settle_inbox(reach, arrived.platform, arrived.key, "accepted", "accepted", arrived.turn_id)
    return create_turn(
        reach,
        NewTurn(
            id=arrived.turn_id,
            thread_id=binding.thread_id,
            surface=arrived.platform,
            agent_id=arrived.agent_id,
            idempotency_key=arrived.turn_key,
            request_hash=arrived.request_hash,
            request_seq=appended.first_seq,
        ),
    )
