"""What a platform delivers for the agent: the claim, the message and its turn in one commit.

The common case and nothing else. Everything is checked before anything is written, so that a refusal leaves no trace.
"""

from __future__ import annotations

from threadline.core.channels import NewArrival
from threadline.core.errors import Conflict, LimitExceeded, NotFound
from threadline.core.open_questions import METADATA_KEY
from threadline.core.sealing import CleanText, Sealed
from threadline.core.threads import NewThread
from threadline.core.turns import NewTurn, Turn
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.messages import append
from threadline.stores.sqlite.places import bind, find_binding, is_bound
from threadline.stores.sqlite.queues import add_inbox, is_claimed, settle_inbox
from threadline.stores.sqlite.session import ScopedSession
from threadline.stores.sqlite.threads import create_thread, thread_by_key
from threadline.stores.sqlite.turns import create_turn, find_turn_by_key


class ArrivalOperations(Operations):
    async def take_arrival(self, arrived: NewArrival, message: Sealed, *, title: CleanText | None) -> Turn | None:
        return await self._engine.write(take_arrival, arrived, message, title)


def take_arrival(session: ScopedSession, arrived: NewArrival, message: Sealed, title: CleanText | None) -> Turn | None:
    if session.sees_all or is_claimed(session, arrived.platform, arrived.key):
        return None
    if find_turn_by_key(session, arrived.turn_key) is not None:
        return None
    binding = find_binding(session, arrived.platform, arrived.place)
    if binding is None:
        thread_id = _home(session, arrived)
    else:
        thread_id = None if METADATA_KEY in binding.metadata else binding.thread_id
    if thread_id is None:
        return None
    try:
        appended = append(session, thread_id, [message], None, None, arrived.turn_id, 0, title)
    except (NotFound, Conflict, LimitExceeded):
        return None
    if appended.replayed:
        return None
    if binding is None:
        bind(session, arrived.platform, arrived.place, thread_id, None, None)
    what = (arrived.fingerprint, arrived.correlation_id, arrived.reply_to)
    add_inbox(session, arrived.platform, arrived.key, what, session.user_id)
    settle_inbox(session, arrived.platform, arrived.key, "accepted", "accepted", arrived.turn_id)
    return create_turn(
        session,
        NewTurn(
            id=arrived.turn_id,
            thread_id=thread_id,
            surface=arrived.platform,
            agent_id=arrived.agent_id,
            idempotency_key=arrived.turn_key,
            request_hash=arrived.request_hash,
            request_seq=appended.first_seq,
        ),
    )


def _home(session: ScopedSession, arrived: NewArrival) -> str | None:
    """The thread for a place that has none. One that is made here is empty: nothing more can stand in the way."""
    if arrived.home_key is None or is_bound(session, arrived.platform, arrived.place):
        return None
    home = thread_by_key(session, arrived.home_key)
    if home is None:
        home = create_thread(session, NewThread(state_key=arrived.home_key, agent_id=arrived.agent_id))
    return home.id
